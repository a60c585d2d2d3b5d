"""Stages beside uniform and adaptive searches on all three tasks, at equal ε and equal expected compute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dphypo.band import Band
from paper import parallel, results
from paper.data.points import Floats
from paper.experiments import paper_settings as e
from paper.experiments.design import fields, laws
from paper.experiments.sensitivity import halves, sensitivity
from paper.simulate.adaptive import drawn
from paper.simulate.paths import Method
from paper.simulate.staged_costs import Costs
from paper.simulate.staged_plan import Plan, TwoStages, of_design, single
from paper.simulate.staged_searches import adaptive, quantiles, released
from paper.simulate.staged_task import TASKS, StagedTask

COMPUTES, EPSILONS = (5.0, 10.0, 20.0, 50.0), (2.0, 4.0, 8.0)
SHOWN = (10.0, 4.25)  # compute and ε of the row that is looked at closely
SEED = 57
COUNT = 4000  # searches, without a band
ADAPTIVE = {5.0: 3000, 10.0: 2000, 20.0: 1000, 50.0: 500}  # searches within one, by compute
BANDS = {"paper's GP": e.PAPER, "ours, (0.85, 1.25)": replace(e.OURS, band=Band(0.85, 1.25))}
BAND_LAWS = ("geometric", "shape 8", "Poisson")


@dataclass(frozen=True)
class Arm:
    """A search: its law of T (None: see its design), noise multipliers, and the actual scores of what it releases."""

    law: str | None
    noises: tuple[float, ...]
    scores: Floats
    exact: float | None = None  # the expected score by quadrature, where there is no band
    design: TwoStages | None = None
    split: float | None = None  # what the first stage costs by itself, of ε

    @property
    def mean(self) -> float:
        """The best figure for the expected score."""
        return float(self.scores.mean()) if self.exact is None else self.exact


def row(costs: Costs, name: str, compute: float, epsilon: float) -> dict[str, Any]:
    """All searches of one compute and ε. One that cannot be had, at any noise that was trained, is left out."""
    task, sign = costs.task, -1 if costs.task.loss else 1
    plain = dict(_uniform(costs, compute, epsilon))
    arms = {"uniform, geometric T": plain["geometric"]} if "geometric" in plain else {}
    if plain:
        arms["uniform, best law"] = max(plain.values(), key=lambda arm: arm.mean)
    for method, rule in BANDS.items():
        found = dict(_within(costs, rule, compute, epsilon))
        if method == "paper's GP" and "geometric" in found:
            arms[f"{method}, geometric T"] = found["geometric"]
        if found:
            arms[f"{method}, best law"] = max(found.values(), key=lambda arm: arm.mean)
    arms.update(_staged(costs, name, compute, epsilon))
    best = float(task.world(min(arm.noises[-1] for arm in arms.values())).mean.max())
    beside = arms.get("uniform, best law")
    return {
        "task": name,
        "epsilon": epsilon,
        "compute": compute,
        "best cell": round(sign * best, 5),
        "searches": {key: _describe(arm, beside, best, sign) for key, arm in arms.items()},
    }


def _uniform(costs: Costs, compute: float, epsilon: float) -> Iterator[tuple[str, Arm]]:
    for name, law in laws(compute).items():
        plan = single(costs, law, epsilon)
        if plan is not None:
            yield name, _simulated(plan, costs.task, name)


def _staged(costs: Costs, name: str, compute: float, epsilon: float) -> Iterator[tuple[str, Arm]]:
    chosen = results.load("design")
    designs = {
        "stages, default design": TwoStages(),
        "stages, design from the other tasks": TwoStages(*chosen["best without"][name]),
        "stages, design in hindsight": TwoStages(*chosen["best for"][name]),
    }
    for key, design in designs.items():
        plan = of_design(costs, design, compute, epsilon, strict=False)
        if plan is not None:
            yield key, replace(_simulated(plan, costs.task), design=design, split=plan.alone[0] / epsilon)


def _simulated(plan: Plan, task: StagedTask, law: str | None = None) -> Arm:
    return Arm(law, plan.noises, released(plan, task, COUNT, SEED), plan.expected(task))


def _within(costs: Costs, method: Method, compute: float, epsilon: float) -> Iterator[tuple[str, Arm]]:
    """Adaptive searches in a band; their T has the same quantiles as that of the others."""
    for name in BAND_LAWS:
        law = laws(compute)[name]
        noise = costs.noise(epsilon, law, costs.task.full, method.band)
        if noise is not None:
            lengths = drawn(law, quantiles(ADAPTIVE[compute], SEED))
            yield name, Arm(name, (noise,), adaptive(costs.task.world(noise), method, lengths, SEED))


def _describe(arm: Arm, beside: Arm | None, best: float, sign: int) -> dict[str, Any]:
    """Of an arm: mean and interval, regret, and the paired difference to uniform search with its best law."""
    found: dict[str, Any] = {
        "law": arm.law,
        "noise multipliers": [round(noise, 4) for noise in arm.noises],
        **_interval(sign * arm.scores),
        "regret": round(best - arm.mean, 5),
    }
    if arm.exact is not None:
        found["exact"] = round(sign * arm.exact, 5)
    if arm.design is not None:
        found["design"] = fields(arm.design)
        found["split"] = round(arm.split or 0.0, 4)
    if beside is not None:
        found["less uniform"] = _interval(sign * (arm.scores - beside.scores[: len(arm.scores)]))
    return found


def _interval(values: Floats) -> dict[str, float]:
    half = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
    return {"mean": round(float(values.mean()), 5), "half": round(float(half), 5)}


def line(name: str, compute: float) -> list[dict[str, Any]]:
    """All ε at one compute."""
    costs = Costs(TASKS[name])
    epsilons = sorted({*EPSILONS, SHOWN[1]}) if compute == SHOWN[0] else EPSILONS
    return [row(costs, name, compute, epsilon) for epsilon in epsilons]


def table() -> dict[str, Any]:
    """Every task, compute and ε; and how much it depends on what was assumed."""
    calls: list[Any] = [(sensitivity, SHOWN), *((halves, (name, *SHOWN)) for name in TASKS)]
    calls += [(line, (name, compute)) for compute in reversed(COMPUTES) for name in TASKS]
    found = parallel.each(calls)
    rows = [row for rows in found[1 + len(TASKS) :] for row in rows]
    order = list(TASKS)
    rows.sort(key=lambda row: (order.index(row["task"]), row["epsilon"], row["compute"]))
    return {
        "delta": 1e-5,
        "score noise": {name: task.noise for name, task in TASKS.items()},
        "searches": {"without a band": COUNT, "within a band, by compute": ADAPTIVE},
        "rows": rows,
        "sensitivity": found[0],
        "halves": dict(zip(TASKS, found[1:], strict=False)),
    }
