"""Reports: what is on the page, what is not, and how the page gets to a file."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from support.markup import tags
from support.report_world import SCRIPT, study, surveyed_release
from typer.testing import CliRunner

from dphypo.accounting import Certificate, verify
from dphypo.cli import app
from dphypo.entropy import SYSTEM
from dphypo.report import release_page, short, write, write_folder_report
from dphypo.search.release import Ending, Row, SurveyTable

RUN = CliRunner()


@pytest.fixture(scope="module")
def release():
    return surveyed_release()


@pytest.fixture(scope="module")
def page(release):
    return release_page(release)


@pytest.fixture(scope="module")
def folder(release, tmp_path_factory):
    return release.save(tmp_path_factory.mktemp("saved") / "release")


def visible(page: str) -> str:
    """What people read: no styles, no drawings, no certificate, no markup."""
    for name in ("style", "svg", "details"):
        page = re.sub(rf"<{name}.*?</{name}>", "", page, flags=re.DOTALL)
    return re.sub(r"<[^>]*>", " ", page)


def test_the_page_says_what_a_reader_needs(release, page):
    read = visible(page)
    certificate = release.certificate
    for words in certificate.statement().splitlines()[0].split(". "):
        assert words.rstrip(".") in read
    for needed in (
        "digits",
        "every record",
        "What was released",
        "The cost of one run alone",
        "Survey",
        "dphypo verify RELEASE_FOLDER",
        "Assumptions",
        "What would break it",
        "NeurIPS 2023",
        "An explicit attack achieves",
        "An attacker who knows all other data tests whether this record was used.",
        "true positive rate, at most",
        "All training runs, including those that chose the hyperparameters, together satisfy",
    ):
        assert needed in read, needed
    rows = re.findall(r"<tr>.*?</tr>", page)
    assert sum(re.search(r"<tr><th scope=\"row\">\d+</th>", row) is not None for row in rows) == 12
    assert "pip install dphypo-" in read
    assert ".whl" in read
    assert "changes the probability of any event by a factor of at most e^ε, plus δ." in read
    assert "likely" not in read, "δ is no probability of a loss above ε"


def test_no_number_on_the_page_is_smaller_than_the_certificate_says(release, page):
    stated = [float(v) for v in {**release.certificate.document["bounds"], "e": release.certificate.epsilon}.values()]
    shown = [float(number) for number in re.findall(r"<td class=\"number\">([0-9.]+)</td>", page)]
    for epsilon in stated:
        assert any(epsilon <= number <= epsilon + 1e-5 for number in shown)


def test_the_cost_is_one_number_on_the_whole_page(release, page):
    """The headline, the statement, the tables and the legend say ε with the same digits."""
    epsilon = f"{release.certificate.epsilon:.5f}"
    near = {found for found in re.findall(r"[0-9]+\.[0-9]+", page) if 0 < abs(float(found) - float(epsilon)) < 1e-3}
    assert page.count(epsilon) >= 5
    assert near == set()


def test_an_entry_of_the_registry_has_its_fields_and_is_never_overwritten(release, folder, tmp_path):
    """The names are those of the schema of opendp/deployments-registry-data; its tests refuse any other."""
    path = tmp_path / "entry.yaml"
    assert RUN.invoke(app, ["report", str(folder), "--registry", str(path)]).exit_code == 0
    found = yaml.safe_load(path.read_text())
    assert set(found) == {"url_slug", "status", "tier", "deployment"}
    assert {name: set(part) for name, part in found["deployment"].items()} == {
        "basic": {
            *("name", "data_curators", "intended_use", "description", "publication_date"),
            *("data_product_type", "data_product_region"),
        },
        "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
        "privacy_loss": {
            *("privacy_unit", "privacy_unit_details", "privacy_parameters", "privacy_parameters_details"),
        },
        "deployment_model": {
            *("model_name", "model_name_details", "release_type", "release_type_details"),
            *("data_source_type", "access_type"),
        },
        "accounting": {"post_processing", "composition"},
        "implementation": {"preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"},
        "administrative": {"sources", "notes", "registry_authors"},
    }
    stated = {"epsilon": release.certificate.epsilon, "delta": release.certificate.delta}
    assert found["deployment"]["privacy_loss"]["privacy_parameters"] == stated
    assert found["deployment"]["basic"]["name"] == "digits"
    again = RUN.invoke(app, ["report", str(folder), "--registry", str(path)])
    assert isinstance(again.exception, FileExistsError)


def test_names_of_strangers_are_text(page):
    assert html.escape(SCRIPT) in page
    assert "script" not in tags(page)
    assert "<script" not in page.lower()


def test_nothing_is_fetched(page):
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)[^\"]*\"", page)
    assert not re.findall(r"url\((?!#)[^)]*\)|@import", page)
    assert "default-src &#x27;none&#x27;" in page


def test_ids_are_used_once(page):
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(ids)


def test_the_page_of_a_study_depends_on_its_release_and_certificate_alone(tmp_path):
    releases = {}
    for seed in range(20):
        with study(seed, tmp_path / f"journal-{seed}.db") as one:
            release, total, trials = one.run(progress=False), one.curator().total(), one.curator().trials()
            again = one.released()
        if total not in releases and release.score is not None:
            releases[total] = (release, again, trials)
        if len(releases) == 2:
            break
    assert sorted(releases) == [13, 17]
    for total, (_, again, trials) in releases.items():
        page = release_page(again)
        assert "journal-" not in page
        assert str(tmp_path) not in page
        for trial in trials:
            assert str(trial["seed"]) not in page
            if trial["params"] != again.params:
                assert trial["score"] is None or f"{trial['score']:.5g}" not in visible(page)
                assert f"{trial['params']['lr']:.5g}" not in visible(page)
        said = re.sub(r"Declared on [0-9-]+", "", visible(page))
        assert not re.search(rf"\b{total}\b", said), "T"
    (one, _, _), (_, other, _) = releases.values()
    swapped = replace(one, params=other.params, score=other.score)
    assert release_page(swapped) == page, "nothing else is on it: not T, nor where it was read from"


def test_the_seeded_study_says_that_it_is_no_guarantee(tmp_path):
    with study(1) as seeded, study(1, entropy=SYSTEM) as private:
        assert "This carries no guarantee." in release_page(seeded.run(progress=False))
        assert "This carries no guarantee." not in release_page(private.run(progress=False))


@pytest.mark.parametrize("ending", [Ending.ALL_FAILED, Ending.NO_RUN])
def test_a_release_without_a_model_has_a_page(release, ending):
    bare = replace(release, params=None, model=None, score=None, ending=ending, surveys=())
    read = visible(release_page(bare))
    assert str(ending).capitalize()[:20] in read
    assert "not released" in read


def test_a_survey_of_failures_has_a_page(release):
    table = SurveyTable((Row({"lr": 1.0}, None), Row({"lr": 2.0}, None)))
    read = visible(release_page(replace(release, surveys=(table, table))))
    assert read.count("2 of them failed.") == 2


def test_a_page_blames_the_choice_of_hyperparameters_only_where_there_was_one(release):
    choice = "It does not cover the choice of the hyperparameters, which also used the private data."
    assert choice in visible(release_page(release))
    document = release.certificate.to_dict()
    public = {**document["public"], "releases": [{"part": "last run", "search": "none"}]}
    alone = replace(release, surveys=(), certificate=Certificate.from_dict({**document, "public": public}))
    assert choice not in visible(release_page(alone))
    assert "Nothing was searched here" in visible(release_page(alone))


def test_a_report_is_written_whole_and_replaces_reports_only(release, page, tmp_path):
    target = release.report(tmp_path / "report.html")
    assert target.read_text(encoding="utf-8") == page
    assert write(page, target) == target
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert stat.S_IMODE(os.stat(target).st_mode) == 0o644
    other = tmp_path / "thesis.html"
    other.write_text("<html>mine</html>")
    with pytest.raises(FileExistsError, match="is not a report of a release: give a new name"):
        write(page, other)
    assert other.read_text() == "<html>mine</html>"
    with pytest.raises(FileNotFoundError, match="create it first"):
        write(page, tmp_path / "nowhere" / "report.html")
    with pytest.raises(FileExistsError):
        write(page, tmp_path)
    with pytest.raises(ValueError, match=r"path = .*report\.pdf' is not valid: .* ends with \.html"):
        write(page, tmp_path / "report.pdf")


def test_no_page_entry_or_plot_is_added_to_a_release(folder, tmp_path):
    copy = Path(shutil.copytree(folder, tmp_path / "release"))
    for command in (["report", "--out", "a.html"], ["report", "--registry", "a.yaml"], ["plot", "--out", "a.png"]):
        name, option, file = command
        done = RUN.invoke(app, [name, str(copy), option, str(copy / file)])
        assert isinstance(done.exception, ValueError)
        assert "lies in the folder of a saved release" in str(done.exception)
    assert verify(copy)


def test_what_cannot_be_written_leaves_the_old_page(page, tmp_path):
    target = write(page, tmp_path / "report.html")
    with pytest.raises(UnicodeEncodeError):
        write(page + "\ud800", target)
    assert target.read_text(encoding="utf-8") == page
    assert len(list(tmp_path.iterdir())) == 1


def test_the_command_gives_the_page_that_the_release_gives(release, folder, tmp_path):
    target = tmp_path / "report.html"
    done = CliRunner().invoke(app, ["report", str(folder), "--out", str(target)])
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == str(target)
    read = visible(target.read_text(encoding="utf-8"))
    assert "was recomputed and matched" in read
    for part in ("What was released", "Survey", "An explicit attack achieves", "SHA-256 of the model"):
        assert part in read
    assert all(short(value) in read for value in release.params.values())


def changed(folder, tmp_path, name, change):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    path = copy / name
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    return copy


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("certificate.json", lambda data: data.update(epsilon=0.1), "does not verify.*epsilon"),
        ("release.json", lambda data: data.update(score=0.99), "does not verify.*parameters in the folder"),
        ("surveys.json", lambda data: data[0]["rows"][0].update(score=0.99), "does not verify.*does not name"),
        ("surveys.json", lambda data: data[0].update(maximize=False), "does not verify.*does not name"),
        ("surveys.json", lambda data: data.append({}), "2 tables of surveys, and the certificate names 1"),
        ("surveys.json", lambda data: data.clear(), "0 tables of surveys, and the certificate names 1"),
        ("certificate.json", lambda data: data["public"].update(released=[7]), "its description of tables is damaged"),
    ],
)
def test_a_folder_that_was_changed_gives_no_page(folder, tmp_path, name, change, why):
    copy = changed(folder, tmp_path, name, change)
    with pytest.raises(ValueError, match=f"(?s){why}"):
        write_folder_report(copy, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    done = CliRunner().invoke(app, ["report", str(tmp_path / "nowhere")])
    assert isinstance(done.exception, FileNotFoundError)
    assert "give one that Release.save wrote" in str(done.exception)
