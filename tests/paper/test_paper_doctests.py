"""The examples in the docstrings of ``paper``."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

MODULES = [
    *("data.pack", "data.points", "data.sets"),
    *("simulate.event", "simulate.project", "simulate.staged_costs", "simulate.staged_task", "simulate.survey_costs"),
    *("simulate.task", "simulate.uniform", "simulate.worlds"),
    *("experiments.paper_settings", "experiments.study.designs", "report.markdown"),
    *("train.jobs", "train.network", "train.settings"),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    if name in ("train.network", "train.settings"):
        pytest.importorskip("torch")
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testmod(import_module(f"paper.{name}"), optionflags=flags)
    assert result.attempted > 0
    assert result.failed == 0
