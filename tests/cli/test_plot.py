"""The command plot."""

from __future__ import annotations

from pathlib import Path

from support.report_world import surveyed_release
from typer.testing import CliRunner

from dphypo.cli.app import app


def test_the_profile_of_a_saved_release(tmp_path: Path) -> None:
    folder, out = surveyed_release().save(tmp_path / "release"), tmp_path / "a.svg"
    done = CliRunner().invoke(app, ["plot", str(folder), "--out", str(out)])
    assert done.exit_code == 0, (done.output, done.exception)
    assert done.stdout.strip() == str(out)
    assert "δ that goes with" in out.read_text(encoding="utf-8")
    assert "explicit attack (lower bound)" in out.read_text(encoding="utf-8")
