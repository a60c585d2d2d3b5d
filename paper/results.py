"""Every result: what makes it, and where it is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"

# Name of the result -> the module of paper.experiments and the function that make it. Modules load when used: some
# need extras.
MAKERS = {
    "table1": ("tables", "table1"),
    "table2": ("tables", "table2"),
    "figure1": ("figure1", "figure1"),
    "budgets": ("budgets", "table"),
    "equal": ("equal", "comparison"),
    "frontier": ("frontier", "frontier"),
    "history-frontier": ("history_frontier", "frontier"),
    "design": ("design", "table"),
    "staged": ("staged", "table"),
    "surveys": ("surveys", "table"),
    "trained-surveys": ("trained_surveys", "measured"),
    "transfer": ("transfer", "measured"),
    "digits": ("digits", "measured"),
    "fits": ("fits", "comparison"),
    "validation": ("validate", "validation"),
    "speed": ("speed", "ratios"),
    "trainer": ("trainer", "measured"),
    "studies": ("studies", "measured"),
}


def make(name: str) -> dict[str, Any]:
    """Compute a result and write it."""
    module, function = MAKERS[name]
    maker: Callable[[], dict[str, Any]] = getattr(import_module(f"paper.experiments.{module}"), function)
    result = maker()
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def load(name: str) -> dict[str, Any]:
    """A result as it was last written."""
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return content
