"""Does adaptivity pay with a rule that sees only the history? Equal ε, equal compute, the best law of T for each side.

Uniform searches are charged by Theorem 4, adaptive ones by Theorem H, with the runs that the rule draws from the prior
(``GaussianProcess.start``) counted as such. A black box, of which no cheap version exists, has only these two choices.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dphypo import account
from dphypo.accounting import Guarantee
from dphypo.accounting.profiles import epsilon_for
from dphypo.accounting.theorems.theorem_h_history_only import Effort, HistoryProfile
from dphypo.band import Band
from dphypo.laws import Geometric, Law, NegativeBinomial, Poisson
from paper import parallel, results
from paper.data.points import Floats
from paper.experiments import paper_settings as e
from paper.experiments.budgets import DELTA
from paper.simulate.adaptive import simulated
from paper.simulate.noise_between import noise_between
from paper.simulate.task import TASKS
from paper.simulate.uniform import expected

NOISE, SEED = 0.02, 20261117
EPSILONS = (4.25, 8.0)
RUNS = {5: 800, 10: 600, 20: 300}  # simulated searches by mean number of runs
LEVELS = {  # of a task's noise multipliers: those that these ε need
    "MNIST": slice(0, 5),
    "CIFAR-10": slice(0, 6),
    "federated": slice(1, 7),
}
LAWS: dict[str, Callable[[float], Law]] = {
    "geometric": lambda mean: Geometric(mean=mean),
    "shape 8": lambda mean: NegativeBinomial(8.0, mean=mean),
    "Poisson": lambda mean: Poisson(mean),
}
UNIFORM = Band(1.0, 1.0)
LAGS, LAGGED = (0, 1, 3), ("shape 8", Band(0.25, 8.0), 10, 8.0)  # law, band, mean number of runs and ε
LAG_TASKS = ("MNIST", "federated")
BANDS = (Band(0.75, 2.0), Band(0.5, 4.0), Band(0.25, 8.0), Band(0.1, 20.0))
# A coarser lattice than a certificate's: quick, still an upper bound, and about 0.04 larger.
EFFORT = Effort(atoms=200, coarse_atoms=64, cells=24, tail=1e-8)
Search = tuple[str, str, Band, int]  # task, law, band, mean number of runs


def searches() -> list[Search]:
    """What is compared. A geometric law with a band takes the longest to account for and is far behind: few bands."""
    found: list[Search] = []
    for mean in sorted(RUNS):
        bands = {"Poisson": BANDS, "shape 8": BANDS, "geometric": (BANDS[0], BANDS[2]) if mean <= 10 else ()}
        found += [(task, law, band, mean) for task in LEVELS for law in LAWS for band in (UNIFORM, *bands[law])]
    return found


def cost(guarantee: Guarantee, first_from_prior: int) -> float:
    """ε by Theorem 4, or by Theorem H if there is a band: the larger of both directions."""
    if guarantee.band.C == 1:
        return guarantee.bounds(DELTA)["profile"]
    remove, add = guarantee.run.profiles
    found = 0.0
    for forward, reverse in ((remove, add), (add, remove)):
        one = HistoryProfile(
            forward, reverse, guarantee.runs, guarantee.band, first_from_prior=first_from_prior, effort=EFFORT
        )
        found = max(found, epsilon_for(one, DELTA))
    return found


def costs(task: str, law: str, band: Band, mean: int) -> list[float]:
    """ε at the task's levels of noise."""
    found = []
    for level in TASKS[task].levels[LEVELS[task]]:
        found.append(cost(account(TASKS[task].event(float(level)), LAWS[law](mean), band), _first()))
    return found


def _first() -> int:
    assert e.OURS.sampler is not None
    return int(e.OURS.sampler.start)


def bounds(wanted: Sequence[Search]) -> dict[Search, Floats]:
    """ε of every search at the levels of noise: those that are kept, and the others computed, and kept one by one.

    So a run that was interrupted goes on where it was. What is kept is thrown away if the computation is another.
    """
    levels = {task: TASKS[task].levels[place].tolist() for task, place in LEVELS.items()}
    computed = {"delta": DELTA, "effort": repr(EFFORT), "first from the prior": _first(), "levels": levels}
    path = results.FOLDER / "history-bounds.json"
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if {name: kept.get(name) for name in computed} != computed:
        kept = {**computed, "costs": {}}
    missing = [search for search in wanted if _key(search) not in kept["costs"]]

    def keep(number: int, found: list[float]) -> None:
        kept["costs"][_key(missing[number])] = [round(value, 5) if math.isfinite(value) else None for value in found]
        path.write_text(json.dumps({**kept, "costs": dict(sorted(kept["costs"].items()))}, indent=1) + "\n")

    if missing:
        parallel.each([(costs, search) for search in missing], keep=keep)
    known = {search: kept["costs"][_key(search)] for search in wanted}
    return {search: np.array([math.nan if one is None else one for one in found]) for search, found in known.items()}


def _key(search: Search) -> str:
    task, law, band, mean = search
    return f"{task}, {law}, ({band.c:g}, {band.C:g}), mean {mean}"


def noise_for(task: str, found: Floats, epsilon: float) -> float:
    """The noise multiplier at which the search costs ε; nan if no trained one does."""
    levels = TASKS[task].levels[LEVELS[task]]
    known = np.isfinite(found)  # little noise may ask for a finer lattice
    if not known.any() or not found[known][-1] <= epsilon <= found[known][0]:
        return math.nan
    return noise_between(levels[known], found[known], epsilon)


def line(search: Search, found: Floats) -> list[dict[str, Any]]:
    """One kind of search at one compute, at every ε: its noise multiplier and the score of what it releases."""
    task, law, band, mean = search
    rows, sign = [], -1 if TASKS[task].loss else 1
    for epsilon in EPSILONS:
        noise = noise_for(task, found, epsilon)
        row = {"task": task, "law": law, "band": [band.c, band.C], "epsilon": epsilon, "mean runs": mean}
        if math.isnan(noise):
            rows.append({**row, "noise multiplier": None})
            continue
        world = TASKS[task].world(noise, NOISE)
        if band.C == 1:
            score = {"mean": round(expected(world, LAWS[law](mean)), 5), "half": 0.0}
        else:
            score = simulated(world, replace(e.OURS, band=band), LAWS[law](mean), RUNS[mean], SEED)
        rows.append({**row, "noise multiplier": round(noise, 4), "mean": sign * score["mean"], "half": score["half"]})
    return rows


def frontier() -> dict[str, Any]:
    """Every search at every ε and compute."""
    known = bounds(searches())
    calls = [(line, (search, found)) for search, found in known.items()]
    return whole([row for rows in parallel.each(calls) for row in rows])


def lags() -> list[dict[str, Any]]:
    """What it costs that a rule does not see the latest runs, so that several can be made at a time."""
    rows, (law, band, mean, epsilon) = [], LAGGED
    for (task, *_), found in bounds([(task, law, band, mean) for task in LAG_TASKS]).items():
        world = TASKS[task].world(noise_for(task, found, epsilon), NOISE)
        for lag in LAGS:
            method = replace(e.OURS, band=band, lag=lag)
            score = simulated(world, method, LAWS[law](mean), RUNS[mean], SEED)
            sign = -1 if TASKS[task].loss else 1
            rows.append({"task": task, "lag": lag, "mean": sign * score["mean"], "half": score["half"]})
    return rows


def whole(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The result of all lines."""
    rows = sorted(rows, key=lambda row: (row["task"], row["epsilon"], row["mean runs"], row["law"], row["band"][1]))
    kinds = {task: TASKS[task].kind for task in LEVELS}
    return {"delta": DELTA, "score noise": NOISE, "runs": RUNS, "scores": kinds, "rows": rows, "lags": lags()}
