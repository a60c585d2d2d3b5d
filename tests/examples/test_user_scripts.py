"""The scripts of five users run as they stand, are short, and say what they promise."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from dphypo import verify

FOLDER = Path(__file__).parents[2] / "examples" / "users"


def run(name: str, *arguments: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(FOLDER / name), run_name="__main__")


def test_all_are_known_and_each_is_short() -> None:
    files = [path for path in FOLDER.iterdir() if path.suffix in (".py", ".sh")]
    assert sorted(path.name for path in files) == [
        "frames.py",
        "jax_user.py",
        "officer.sh",
        "opacus_after.py",
        "opacus_before.py",
        "pytorch.py",
        "researcher.py",
        "trials.py",
    ]
    assert all(len(path.read_text(encoding="utf-8").splitlines()) < 70 for path in files)


@pytest.mark.slow
def test_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("pytorch.py", tmp_path, monkeypatch=monkeypatch)
    first = capsys.readouterr().out
    assert "The first picture shows a" in first
    assert verify(tmp_path / "release")


@pytest.mark.slow
def test_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("jax_user.py", tmp_path, monkeypatch=monkeypatch)
    assert "The first picture shows a" in capsys.readouterr().out
    assert verify(tmp_path / "release")


@pytest.mark.slow
def test_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("frames.py", tmp_path, monkeypatch=monkeypatch)
    shown = capsys.readouterr().out
    assert "columns ['age', 'work']" in shown
    assert "tune: ε = " in shown


@pytest.mark.slow
def test_trials(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("trials.py", monkeypatch=monkeypatch)
    shown = capsys.readouterr().out
    assert "survey: mean" in shown
    assert "between 0.5 and 2 times the prior" in shown


def test_researcher(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("researcher.py", monkeypatch=monkeypatch)
    assert "'history': " in capsys.readouterr().out


@pytest.mark.slow
def test_officer(tmp_path: Path) -> None:
    command = tmp_path / "dphypo"  # the command of this interpreter, whatever else is installed
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dphypo "$@"\n')
    command.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    script = ["sh", str(FOLDER / "officer.sh"), str(tmp_path)]
    done = subprocess.run(script, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path})
    assert done.returncode == 0, done.stderr
    for words in ("noise multiplier", "What would break it", "yes", "for 2 certificates together", "first: ε = "):
        assert words in done.stdout
