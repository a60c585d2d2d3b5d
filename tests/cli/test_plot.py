"""The command plot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.report_world import surveyed_release
from typer.testing import CliRunner

from dphypo.cli import app
from dphypo.errors import FileError


def test_the_profile_of_a_saved_release(tmp_path: Path) -> None:
    folder, out = surveyed_release().save(tmp_path / "release"), tmp_path / "a.svg"
    done = CliRunner().invoke(app, ["plot", str(folder), "--out", str(out)])
    assert done.exit_code == 0, (done.output, done.exception)
    assert done.stdout.strip() == str(out)
    assert "δ that goes with" in out.read_text(encoding="utf-8")
    assert "explicit attack (lower bound)" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "value"), [("one_run", 7), ("bounds", []), ("profile", {"epsilon": 1})])
def test_a_certificate_that_cannot_be_drawn_is_named(name: str, value: object, tmp_path: Path) -> None:
    path = surveyed_release().save(tmp_path / "release") / "certificate.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {name: value}), encoding="utf-8")
    done = CliRunner().invoke(app, ["plot", str(path), "--out", str(tmp_path / "a.svg")])
    assert isinstance(done.exception, FileError), done.exception
    assert "certificate.json" in str(done.exception)
