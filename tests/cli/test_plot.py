"""The command plot: every kind of picture from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.report_world import study, surveyed_release
from typer.testing import CliRunner

from dphypo.cli.app import app

RUN = CliRunner()
PURE = ["--event", "pure", "--run-epsilon", "1"]


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
    [
        (["runs", *PURE], "mean number of runs"),
        (["band", *PURE, "--mean", "5"], "C of the band (1/C, C)"),
        (["noise", "--event", "laplace", "--noise-multiplier", "2", "--mean", "5"], "noise multiplier σ"),
        (["density", "--band", "0.5", "2", "--rule", "kl"], "2 × prior"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_costs_and_densities(arguments: list[str], words: str, tmp_path: Path) -> None:
    assert words in drawn(tmp_path / "a.svg", *arguments)


@pytest.mark.parametrize("kind", ["profile", "history", "slices", "importance"])
def test_a_saved_release(kind: str, folder: Path, tmp_path: Path) -> None:
    assert "<svg" in drawn(tmp_path / "a.svg", kind, str(folder))


def test_contours_of_a_saved_release(folder: Path, tmp_path: Path) -> None:
    assert "lr (log scale)" in drawn(tmp_path / "a.svg", "contour", str(folder), "lr", "act")
    done = RUN.invoke(app, ["plot", "history", str(folder), "--survey", "2", "--out", str(tmp_path / "b.svg")])
    assert "--survey 2 is not there: the release has 1 surveys" in str(done.exception)


def test_a_frontier_from_a_file(tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps([{"label": "survey", "epsilon": 8, "compute": 3, "score": 0.9}]))
    assert "best at ε = 8" in drawn(tmp_path / "a.svg", "frontier", str(rows))
    plan = tmp_path / "plan.json"
    design = {"design": "no tuning", "compute": 1, "expected_score": 0.8}
    plan.write_text(json.dumps({"epsilon": 4, "designs": [design, design | {"expected_score": None}]}))
    svg = drawn(tmp_path / "a.svg", "frontier", str(rows), str(plan))
    assert "best at ε = 4" in svg
    assert "no tuning" in svg
    rows.write_text("{}")
    done = RUN.invoke(app, ["plot", "frontier", str(rows), "--out", str(tmp_path / "a.svg")])
    assert "is not a list of objects" in str(done.exception)


def test_the_curators_picture(tmp_path: Path) -> None:
    with study(1, tmp_path / "study.db") as one:
        one.run(progress=False)
    assert "SECRET" in drawn(tmp_path / "a.svg", "curator", str(tmp_path / "study.db"))
    assert "lr (log scale)" in drawn(tmp_path / "a.svg", "curator", str(tmp_path / "study.db"), "--slices")
