"""The data of Figure 1: the score of what a search of exactly T runs releases, with 95 % intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from paper import parallel
from paper.data.points import Floats
from paper.experiments import paper_settings as e
from paper.simulate import worlds
from paper.simulate.paths import Method

ADAPTIVE, UNIFORM = 400, 10_000  # runs, as in the paper
LONGEST = {"MNIST": 300, "CIFAR-10": 100, "federated": 100}


def curve(task: str, noise_multiplier: float, method: Method) -> Floats:
    """(runs, T) actual scores."""
    world = {
        "MNIST": lambda: worlds.mnist(noise_multiplier),
        "CIFAR-10": lambda: worlds.cifar(noise_multiplier),
        "CIFAR-10, real coarse grid": lambda: worlds.cifar_coarse(noise_multiplier),
        "federated": worlds.federated,
    }[task]()
    runs = UNIFORM if method.sampler is None else ADAPTIVE
    return e.by_length(world, method, runs, LONGEST[task.split(",")[0]], 21)


def figure1() -> dict[str, Any]:
    """Three panels, and CIFAR-10 once more on the grid that was really trained."""
    cells = [("MNIST", sigma, method) for sigma, method in e.MNIST]
    cells += [(task, s, method) for task in ("CIFAR-10", "CIFAR-10, real coarse grid") for s, method in e.CIFAR]
    cells += [("federated", 1.0, method) for method in e.FEDERATED]
    found = parallel.each([(curve, cell) for cell in cells])
    panels: dict[str, Any] = {}
    for (task, _, method), values in zip(cells, found, strict=True):
        loss = task == "federated"
        shown = _lengths(values.shape[1])
        panel = panels.setdefault(task, {"score": "loss" if loss else "accuracy", "T": shown.tolist(), "rows": {}})
        panel["rows"][method.name] = e.interval((-values if loss else values)[:, shown - 1])
    extra = panels.pop("CIFAR-10, real coarse grid")
    return {"runs": {"adaptive": ADAPTIVE, "Uniform": UNIFORM}, "panels": panels, "CIFAR-10, real coarse grid": extra}


def _lengths(longest: int) -> Any:
    return np.unique(np.geomspace(1, longest, 40).round().astype(int))
