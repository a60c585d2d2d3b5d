"""Six things of one's own, each one file outside the package: they conform, and everything finds them by name."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dphypo
from dphypo import laws
from dphypo.accounting import PureDp, account
from dphypo.band import problem
from dphypo.executors import executors
from dphypo.journal.store import open_store

FOLDER = Path(__file__).parents[1] / "examples" / "extensions"
FILES = sorted(FOLDER.glob("*.py"))


@pytest.mark.slow
def test_each_of_the_six_passes_its_conformance_suite() -> None:
    """In a process of their own, one after the other: each registers itself."""
    code = "import runpy, sys\nfor file in sys.argv[1:]: runpy.run_path(file, run_name='__main__')"
    command = [sys.executable, "-W", "error", "-c", code, *map(str, FILES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(FILES) == done.stdout.count("conforms") == 6


def load(name: str) -> dict[str, Any]:
    return runpy.run_path(str(FOLDER / f"{name}.py"))


def test_a_law_is_read_back_and_verified() -> None:
    law = load("two_point_law")["TwoPoint"](3, 20)
    assert laws.from_dict(law.to_dict()).to_dict() == law.to_dict()
    certificate = account(PureDp(0.1), law).certificate(1e-6)
    assert dphypo.verify(certificate)


def test_a_projection_an_executor_and_a_store_are_found_by_name(tmp_path: Path) -> None:
    halfway = load("halfway_projection")["Halfway"]
    assert isinstance(problem.named_projection("halfway"), halfway)
    load("latest_first_executor")
    assert executors.find("latest_first") is not None
    load("folder_store")
    store = open_store(f"folder://{tmp_path}/secret")
    store.close()
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o700
