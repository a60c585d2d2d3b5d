"""The command plot: every kind of picture from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.report_world import study, surveyed_release
from typer.testing import CliRunner

from dphypo.cli.app import app

RUN = CliRunner()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return surveyed_release().save(tmp_path_factory.mktemp("saved") / "release")


def drawn(out: Path, *arguments: str) -> str:
    done = RUN.invoke(app, ["plot", *arguments, "--out", str(out)])
    assert done.exit_code == 0, (done.output, done.exception)
    assert done.stdout.strip() == str(out)
    return out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["profile"], "δ that goes with"), (["survey"], "best so far"), (["survey", "--slices"], "lr (log scale)")],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_saved_release(arguments: list[str], words: str, folder: Path, tmp_path: Path) -> None:
    assert words in drawn(tmp_path / "a.svg", arguments[0], str(folder), *arguments[1:])


def test_a_survey_that_is_not_there(folder: Path, tmp_path: Path) -> None:
    done = RUN.invoke(app, ["plot", "survey", str(folder), "--number", "2", "--out", str(tmp_path / "b.svg")])
    assert "--number 2 is out of range: surveys in this release: 1" in str(done.exception)


def test_the_curators_picture(tmp_path: Path) -> None:
    with study(1, tmp_path / "study.db") as one:
        one.run(progress=False)
    assert "SECRET" in drawn(tmp_path / "a.svg", "curator", str(tmp_path / "study.db"))
    assert "lr (log scale)" in drawn(tmp_path / "a.svg", "curator", str(tmp_path / "study.db"), "--slices")
