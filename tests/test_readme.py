"""What the README shows is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from dphypo.cli._app import app

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert "differentially private" in capsys.readouterr().out


def test_the_command_prints_what_it_says():
    command, expected = re.search(r"\$ dphypo (.*?--delta 1e-5)\n(.*?)```", README, re.DOTALL).groups()
    result = CliRunner().invoke(app, shlex.split(command.replace("\\\n", " ")))
    assert result.exit_code == 0

    def words(text: str) -> list[str]:
        return re.sub(r"(\d+\.\d\d)\d+", r"\1", text).split()  # to two decimals

    assert words(result.stdout) == words(expected)


def test_every_link_to_a_file_has_one():
    for target in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (Path(__file__).parent.parent / target).exists(), target
