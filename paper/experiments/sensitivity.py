"""How much the gain of stages depends on what was assumed: score noise, design, and the luck of the landscape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from paper.data.points import Floats
from paper.experiments.design import laws
from paper.simulate.staged_costs import Costs
from paper.simulate.staged_plan import Cheap, Plan, TwoStages, around, of_design, single, staged
from paper.simulate.staged_task import TASKS, StagedTask
from paper.simulate.winners import winners_of_stages
from paper.simulate.worlds import Trained

FIELDS: dict[str, tuple[float, ...]] = {
    "fraction": (0.01, 0.03, 0.1, 0.3),
    "compute_share": (0.2, 0.35, 0.5, 0.65),
    "share": (0.05, 0.1, 0.2, 0.35),
    "spread": (0.03, 0.05, 0.1, 0.2),
    "floor": (0.05, 0.1, 0.3),
    "shape": (2.0, 8.0, 16.0),
}
# Three stages: fractions, shares of compute and of ε of the first two.
THREE = {
    "1/100, 1/10, 1": (Cheap(0.01, 0.15, 0.05), Cheap(0.1, 0.35, 0.1)),
    "1/30, 1/10, 1": (Cheap(0.03, 0.15, 0.05), Cheap(0.1, 0.35, 0.1)),
    "1/30, 1/3, 1": (Cheap(0.03, 0.25, 0.05), Cheap(0.3, 0.25, 0.1)),
}


def sensitivity(compute: float, epsilon: float) -> list[dict[str, Any]]:
    """On MNIST, by quadrature: the default design changed in one thing, the noise calibrated again."""
    costs, design = Costs(TASKS["MNIST"]), TwoStages()
    plain, default = uniform(costs, compute, epsilon), of_design(costs, design, compute, epsilon)
    rows = [
        _row(f"score noise {noise:g}", replace(costs.task, noise=noise), default, plain) for noise in (0.02, 0.05, 0.1)
    ]
    for field, values in FIELDS.items():
        for value in values:
            changes: dict[str, Any] = {field: value}
            plan = of_design(costs, replace(design, **changes), compute, epsilon)
            rows.append(_row(f"{field} {value:g}", costs.task, plan, plain))
    for name, cheap in THREE.items():
        plan = staged(costs, cheap, compute, epsilon, design.spread, design.floor, design.shape)
        rows.append(_row(f"three stages, {name}", costs.task, plan, plain))
    return rows


def uniform(costs: Costs, compute: float, epsilon: float) -> dict[str, Plan]:
    """Uniform searches by their law of T."""
    plans = {name: single(costs, law, epsilon) for name, law in laws(compute).items()}
    return {name: plan for name, plan in plans.items() if plan is not None}


def _row(name: str, task: StagedTask, plan: Plan | None, plain: dict[str, Plan]) -> dict[str, Any]:
    """Regrets, by the best cell at the least noise of these searches."""
    if plan is None:
        return {"changed": name, "noise multipliers": None}
    best = float(task.world(min(one.noises[-1] for one in (plan, *plain.values()))).mean.max())
    scores = {law: one.expected(task) for law, one in plain.items()}
    return {
        "changed": name,
        "noise multipliers": [round(noise, 4) for noise in plan.noises],
        **_regrets(best, plan.expected(task), max(scores.values()), scores["geometric"]),
    }


def _regrets(best: float, stages: float, uniform: float, geometric: float) -> dict[str, float]:
    return {
        "regret": round(best - stages, 5),
        "to uniform, best law": round((best - stages) / (best - uniform), 4),
        "to uniform, geometric T": round((best - stages) / (best - geometric), 4),
    }


def halves(name: str, compute: float, epsilon: float, splits: int = 20) -> dict[str, Any]:
    """The default design where one half of the trained repetitions is searched and the other half judges.

    A cell that is best by luck is then not better when it is judged. Regret is by the cell that is best in the half
    that judges, which its own luck makes too high for all searches alike: the ratios are on the safe side.
    """
    costs = Costs(TASKS[name])
    plain = uniform(costs, compute, epsilon)
    plan = of_design(costs, TwoStages(), compute, epsilon, strict=False)
    if plan is None:
        return {"splits": 0}
    found = []
    for seed in range(splits):
        one, other = _halved(costs.task, np.random.default_rng([seed, 3]))
        best = float(other.world(min(p.noises[-1] for p in (plan, *plain.values()))).mean.max())
        scores = {law: _judged(p, one, other) for law, p in plain.items()}
        found.append([best, _judged(plan, one, other), max(scores.values()), scores["geometric"]])
    mean = np.mean(found, axis=0)
    return {"splits": splits, **_regrets(*(float(value) for value in mean))}


def _halved(task: StagedTask, random: np.random.Generator) -> tuple[StagedTask, StagedTask]:
    """The task twice, from one half of its repetitions each; what was trained once goes to either."""
    known = {steps: _half(task.trained(steps), random) for steps in (*task.parts, task.full)}
    one, other = (lambda steps: known[steps][0]), (lambda steps: known[steps][1])
    return replace(task, trained=one), replace(task, trained=other)


def _half(trained: Trained, random: np.random.Generator) -> tuple[Trained, Trained]:
    sides: tuple[dict[float, Floats], dict[float, Floats]] = ({}, {})
    for level, scores in trained.scores.items():
        order = random.permutation(len(scores))
        cut = len(scores) // 2 + (random.integers(2) if len(scores) % 2 else 0)
        for side, rows in zip(sides, (order[:cut], order[cut:]), strict=True):
            if len(rows):
                side[level] = scores[rows]
    return replace(trained, scores=sides[0]), replace(trained, scores=sides[1])


def _judged(plan: Plan, searched: StagedTask, judge: StagedTask) -> float:
    """The expected score, by ``judge``, of what is released in ``searched``."""
    means = [world.mean for world in plan.worlds(searched)]
    priors = [around(searched, plan.spread, plan.floor)] * (len(means) - 1)
    chosen = winners_of_stages(means, plan.laws, priors, searched.noise)
    return float(chosen @ plan.worlds(judge)[-1].mean)
