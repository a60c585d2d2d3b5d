"""Equal budgets: the adaptive arm's noise calibrated so that both arms cost the same, and uniform given more runs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from scipy.optimize import brentq, newton

from dphypo import account
from dphypo.laws import Geometric, Law
from paper import parallel
from paper.experiments import budgets
from paper.experiments import paper_settings as e
from paper.simulate.adaptive import simulated
from paper.simulate.paths import UNIFORM
from paper.simulate.task import TASKS
from paper.simulate.uniform import expected

# Simulated searches by γ: short ones cost less and differ more. On MNIST, with score noise 0.1, long ones differ too.
RUNS = dict(zip(e.GAMMAS, (150, 150, 200, 300, 500, 900, 900, 900), strict=True))
RUNS_MNIST = dict(zip(e.GAMMAS, (300, 300, 300, 400, 600, 900, 900, 900), strict=True))
SEED = 31
MOST = 1e6  # runs that uniform search may have at most
# Bounds by which budgets are equal. Of the federated task the paper states no budget.
BOUNDS = {
    "MNIST": (budgets.SHARPEST, budgets.PAPER),
    "CIFAR-10": (budgets.SHARPEST, budgets.PAPER),
    "federated": (budgets.SHARPEST,),
}


def comparison() -> dict[str, Any]:
    """For each task, band, bound and γ: ε of the uniform arm, the adaptive arm's noise for that ε, scores at equal γ.

    Compute is equal in expectation: all arms have the same law of T. "uniform, more runs" trains with the adaptive
    arm's noise instead and spends the rest of ε on more runs.
    """
    arms = [(task, arm, bound) for task, bounds in BOUNDS.items() for bound in bounds for arm in budgets.ARMS[task]]
    arms = [arm for arm in arms if arm[1] != "Uniform"]
    rows = parallel.each([(row, (*arm, gamma)) for gamma in e.GAMMAS for arm in arms])
    return {
        "runs": {"MNIST": RUNS_MNIST, "others": RUNS},
        "rows": sorted(rows, key=lambda found: arms.index((found["task"], found["arm"], found["bound"]))),
    }


def row(name: str, arm: str, bound: str, gamma: float) -> dict[str, Any]:
    """One comparison."""
    task, law = TASKS[name], Geometric(gamma=gamma)
    uniform_noise, _ = budgets.ARMS[name]["Uniform"]
    noise, band = budgets.ARMS[name][arm]
    uniform, printed = (budgets.cost(task, s, law, b, bound) for s, b in ((uniform_noise, UNIFORM), (noise, band)))
    if abs(uniform - printed) > 0.05:
        near = 1.05 * noise if printed > uniform else 0.98 * noise
        noise = newton(lambda s: budgets.cost(task, s, law, band, bound) - uniform, x0=noise, x1=near, tol=3e-4)
    world, sign = task.world(noise), -1 if task.loss else 1
    more = _more_runs(name, uniform, noise, bound, law)
    result = {
        "task": name,
        "score": task.kind,
        "arm": arm,
        "bound": bound,
        "gamma": gamma,
        "epsilon": round(uniform, 4),
        "epsilon of the paper's adaptive arm": round(printed, 4),
        "adaptive noise": round(noise, 4),
        "Uniform": round(sign * expected(task.world(uniform_noise), law), 5),
        "uniform, more runs": {"mean runs": round(more.mean, 1), "mean": round(sign * expected(world, more), 5)},
    }
    count = (RUNS_MNIST if name == "MNIST" else RUNS)[gamma]
    for method in (e.PAPER, e.OURS):
        found = simulated(world, replace(method, band=band), law, count, SEED)
        result[method.name] = {**found, "mean": sign * found["mean"]}
    return result


def _more_runs(name: str, epsilon: float, noise: float, bound: str, law: Law) -> Law:
    """The geometric law of largest mean, up to :data:`MOST`, with which uniform search costs ``epsilon``."""
    search = account(TASKS[name].event(noise), law, UNIFORM)

    def excess(log_mean: float) -> float:
        return budgets.epsilon(replace(search, runs=Geometric(mean=math.exp(log_mean))), bound) - epsilon

    low, high, step = math.log(law.mean), math.log(MOST), 0.01
    return Geometric(mean=MOST if excess(high) <= 0 else math.exp(brentq(excess, low, high, xtol=step) - step))
