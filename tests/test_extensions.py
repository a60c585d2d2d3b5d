"""Four extensions, each one file outside the package: they conform and can be used."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.executor_conformance import check_executor
from support.projection_conformance import check_projection

FOLDER = Path(__file__).parents[1] / "examples" / "extensions"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["near_the_best_rule", "noisy_mean_mechanism"])
def test_a_rule_and_a_mechanism_pass_the_public_checks(name: str) -> None:
    command = [sys.executable, "-W", "error", str(FOLDER / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "conforms" in done.stdout


def load(name: str) -> dict[str, Any]:
    return runpy.run_path(str(FOLDER / f"{name}.py"))


def test_a_projection_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)  # a copy is pickled
    from halfway_projection import Halfway

    check_projection(Halfway())


def test_an_executor_conforms() -> None:
    check_executor(lambda: load("latest_first_executor")["LatestFirst"], deaths=False, megabytes=1)
