"""The score against compute at fixed ε, and against ε at fixed compute: where adaptivity wins and where it does not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dphypo.band import Band
from dphypo.laws import Geometric, Law, NegativeBinomial
from paper import parallel
from paper.data.points import Floats
from paper.experiments import budgets
from paper.experiments import paper_settings as e
from paper.simulate.adaptive import simulated
from paper.simulate.task import TASKS
from paper.simulate.uniform import expected

NOISE = 0.02  # of a score; the paper's 0.1 is kept for its own tables
RUNS = {5: 5000, 10: 4000, 20: 2400, 50: 700, 100: 400}  # searches, by mean number of runs
SEED = 20261116
MEANS = (5, 10, 20, 50, 100)
EPSILONS = (3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
NARROW = Band(0.85, 1.25)


def concentrated(mean: float) -> Law:
    """A law of T less spread out than the geometric one: negative binomial of shape 8."""
    return NegativeBinomial(8.0, mean=mean)


def geometric(mean: float) -> Law:
    return Geometric(mean=mean)


SEARCHES = {
    "uniform, geometric T": (e.UNIFORM, geometric),
    "uniform, shape 8": (e.UNIFORM, concentrated),
    "paper's GP, (0.75, 2), geometric T": (e.PAPER, geometric),
    "ours, (0.75, 2), shape 8": (e.OURS, concentrated),
    "ours, (0.85, 1.25), shape 8": (replace(e.OURS, band=NARROW), concentrated),
}


def point(task: str, search: str, epsilon: float, mean: float, costs: Floats) -> dict[str, Any]:
    """One search at one ε and compute: its noise multiplier and the score of what it releases."""
    method, law = SEARCHES[search]
    noise = budgets.noise_for(TASKS[task], epsilon, costs)
    row: dict[str, Any] = {"task": task, "search": search, "epsilon": epsilon, "mean runs": mean}
    if math.isnan(noise):
        return {**row, "noise multiplier": None}
    world, sign = TASKS[task].world(noise, NOISE), -1 if TASKS[task].loss else 1
    if method.sampler is None:
        found = {"mean": round(expected(world, law(mean)), 5), "half": 0.0}
    else:
        found = simulated(world, method, law(mean), RUNS[int(mean)], SEED)
    return {
        **row,
        "noise multiplier": round(noise, 4),
        "best of the landscape": round(sign * float(world.mean.max()), 5),
        "mean": sign * found["mean"],
        "half": found["half"],
    }


def line(task: str, search: str, mean: float) -> list[dict[str, Any]]:
    """All ε at one compute."""
    method, law = SEARCHES[search]
    costs = budgets.curve(TASKS[task], law(mean), method.band)
    return [point(task, search, epsilon, mean, costs) for epsilon in EPSILONS]


def frontier() -> dict[str, Any]:
    """Every search at every ε and compute."""
    calls = [(line, (task, search, mean)) for mean in reversed(MEANS) for task in TASKS for search in SEARCHES]
    rows = [row for rows in parallel.each(calls) for row in rows]
    kinds = {name: task.kind for name, task in TASKS.items()}
    return {"score noise": NOISE, "runs": RUNS, "scores": kinds, "rows": sorted(rows, key=_order)}


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    return list(TASKS).index(row["task"]), row["epsilon"], row["mean runs"], list(SEARCHES).index(row["search"])
