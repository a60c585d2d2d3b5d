"""The examples in the docstrings of ``paper``."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

MODULES = ["data", "event", "experiments", "pack", "points", "project", "report.markdown", "task", "uniform", "worlds"]
MODULES += ["staged.costs", "staged.task", "study.designs", "train.jobs", "train.network"]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    if name == "train.network":
        pytest.importorskip("torch")
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testmod(import_module(f"paper.{name}"), optionflags=flags)
    assert result.attempted > 0
    assert result.failed == 0
