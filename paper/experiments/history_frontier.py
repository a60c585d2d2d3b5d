"""Does adaptivity pay with a rule that sees only the history? Equal ε, equal compute, the best law of T for each side.

Uniform searches are charged by Theorem 4, adaptive ones by Theorem H, with the runs that the rule draws from the prior
(``GaussianProcess.start``) counted as such. A black box, of which no cheap version exists, has only these two choices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from dphypo import account
from dphypo.accounting import Guarantee
from dphypo.accounting.solve import smallest
from dphypo.accounting.theorems.theorem_h_history_only import Effort, HistoryProfile
from dphypo.band import Band
from dphypo.laws import Geometric, Law, NegativeBinomial, Poisson
from dphypo.planning import noise_between
from paper import parallel
from paper.data.points import Floats
from paper.experiments import paper_settings as e
from paper.experiments.budgets import DELTA
from paper.simulate.adaptive import simulated
from paper.simulate.task import TASKS
from paper.simulate.uniform import expected

NOISE, SEED = 0.02, 20261117
EPSILONS, RUNS = (4.25, 8.0), {5: 2000, 10: 1200, 20: 600}  # ε; simulated searches by mean number of runs
LEVELS = {"MNIST": slice(0, 5), "federated": slice(1, 7)}  # of a task's noise multipliers: those that these ε need
LAWS: dict[str, Callable[[float], Law]] = {
    "geometric": lambda mean: Geometric(mean=mean),
    "shape 8": lambda mean: NegativeBinomial(8.0, mean=mean),
    "Poisson": lambda mean: Poisson(mean),
}
UNIFORM = Band(1.0, 1.0)
LAGS, LAGGED = (0, 1, 3), ("shape 8", Band(0.25, 8.0), 10, 8.0)  # law, band, mean number of runs and ε
BANDS = (Band(0.75, 2.0), Band(0.5, 4.0), Band(0.25, 8.0), Band(0.1, 20.0))
SEARCHES = [("Poisson", band) for band in (UNIFORM, *BANDS)]
SEARCHES += [("shape 8", band) for band in (UNIFORM, BANDS[0], BANDS[2])]
SEARCHES += [("geometric", band) for band in (UNIFORM, BANDS[0])]  # far behind with few runs: no further bands
# A coarser lattice than a certificate's: quick, still an upper bound, and about 0.04 larger.
EFFORT = Effort(atoms=200, coarse_atoms=64, cells=24, tail=1e-8)


def cost(guarantee: Guarantee, first_from_prior: int) -> float:
    """ε by Theorem 4, or by Theorem H if there is a band: the larger of both directions."""
    if guarantee.band.C == 1:
        return guarantee.profile_epsilon(DELTA)
    remove, add = guarantee.run.profiles
    found = 0.0
    for forward, reverse in ((remove, add), (add, remove)):
        one = HistoryProfile(
            forward, reverse, guarantee.runs, guarantee.band, first_from_prior=first_from_prior, effort=EFFORT
        )
        found = max(found, smallest(one.delta_at, DELTA, top=one.top))
    return found


@cache
def costs(task: str, law: str, band: Band, mean: float) -> Floats:
    """ε at the task's levels of noise."""
    levels = TASKS[task].levels[LEVELS[task]]
    assert e.OURS.sampler is not None
    first = e.OURS.sampler.start
    found = [cost(account(TASKS[task].event(float(level)), LAWS[law](mean), band), first) for level in levels]
    return np.array(found)


def noise_for(task: str, law: str, band: Band, mean: float, epsilon: float) -> float:
    """The noise multiplier at which the search costs ε; nan if no trained one does."""
    found, levels = costs(task, law, band, mean), TASKS[task].levels[LEVELS[task]]
    known = np.isfinite(found)  # little noise may ask for a finer lattice
    if not found[known][-1] <= epsilon <= found[known][0]:
        return math.nan
    return noise_between(levels[known], found[known], epsilon)


def line(task: str, law: str, band: Band, mean: int) -> list[dict[str, Any]]:
    """One kind of search at one compute, at every ε: its noise multiplier and the score of what it releases."""
    rows, sign = [], -1 if TASKS[task].loss else 1
    for epsilon in EPSILONS:
        noise = noise_for(task, law, band, mean, epsilon)
        row = {"task": task, "law": law, "band": [band.c, band.C], "epsilon": epsilon, "mean runs": mean}
        if math.isnan(noise):
            rows.append({**row, "noise multiplier": None})
            continue
        world = TASKS[task].world(noise, NOISE)
        if band.C == 1:
            found = {"mean": round(expected(world, LAWS[law](mean)), 5), "half": 0.0}
        else:
            found = simulated(world, replace(e.OURS, band=band), LAWS[law](mean), RUNS[mean], SEED)
        rows.append({**row, "noise multiplier": round(noise, 4), "mean": sign * found["mean"], "half": found["half"]})
    return rows


def frontier() -> dict[str, Any]:
    """Every search at every ε and compute."""
    calls = [(line, (task, *search, mean)) for mean in RUNS for task in LEVELS for search in SEARCHES]
    return whole([row for rows in parallel.each(calls) for row in rows])


def lags() -> list[dict[str, Any]]:
    """What it costs that a rule does not see the latest runs, so that several can be made at a time."""
    rows, (law, band, mean, epsilon) = [], LAGGED
    for task in LEVELS:
        world = TASKS[task].world(noise_for(task, law, band, mean, epsilon), NOISE)
        for lag in LAGS:
            method = replace(e.OURS, band=band, lag=lag)
            found = simulated(world, method, LAWS[law](mean), RUNS[mean], SEED)
            sign = -1 if TASKS[task].loss else 1
            rows.append({"task": task, "lag": lag, "mean": sign * found["mean"], "half": found["half"]})
    return rows


def whole(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The result of all lines."""
    rows = sorted(rows, key=lambda row: (row["task"], row["epsilon"], row["mean runs"], row["law"], row["band"][1]))
    kinds = {task: TASKS[task].kind for task in LEVELS}
    return {"delta": DELTA, "score noise": NOISE, "runs": RUNS, "scores": kinds, "rows": rows, "lags": lags()}
