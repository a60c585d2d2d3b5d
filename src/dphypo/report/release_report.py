"""The report of a release: one page for whoever decides, checks or cites. It is made from public values alone.

A release that is read from its folder is a stranger's: it is refused unless it verifies. Its model is not loaded. What
is on the page is what the certificate is tied to: the parameters by their hash, and the tables of surveys by theirs.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dphypo import __version__, _validate, plots
from dphypo._files import is_folder, parsing
from dphypo._validate import printable
from dphypo.accounting import Certificate, verify
from dphypo.accounting.certificate import CITATIONS
from dphypo.accounting.second_opinion import epsilon_from_below
from dphypo.accounting.solve import round_up
from dphypo.accounting.statement import assumptions, breaks
from dphypo.accounting.verification import guarantee_of
from dphypo.errors import FileError
from dphypo.report import html
from dphypo.report.html import SIZE, Html, block, bullets, facts, join, page, picture, short, table, tag
from dphypo.search import Release
from dphypo.search.release import Ending, read_description, read_surveys
from dphypo.search.table import Surveyed, at_edge

# Where readers get this package. Whoever publishes it changes these two lines, and nothing else.
INSTALL = f"pip install dphypo-{__version__}-py3-none-any.whl"
WHERE = "The wheel comes from whoever gave you the release, or from dphypo's repository: make wheel builds it there."
_MOST_ROWS = 300
_ACCOUNTANTS = {"rdp": "Rényi curve", "pld": "privacy loss distribution", "pure": "pure ε"}


def write_report(release: Release, path: str | os.PathLike[str]) -> Path:
    """Write the report of a release to a file. :meth:`dphypo.Release.report` is the same."""
    return html.write(release_page(release), path)


def write_folder_report(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> Path:
    """Write the report of a saved release, if its folder holds what its certificate says: that is recomputed."""
    return html.write(release_page(read_folder(folder), verified=True), path)


def read_folder(folder: str | os.PathLike[str]) -> Release:
    """What a folder releases, without its model."""
    source = _validate.path(folder=folder)
    if not is_folder(source):
        raise FileNotFoundError(f"there is no folder {str(source)!r}: give one that Release.save has written")
    outcome = verify(source)
    if not outcome:
        raise ValueError(f"the release does not verify, so that no report of it is written: {outcome}")
    surveys, certificate = read_tables(source)
    described = read_description(source)
    return Release(described["params"], None, described["score"], certificate, described["ending"], surveys=surveys)


def read_tables(folder: str | os.PathLike[str]) -> tuple[tuple[Surveyed, ...], Certificate]:
    """The tables of the surveys of a saved release, and the certificate, which has the hash of each.

    The numbers of the certificate are not recomputed.
    """
    source = _validate.path(folder=folder)
    certificate, surveys, path = Certificate.load(source), read_surveys(source), source / "surveys.json"
    with parsing(path, "the certificate of its release is damaged"):
        known = {one.get("sha256") for one in certificate.document["public"].get("released", [])}
    for survey in surveys:
        if survey.hash not in known:
            raise FileError(f"{printable(path)} holds a table that the certificate does not name: it was changed")
    return surveys, certificate


def release_page(release: Release, *, verified: bool = False) -> str:
    """The page; ``verified`` says that the certificate was recomputed just now. Where it was read from is not on it."""
    certificate = release.certificate
    document = certificate.document
    space, several = document["public"].get("space"), len(release.surveys) > 1
    surveys = [
        (f"survey-{number}", f"Survey {number}" if several else "The survey", _survey(survey, space))
        for number, survey in enumerate(release.surveys, 1)
    ]
    sections = [
        ("released", "What was released", _released(release)),
        ("statement", "The privacy statement", _statement(certificate)),
        ("profile", "The privacy profile", _profile(certificate)),
        ("one-run", "What the winning run alone would have claimed", _one_run(certificate)),
        *surveys,
        ("verify", "How to verify", _verify(certificate, verified=verified)),
        ("assumptions", "What it assumes", _assumptions(document)),
        ("citation", "Citation", bullets(CITATIONS)),
    ]
    data, day = document.get("data_set"), document.get("declared")
    lead = f"Data set: {data}. " if data else "The certificate names no data set. "
    lead += f"Declared on {day}." if day else ""
    foot = f"Written by dphypo {__version__} from the release and its certificate."
    return page("Privacy report", lead.strip(), _top(release), sections, foot)


def _top(release: Release) -> Html:
    certificate = release.certificate
    unit = certificate.document["public"].get("unit", "record")
    numbers = facts(
        [
            ("ε of everything released", _epsilon(certificate.epsilon)),
            ("at δ", f"{certificate.delta:g}"),
            ("protected", f"every {unit}"),
            ("score", "not released" if release.score is None else f"{release.score:.5g}"),
        ],
        class_="headline",
    )
    if certificate.warning is None:
        return numbers
    return join(tag("p", tag("strong", "This is no guarantee. "), certificate.warning, class_="warning"), numbers)


def _released(release: Release) -> Html:
    parts = [tag("p", _capital(f"{release.ending}."))]
    if release.params is not None:
        whose = "Its hyperparameters"
        if release.ending is not Ending.MODEL:
            whose = "The hyperparameters that the table recommends"
        rows = [(name, short(value)) for name, value in release.params.items()]
        parts.append(table(whose, ["hyperparameter", "value"], rows))
    tied = release.certificate.document.get("release")
    if isinstance(tied, Mapping) and tied.get("model_sha256"):
        parts.append(facts([("SHA-256 of the model", tag("code", tied["model_sha256"]))], class_="facts"))
    return join(*parts)


def _statement(certificate: Certificate) -> Html:
    """The certificate's own words, a line each; what stands before a colon is its name."""
    first, *rest = certificate.statement().splitlines()
    named = [line.split(": ", 1) for line in rest if ": " in line[:60]]
    pairs = facts([(name, _capital(words)) for name, words in named], class_="facts")
    return join(tag("p", tag("strong", first)), pairs, *(tag("p", line) for line in rest if ": " not in line[:60]))


def _profile(certificate: Certificate) -> Html:
    document, delta = certificate.document, certificate.delta
    attack = math.floor(100 * epsilon_from_below(guarantee_of(certificate), delta)) / 100
    alt = (
        f"Curve of δ against ε, falling. At δ = {delta:g} the release costs at most ε = "
        f"{_epsilon(certificate.epsilon)}. The table below has the numbers."
    )
    caption = (
        f"Every point (ε, δ) of the curve is a guarantee of its own: one {document['public'].get('unit', 'record')} "
        "changes the probability of anything that can be seen by a factor of e^ε at most, plus δ."
    )
    figure = plots.certificate_profile(certificate, attack=attack or None, size=(SIZE[0], SIZE[1] + 0.4))
    stated = {name: " (the sharpest, which is stated)" * (name == document["bound"]) for name in document["bounds"]}
    rows = [
        (plots.BOUNDS.get(name, name) + stated[name], _epsilon(float(epsilon)))
        for name, epsilon in document["bounds"].items()
    ]
    below = f"An explicit attack achieves ε = {attack:g}, so that no valid bound is below it."
    return join(
        picture(figure, "profile", alt, caption),
        table(f"ε at δ = {delta:g}, by every bound that applies", ["bound", "ε, at most"], rows, numbers=1),
        tag("p", below) if attack else "",
    )


def _one_run(certificate: Certificate) -> Html:
    rows = [
        (f"one run alone, by its {_ACCOUNTANTS.get(name, name)}", _epsilon(float(epsilon)))
        for name, epsilon in certificate.document["one_run"].items()
    ]
    rows.append(("everything that was released", _epsilon(certificate.epsilon)))
    words = (
        "This is what is usually reported: the cost of one training run, as if nothing had been tuned. It does not "
        "cover the choice of the hyperparameters, which also looked at the private data."
    )
    return join(tag("p", words), table(f"ε at δ = {certificate.delta:g}", ["what is counted", "ε"], rows, numbers=1))


def _survey(survey: Surveyed, space: Any) -> Html:
    """One survey. The description of the space may be a stranger's."""
    space = space if isinstance(space, Mapping) else {}
    failed = sum(row.score is None for row in survey.rows)
    words = f"{len(survey)} runs were made, and all their results are published. {failed or 'None'} of them failed. "
    if survey.best is not None:
        words += f"The best score is {survey.best.score:.5g}. Scores are noisy: the best may be a lucky one. "
    words += at_edge(survey, space)
    return join(tag("p", words), table_of_runs(survey))


def table_of_runs(survey: Surveyed, ended: int = 0) -> Html:
    """A row for every run; if more than these have ``ended``, these are the newest."""
    before = max(ended - len(survey), 0)
    names = list(dict.fromkeys(name for row in survey.rows for name in row.params))
    rows = [
        [number, "failed" if row.score is None else short(row.score), *(short(row.params.get(name)) for name in names)]
        for number, row in enumerate(survey.rows[:_MOST_ROWS], before + 1)
    ]
    first = "All" if len(survey) <= _MOST_ROWS else f"The first {_MOST_ROWS} of"
    which = f"The newest {len(survey)} of {ended}" if before else f"{first} {len(survey)}"
    return table(f"{which} runs", ["run", "score", *names], rows)


def _verify(certificate: Certificate, *, verified: bool) -> Html:
    done = (
        "When this page was written, every number of the certificate was recomputed and found to follow from what it "
        "states. Do not take the page's word for it:"
        if verified
        else "Anybody can recompute every number from what the certificate states, without the data:"
    )
    document = json.dumps(certificate.to_dict(), indent=1, ensure_ascii=False)
    return join(
        tag("p", done),
        block(f"{INSTALL}\ndphypo verify RELEASE_FOLDER\ndphypo explain RELEASE_FOLDER"),
        tag("p", WHERE),
        tag("p", "RELEASE_FOLDER is the folder with ", tag("code", "certificate.json"), ", or that file itself."),
        tag("details", tag("summary", "The certificate"), block(document)),
    )


def _assumptions(document: Mapping[str, Any]) -> Html:
    held, broken = ([f"{_capital(line)}." for line in said(document)] for said in (assumptions, breaks))
    words = "The guarantee holds if all of this is true. No computation can check it:"
    return join(tag("p", words), bullets(held), tag("h3", "What would break it"), bullets(broken))


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def _epsilon(value: float) -> str:
    """ε for people, never rounded down, with the decimals that the certificate's statement has.

    >>> _epsilon(6.9396701), _epsilon(math.inf)
    ('6.93968', '∞')
    """
    return f"{round_up(value, 5):.5f}" if value < 1e4 else "∞" if math.isinf(value) else f"{math.ceil(value)}"
