"""Which design of two stages to take when nothing is known of the task: a grid of them on all three tasks.

By quadrature, so that designs differ by nothing but what they are; ε is interpolated between noise multipliers and met
to a few per cent, alike for all.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from dphypo.laws import Geometric, Law, NegativeBinomial, Poisson
from paper import parallel
from paper.simulate.staged_costs import Costs
from paper.simulate.staged_plan import Plan, TwoStages, around, of_design, single
from paper.simulate.staged_task import TASKS, StagedTask
from paper.simulate.winners import winners

EPSILONS, COMPUTES = (2.0, 8.0), (5.0, 20.0)
FRACTIONS, SHARES, SPLITS = (0.03, 0.1, 0.3), (0.2, 0.35, 0.5), (0.1, 0.2, 0.35)
SPREADS, FLOORS = (0.03, 0.05, 0.1, 0.2), (0.05, 0.1, 0.2)


def laws(mean: float) -> dict[str, Law]:
    """The laws of T among which uniform search has its best."""
    return {
        "geometric": Geometric(mean=mean),
        **{f"shape {shape}": NegativeBinomial(float(shape), mean=mean) for shape in (2, 8, 16)},
        "Poisson": Poisson(mean),
    }


def designs() -> list[TwoStages]:
    """The grid, and the default."""
    grid = itertools.product(FRACTIONS, SHARES, SPLITS, SPREADS, FLOORS)
    return [*dict.fromkeys([*(TwoStages(*point) for point in grid), TwoStages()])]


def ratios(name: str, compute: float) -> list[dict[TwoStages, float]]:
    """For each ε: the regret of each design that can be had, relative to that of uniform search with its best law.

    Regret is the best cell's score, at the least noise of all searches compared, less the expected score reached.
    """
    task, found = TASKS[name], []
    costs = Costs(task, exact=False)
    for epsilon in EPSILONS:
        plain = [plan for law in laws(compute).values() if (plan := single(costs, law, epsilon)) is not None]
        plans = _plans(costs, compute, epsilon)
        noises = [plan.noises[-1] for plan in (*plain, *plans.values())]
        best = float(task.world(min(noises)).mean.max())
        uniform = max(plan.expected(task) for plan in plain)
        found.append({one: (best - score) / (best - uniform) for one, score in _scores(task, plans).items()})
    return found


def _plans(costs: Costs, compute: float, epsilon: float) -> dict[TwoStages, Plan]:
    """The plan of each design that can be had. Spread and floor cost nothing: one calibration serves for all."""
    plans: dict[tuple[float, ...], Plan | None] = {}
    found = {}
    for one in designs():
        key = (one.fraction, one.compute_share, one.share, one.shape)
        if key not in plans:
            plans[key] = of_design(costs, one, compute, epsilon)
        if (plan := plans[key]) is not None:
            assert isinstance(one.spread, float)
            found[one] = replace(plan, spread=one.spread, floor=one.floor)
    return found


def _scores(task: StagedTask, plans: dict[TwoStages, Plan]) -> dict[TwoStages, float]:
    """Expected scores: those plans that differ in the prior between their stages together, in one quadrature."""
    found: dict[TwoStages, float] = {}
    for _, group in itertools.groupby(plans, key=lambda one: (plans[one].steps, plans[one].noises, plans[one].laws)):
        members = list(group)
        plan = plans[members[0]]
        first, last = (world.mean for world in plan.worlds(task))
        (released,) = winners(np.full((1, len(first)), 1 / len(first)), first, task.noise, plan.laws[0])
        likely = np.flatnonzero(released > 1e-6)
        weights = released[likely] / released[likely].sum()
        priors = np.concatenate([around(task, plans[one].spread, plans[one].floor)[likely] for one in members])
        scores = winners(priors, last, task.noise, plan.laws[1]) @ last
        found.update(zip(members, (scores.reshape(len(members), -1) @ weights).tolist(), strict=True))
    return found


def table() -> dict[str, Any]:
    """All designs by their mean log ratio of regrets in each task, and the best for all, for two and for one.

    A pair of ε and compute counts for a task if three quarters of the designs can be had there (else too many first
    stages need noise that was not trained), and a design is compared if it can be had wherever it counts.
    """
    places = list(itertools.product(TASKS, COMPUTES[::-1]))
    found = dict(zip(places, parallel.each([(ratios, place) for place in places]), strict=True))
    every = designs()
    cells = {
        (name, epsilon, compute): at
        for (name, compute), by_epsilon in found.items()
        for epsilon, at in zip(EPSILONS, by_epsilon, strict=True)
        if len(at) > 0.75 * len(every)
    }
    means = {
        one: {name: float(np.mean([np.log(at[one]) for key, at in cells.items() if key[0] == name])) for name in TASKS}
        for one in every
        if all(one in at for at in cells.values())
    }

    def best(*names: str) -> list[float]:
        return fields(min(means, key=lambda one: sum(means[one][name] for name in names)))

    return {
        "cells that count": [{"task": name, "epsilon": e, "compute": c} for name, e, c in sorted(cells)],
        "fields": FIELDS,
        "default": fields(TwoStages()),
        "best": best(*TASKS),
        "best without": {name: best(*(other for other in TASKS if other != name)) for name in TASKS},
        "best for": {name: best(name) for name in TASKS},
        "designs": len(every),
        "log ratio": {
            " ".join(f"{value:g}" for value in fields(one)): {name: round(value, 4) for name, value in mean.items()}
            for one, mean in sorted(means.items(), key=lambda item: sum(item[1].values()))
        },
    }


FIELDS = ["fraction", "compute_share", "share", "spread", "floor"]


def fields(one: TwoStages) -> list[float]:
    """The numbers of a design that are compared."""
    return [float(getattr(one, name)) for name in FIELDS]
