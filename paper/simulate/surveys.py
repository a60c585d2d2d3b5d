"""Simulated surveys on the committed landscapes: thousands of them, all searches at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paper.data.points import Floats
from paper.simulate.staged_task import TASKS, StagedTask
from paper.simulate.survey_costs import Steps, noise
from paper.simulate.survey_optimiser import Cells, Optimiser, Surveys, even

STEPS = {"MNIST": Steps(256 / 60_000, 2344), "CIFAR-10": Steps(256 / 50_000, 1954), "federated": Steps(0.1, 100)}


@dataclass(frozen=True)
class Plan:
    """``count`` short runs of ``fraction`` of the steps with ``factor`` times the matched noise, then a full run."""

    count: int = 20
    fraction: float = 0.1
    factor: float = 1.0
    optimiser: Optimiser = Optimiser()  # noqa: RUF009 - a frozen value
    pick: str = "mean"  # "mean", "visited mean" or "score"
    group: int = 1  # so many runs are proposed at a time, after an even design that is made at once


def short_steps(task: StagedTask, fraction: float) -> int:
    """The trained length nearest to a fraction."""
    return task.steps(fraction)


def surveyed(name: str, plan: Plan, epsilon: float, searches: int, seed: int) -> tuple[Floats, float]:
    """Actual full-run scores of what ``searches`` surveys pick, and σ of the full run."""
    task = TASKS[name]
    steps = short_steps(task, plan.fraction)
    level = noise(STEPS[name], epsilon, steps, plan.count, plan.factor)
    short = task.trained(steps).at(level * plan.factor * (task.full / steps) ** 0.5)
    full = task.world(level).mean
    return full[picked(task.world(level).features, short, task.noise, plan, searches, seed)], level


def picked(features: Floats, mean: Floats, deviation: float, plan: Plan, searches: int, seed: int) -> Cells:
    """Run the surveys on a landscape of short runs; the cell that each picks for the full run."""
    random = np.random.default_rng(seed)
    shift = random.random((searches, features.shape[1]))
    surveys = Surveys(features, plan.optimiser, searches)
    start = min(plan.optimiser.start, plan.count)
    for t in range(start):
        cells = even(features, t, shift)
        surveys.observe(cells, mean[cells] + deviation * random.standard_normal(searches))
    for t in range(start, plan.count, plan.group):
        for cells in surveys.next_group(min(plan.group, plan.count - t)):
            surveys.observe(cells, mean[cells] + deviation * random.standard_normal(searches))
    if plan.pick == "score":
        return surveys.best_score()
    return surveys.best_mean(visited=plan.pick == "visited mean")
