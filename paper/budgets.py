"""What the arms of the experiments cost: ε by the paper's theorem and by the sharpest bound, δ = 1e-5."""

from __future__ import annotations

from typing import Any

import dp_accounting
import numpy as np
from scipy.interpolate import PchipInterpolator

from dphypo import account
from dphypo.band import Band
from dphypo.runs import Geometric, Law
from paper import experiments as e
from paper.event import dp_sgd
from paper.points import Floats
from paper.simulate import UNIFORM

DELTA = 1e-5

# ε that the paper states for both arms of an experiment, whatever γ is.
STATED = {"MNIST": 15.0, "CIFAR-10": 12.0}
ARMS = {
    "MNIST": {"Uniform": (60_000, 0.64, UNIFORM), "GP": (60_000, 0.71, e.WIDE)},
    "CIFAR-10": {"Uniform": (50_000, 0.6, UNIFORM), "GP": (50_000, 0.65, e.WIDE)},
}
LEVELS = np.geomspace(0.48, 3.3, 9)  # noise multipliers between which ε is interpolated


def both(event: dp_accounting.DpEvent, runs: Law, band: Band) -> dict[str, float]:
    """ε by Theorem 1 of the paper and by the smallest of all bounds."""
    bounds = account(event, runs, band).bounds(DELTA)
    return {"paper's theorem": round(bounds["paper"], 4), "sharpest": round(min(bounds.values()), 4)}


def table() -> dict[str, Any]:
    """ε of every arm at every γ, and of the federated task's bands."""
    result: dict[str, Any] = {"delta": DELTA, "gamma": list(e.GAMMAS), "stated by the paper": STATED}
    laws = [Geometric(gamma=gamma) for gamma in e.GAMMAS]
    for task, arms in ARMS.items():
        result[task] = {
            name: [both(dp_sgd(records, sigma), law, band) for law in laws]
            for name, (records, sigma, band) in arms.items()
        }
    event = federated_event()
    result["federated"] = {
        name: [both(event, law, band) for law in laws]
        for name, band in {"Uniform": UNIFORM, **{f"C = {C}": Band.symmetric(C) for C in (1.25, 1.33, 1.5)}}.items()
    }
    return result


def federated_event() -> dp_accounting.DpEvent:
    """One run of the federated task: clients are the records."""
    one = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.0))
    return dp_accounting.SelfComposedDpEvent(one, 100)


def curve(records: int, runs: Law, band: Band, bound: str = "sharpest") -> Floats:
    """ε at each of :data:`LEVELS`."""
    if bound == "sharpest":
        return np.array([account(dp_sgd(records, s), runs, band).profile_epsilon(DELTA) for s in LEVELS])
    return np.array([account(dp_sgd(records, s), runs, band).bounds(DELTA)["paper"] for s in LEVELS])


def noise_for(epsilon: float, costs: Floats) -> float:
    """The noise multiplier at which a search with these costs at :data:`LEVELS` costs ``epsilon``; nan outside them."""
    if not costs[-1] <= epsilon <= costs[0]:
        return float("nan")
    return float(np.exp(PchipInterpolator(np.log(costs[::-1]), np.log(LEVELS[::-1]))(np.log(epsilon))))
