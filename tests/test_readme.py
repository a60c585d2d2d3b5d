"""What the README shows is what happens."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dphypo.cli import app

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("blocks", [1, pytest.param(None, marks=pytest.mark.slow)], ids=["ten lines", "all"])
def test_the_python_examples_run(blocks, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    codes = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, object] = {"__name__": "readme"}
    for code in codes[:blocks]:
        exec(compile(code, "README.md", "exec"), names)
    assert type(names["release"]).__name__ == "Release"
    assert "differentially private" in capsys.readouterr().out


def test_the_command_prints_what_it_says():
    command, expected = re.search(r"\$ dphypo (account .*?--delta 1e-5)\n(.*?)```", README, re.DOTALL).groups()
    result = CliRunner().invoke(app, shlex.split(command.replace("\\\n", " ")))
    assert result.exit_code == 0

    def words(text: str) -> list[str]:
        return re.sub(r"(\d+\.\d\d)\d+", r"\1", text).split()  # to two decimals

    assert words(result.stdout) == words(expected)


@pytest.mark.slow
def test_the_plan_prints_the_rows_that_are_shown():
    command, shown = re.search(r"\$ dphypo (plan [^\n]*)\n(.*?)```", README, re.DOTALL).groups()
    result = CliRunner().invoke(app, shlex.split(command))
    assert result.exit_code == 0
    printed = [line.split() for line in result.stdout.splitlines()]
    for line in shown.strip().splitlines():
        assert line.split() in printed, line


def test_the_accuracies_are_those_that_were_measured():
    folder = Path(__file__).parent.parent / "paper" / "results"
    staged = json.loads((folder / "studies.json").read_text())["staged-study"]
    for arm in ("stages", staged["best uniform arm"], "uniform, geometric T"):
        row = staged["arms"][arm]
        assert f"| 10 | {row['mean']:.3f} ± {row['half']:.3f} | {row['least']:.3f} |" in README
    rows = {
        row["way"]: row
        for row in json.loads((folder / "trained-surveys.json").read_text())["rows"]
        if row["experiment"] == "mnist"
    }
    for way in ("survey, 20 runs of 0.03", "survey, 20 runs of 0.1", "untuned, middle of the space"):
        row = rows[way]
        shown = f"| {row['compute']:.1f} | {row['mean']:.3f} ± {row['half']:.3f} | {row['worst']:.3f} |"
        assert shown in README
    assert f"The best setting reaches {rows['best cell']['mean']:.3f}." in README


def test_it_is_short():
    assert len(README.splitlines()) < 150


def test_every_link_to_a_file_has_one():
    for target in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (Path(__file__).parent.parent / target.partition("#")[0]).exists(), target
