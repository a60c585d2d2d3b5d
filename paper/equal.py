"""Equal budgets: the adaptive arm's noise calibrated so that both arms cost the same, and uniform given more runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from dphypo import account
from dphypo.runs import Geometric, Law
from paper import budgets, parallel, worlds
from paper import experiments as e
from paper.event import dp_sgd
from paper.frontier import simulated
from paper.simulate import UNIFORM
from paper.uniform import expected

RUNS = 500
# Task: records, noise multipliers of the uniform and the adaptive arm, and the landscape at any noise multiplier.
TASKS = {"MNIST": (60_000, 0.64, 0.71, worlds.mnist), "CIFAR-10": (50_000, 0.6, 0.65, worlds.cifar_coarse)}
GAMMAS = (0.002, 0.005, 0.01, 0.02, 0.03)


def comparison() -> dict[str, Any]:
    """For each task, bound and γ: ε of the uniform arm, the adaptive arm's noise for that ε, accuracies at equal γ.

    Compute is equal in expectation: all arms have the same law of T. "uniform, more runs" trains with the adaptive
    arm's noise instead and spends the rest of ε on more runs.
    """
    rows = [_row(task, bound, gamma) for task in TASKS for bound in ("sharpest", "paper's theorem") for gamma in GAMMAS]
    calls = [
        (simulated, (TASKS[row["task"]][3](row["adaptive noise"]), method, Geometric(gamma=row["gamma"]), RUNS, 31))
        for row in rows
        for method in (e.PAPER, e.OURS)
    ]
    found = iter(parallel.each(calls))
    for row in rows:
        for method in (e.PAPER, e.OURS):
            row[method.name] = next(found)
    return {"runs": RUNS, "rows": rows}


def _row(task: str, bound: str, gamma: float) -> dict[str, Any]:
    records, uniform_noise, adaptive_noise, world = TASKS[task]
    law = Geometric(gamma=gamma)
    key = "sharpest" if bound == "sharpest" else "paper"
    uniform = budgets.both(dp_sgd(records, uniform_noise), law, UNIFORM)[bound]
    printed = budgets.both(dp_sgd(records, adaptive_noise), law, e.WIDE)[bound]
    noise = adaptive_noise
    if abs(uniform - printed) > 0.05:
        noise = budgets.noise_for(uniform, budgets.curve(records, law, e.WIDE, key))
    more = _more_runs(uniform, records, noise, key)
    return {
        "task": task,
        "bound": bound,
        "gamma": gamma,
        "epsilon": uniform,
        "epsilon of the paper's adaptive arm": printed,
        "adaptive noise": round(noise, 4),
        "Uniform": round(expected(world(uniform_noise), law), 5),
        "uniform, more runs": {
            "mean runs": round(more.mean, 1),
            "mean": round(expected(world(noise), more), 5),
        },
    }


def _more_runs(epsilon: float, records: int, noise: float, bound: str) -> Law:
    """The geometric law of largest mean, up to a million, with which uniform search costs ``epsilon``."""
    event = dp_sgd(records, noise)
    low, high = 0.0, np.log(1e6)
    for _ in range(12):
        middle = 0.5 * (low + high)
        guarantee = account(event, Geometric(mean=float(np.exp(middle))), UNIFORM)
        cost = (
            guarantee.profile_epsilon(budgets.DELTA)
            if bound == "sharpest"
            else guarantee.bounds(budgets.DELTA)["paper"]
        )
        low, high = (middle, high) if cost <= epsilon else (low, middle)
    return Geometric(mean=float(np.exp(low)))
