"""What the arms of the experiments cost: ε by the paper's theorem and by the sharpest bound, δ = 1e-5."""

from __future__ import annotations

from typing import Any

import dp_accounting
import numpy as np

from dphypo import account
from dphypo.accounting import Guarantee
from dphypo.accounting.theorems import theorem1_2_paper as theorems
from dphypo.band import Band
from dphypo.laws import Geometric, Law
from paper import parallel
from paper.data.points import Floats
from paper.experiments import paper_settings as e
from paper.simulate.noise_between import noise_between
from paper.simulate.paths import UNIFORM
from paper.simulate.task import TASKS, Task

DELTA = 1e-5
SHARPEST, PAPER = "sharpest", "paper's theorem"  # names of the two bounds

# ε that the paper states for both arms of an experiment, whatever γ is.
STATED = {"MNIST": 15.0, "CIFAR-10": 12.0}
# Noise multiplier and band of every arm.
ARMS = {
    "MNIST": {"Uniform": (0.64, UNIFORM), "GP": (0.71, e.WIDE)},
    "CIFAR-10": {"Uniform": (0.6, UNIFORM), "GP": (0.65, e.WIDE)},
    "federated": {"Uniform": (1.0, UNIFORM), **{f"C = {C:g}": (1.0, Band(1 / C, C)) for C in e.WIDTHS}},
}


def both(event: dp_accounting.DpEvent, runs: Law, band: Band) -> dict[str, float]:
    """ε by Theorem 1 of the paper and by the smallest of all bounds."""
    bounds = account(event, runs, band).bounds(DELTA)
    return {PAPER: round(bounds["paper"], 4), SHARPEST: round(min(bounds.values()), 4)}


def table() -> dict[str, Any]:
    """ε of every arm at every γ."""
    result: dict[str, Any] = {"delta": DELTA, "gamma": list(e.GAMMAS), "stated by the paper": STATED}
    arms = [(task, name) for task, arms in ARMS.items() for name in arms]
    for (task, name), found in zip(arms, parallel.each([(arm_costs, arm) for arm in arms]), strict=True):
        result.setdefault(task, {})[name] = found
    return result


def arm_costs(task: str, name: str) -> list[dict[str, float]]:
    """ε of one arm at every γ."""
    noise, band = ARMS[task][name]
    return [both(TASKS[task].event(noise), Geometric(gamma=gamma), band) for gamma in e.GAMMAS]


def cost(task: Task, noise_multiplier: float, runs: Law, band: Band, bound: str = SHARPEST) -> float:
    """ε of a search; the sharpest by the profile alone, which is the smallest of the bounds here."""
    return epsilon(account(task.event(noise_multiplier), runs, band), bound)


def epsilon(guarantee: Guarantee, bound: str) -> float:
    """ε by one of the two bounds alone."""
    if bound == SHARPEST:
        return guarantee.bounds(DELTA)["profile"]
    found = theorems.epsilon(guarantee.run, guarantee.runs, guarantee.band, DELTA)
    assert found is not None
    return found


def curve(task: Task, runs: Law, band: Band, bound: str = SHARPEST) -> Floats:
    """ε at each of the task's levels of noise."""
    return np.array([cost(task, float(level), runs, band, bound) for level in task.levels])


def noise_for(task: Task, epsilon: float, costs: Floats) -> float:
    """The noise multiplier at which a search with these costs at the task's levels costs ``epsilon``; nan outside."""
    if not costs[-1] <= epsilon <= costs[0]:
        return float("nan")
    return noise_between(task.levels, costs, epsilon)
