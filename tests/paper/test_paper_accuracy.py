"""The data file of accuracies: every row has its source, and a row can be added by a release that verifies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.report_world import surveyed_release

from paper import cli
from paper.anchors import accuracy


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file, its page and its certificates, elsewhere."""
    (tmp_path / "docs").mkdir()
    for name, path in (("FILE", tmp_path / "accuracy.json"), ("PAGE", tmp_path / "docs" / "accuracy.md")):
        path.write_text(getattr(accuracy, name).read_text(encoding="utf-8"), encoding="utf-8")
        monkeypatch.setattr(accuracy, name, path)
    kept = tmp_path / "certificates"
    kept.mkdir()
    for path in accuracy.CERTIFICATES.glob("*.json"):
        (kept / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(accuracy, "CERTIFICATES", kept)
    return tmp_path


def test_every_row_matches_its_source():
    assert list(accuracy.problems()) == []


def test_rows_follow_their_plan_and_each_task_has_a_certificate():
    pytest.importorskip("torch")
    from paper.rows import PLAN

    made = [json.loads(line) for line in accuracy.ROWS.read_text(encoding="utf-8").splitlines()]
    planned = {row.words: row for row in PLAN}
    certified = {row["task"] for row in accuracy.added_rows()}
    for line in made:
        row = planned[line["task"]]
        assert (row.epsilon, row.delta) == (line["epsilon"], line["delta"])
        assert len(line["ways"]) == 5
        assert all(len(scores) == row.seeds for scores in line["ways"].values())
        assert line["task"] in certified


def test_a_release_that_verifies_adds_a_row(copied, tmp_path, capsys):
    folder = surveyed_release().save(tmp_path / "release")
    said = ["--task", "made up", "--way", "Stages", "--score", "0.8", "--judged", "nothing", "--command", "pytest"]
    cli.main(["accuracy", "--add", str(folder), *said])
    assert list(accuracy.problems()) == []
    row = accuracy.read()["rows"][-1]
    assert row["task"] == "made up"
    assert row["epsilon"] == json.loads((folder / "certificate.json").read_text())["epsilon"]
    document = json.loads((folder / "certificate.json").read_text())
    (folder / "certificate.json").write_text(json.dumps({**document, "epsilon": document["epsilon"] / 2}))
    with pytest.raises(SystemExit, match="does not verify"):
        cli.main(["accuracy", "--add", str(folder), *said])
    with pytest.raises(SystemExit, match="--add needs --task"):
        cli.main(["accuracy", "--add", str(folder)])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 0.5}, "states another epsilon"),
        ({"score": 1.5}, "no accuracy"),
        ({"certificate": "../accuracy.json"}, "there is no certificate"),
        ({"seconds": 3}, "fields of the schema"),
    ],
)
def test_a_changed_row_is_named(copied, capsys, change, words):
    found = accuracy.read()
    rows = found["rows"]
    rows[-1] = {**rows[-1], **change}
    accuracy.FILE.write_text(json.dumps(found))
    with pytest.raises(SystemExit) as ended:
        cli.main(["accuracy", "--check"])
    assert ended.value.code
    assert words in capsys.readouterr().out
