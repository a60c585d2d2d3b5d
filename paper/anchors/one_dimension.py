"""One dimension less: surveys of the learning rate alone, at a fixed small clipping norm, beside surveys of both.

Simulated on the committed landscapes of networks trained from pixels (SGD, noise matched). Regret is the best cell's
score in one run that spends all of ε, less that of the full run at what was picked, at the noise that tuning leaves.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from paper.simulate.staged_task import TASKS
from paper.simulate.survey_costs import noise
from paper.simulate.survey_optimiser import Optimiser, Surveys, even
from paper.simulate.surveys import STEPS

FILE = Path(__file__).parents[1] / "results" / "anchors" / "one-dimension.json"
SEARCHES, SEED, SCORES = 400, 43, 0.003  # noise of a private score on some thousands of records
PLANS = {
    "rate and clipping norm, 20 runs of 0.1": (20, 0.1, None),
    "rate and clipping norm, 20 runs of 0.03": (20, 0.03, None),
    "rate, 8 runs of 0.1": (8, 0.1, 0),
    "rate, 8 runs of 0.03": (8, 0.03, 0),
    "rate at the second smallest norm, 8 runs of 0.1": (8, 0.1, 1),
}


def regret(name: str, epsilon: float, count: int, fraction: float, column: int | None) -> dict[str, Any]:
    """Of simulated surveys with ``count`` runs; ``column`` is the place of the fixed clipping norm on its axis."""
    task = TASKS[name]
    steps = task.steps(fraction)
    alone, level = noise(STEPS[name], epsilon), noise(STEPS[name], epsilon, steps, count)
    short = task.trained(steps).at(level * (task.full / steps) ** 0.5)
    world = task.world(level)
    cells = np.arange(len(short))
    if column is not None:
        cells = cells.reshape(len(task.grid.first), -1)[:, column]
    features = world.features[cells] if column is None else world.features[cells][:, :1]
    random, start = np.random.default_rng(SEED), count // 2
    shift = random.random((SEARCHES, features.shape[1]))
    surveys = Surveys(features, Optimiser(start=start), SEARCHES)
    for number in range(count):
        chosen = even(features, number, shift) if number < start else surveys.next_cells()
        surveys.observe(chosen, short[cells][chosen] + SCORES * random.standard_normal(SEARCHES))
    lost = task.world(alone).mean.max() - world.mean[cells][surveys.best_mean()]
    return {
        "task": name, "epsilon": epsilon, "price": f"{100 * (level / alone - 1):.2f} %",
        "compute": round(1 + count * steps / task.full, 2), "regret": round(float(lost.mean()), 4),
        "half": round(1.96 * float(lost.std()) / SEARCHES**0.5, 4),
        "worst twentieth": round(float(np.quantile(lost, 0.95)), 4),
    }  # fmt: skip


def rows() -> list[dict[str, Any]]:
    """Both tasks at two budgets."""
    found = []
    for name in ("MNIST", "CIFAR-10"):
        for epsilon in (2.0, 4.25):
            for words, (count, fraction, column) in PLANS.items():
                found.append({"plan": words, **regret(name, epsilon, count, fraction, column)})
    return found


def write() -> None:
    """Keep the rows where the page finds them."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps(rows(), indent=1) + "\n")
