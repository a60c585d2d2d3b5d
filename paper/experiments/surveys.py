"""Surveys beside all other ways to tune, by simulation on the landscapes, and what the defaults were chosen from.

Every way to tune spends the same ε. Regret is the best cell's score in one full run without any tuning, less the score
at full length of the cell that was picked, at the noise that the way to tune leaves for the full run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dphypo.laws import Law, Poisson
from paper import parallel, results
from paper.data.points import Floats
from paper.simulate import staged_plan as plan
from paper.simulate import survey_rivals as rivals
from paper.simulate.staged_costs import Costs
from paper.simulate.staged_task import TASKS
from paper.simulate.survey_costs import noise
from paper.simulate.survey_optimiser import Optimiser
from paper.simulate.surveys import STEPS, Plan, surveyed

SEED, SEARCHES = 81, 80
EPSILONS, COMPUTES = (1.0, 2.0, 4.25, 8.0), (1.6, 2.0, 3.0, 5.0, 10.0)
# Runs and fraction of a survey, by compute: a tenth from the compute of three full runs on, below it shorter runs;
# more than forty runs add little.
DEFAULTS = {1.6: (20, 0.03), 2.0: (33, 0.03), 3.0: (20, 0.1), 5.0: (40, 0.1), 10.0: (40, 0.1)}
LENGTHS = (
    *((0.01, count) for count in (20, 40)),
    *((fraction, count) for fraction in (0.03, 0.1, 0.3) for count in (10, 20, 40)),
    *((0.1, count) for count in (5, 80)),
)
FACTORS = (0.5, 0.7, 1.4, 2.0)
RULES: tuple[tuple[int, float | None, bool], ...] = (
    (5, 2.0, False), (8, 2.0, False), (10, 2.0, False), (20, 2.0, False), (10, 1.0, False), (10, None, False),
    (10, 2.0, True),
)  # fmt: skip
SHARES = (0.05, 0.1, 0.2)
VARIED = (4.25,)  # ε at which one thing is changed at a time


def best(name: str, epsilon: float) -> float:
    """The best cell's score in one run that spends all of ε."""
    return float(TASKS[name].world(noise(STEPS[name], epsilon)).mean.max())


def described(name: str, epsilon: float, scores: Floats | None, level: float = 0.0) -> dict[str, Any] | None:
    """Mean regret with half its 95 % interval, the worst twentieth, and σ; None where it was not trained."""
    if scores is None:
        return None
    regret = best(name, epsilon) - scores
    return {
        "regret": round(float(regret.mean()), 5),
        "half": round(1.96 * float(regret.std(ddof=1)) / len(regret) ** 0.5, 5) if len(regret) > 1 else 0.0,
        "worst twentieth": round(float(np.quantile(regret, 0.95)), 5),
        "noise multiplier": round(level, 4),
    }


def survey(name: str, epsilon: float, one: Plan) -> dict[str, Any] | None:
    """Simulated surveys of one plan."""
    try:
        scores, level = surveyed(name, one, epsilon, SEARCHES, SEED)
    except ValueError:  # noise that was not trained
        return None
    return described(name, epsilon, scores, level)


def beside(name: str, epsilon: float, compute: float) -> dict[str, Any]:
    """All ways to tune at one ε and compute; those in a band and in stages where ``results/staged.json`` has them."""
    task = TASKS[name]
    sign = -1 if task.loss else 1
    top = best(name, epsilon)
    known = [row for row in results.load("staged")["rows"] if _place(row) == (name, epsilon, compute)]
    rows: dict[str, Any] = {
        way: {"regret": round(top - sign * one.get("exact", one["mean"]), 5), "half": one["half"]}
        for row in known
        for way, one in row["searches"].items()
    }
    if not known and epsilon in (1.0, 4.25):
        costs = Costs(task, exact=False)
        laws: dict[str, Law] = {"Poisson": Poisson(compute)}  # the best law at the compute of ten
        plans = {law: plan.single(costs, one, epsilon) for law, one in laws.items()}
        reached = [one.expected(task) for one in plans.values() if one is not None]
        if reached:
            rows["uniform, best law"] = {"regret": round(top - max(reached), 5), "half": 0.0}
    count, fraction = DEFAULTS[compute]
    rows["survey"] = survey(name, epsilon, Plan(count, fraction))
    return {"task": name, "epsilon": epsilon, "compute": compute, "best cell": sign * round(top, 5), "ways": rows}


def _place(row: dict[str, Any]) -> tuple[str, float, float]:
    return row["task"], row["epsilon"], row["compute"]


def single(name: str, epsilon: float) -> dict[str, Any]:
    """What does not depend on the compute: one untuned run, and Panda and others' rule."""
    world = TASKS[name].world(noise(STEPS[name], epsilon))
    middle = int(np.abs(world.features - 0.5).sum(axis=1).argmin())
    return {
        "task": name,
        "epsilon": epsilon,
        "untuned, middle of the space": described(name, epsilon, world.mean[[middle]]),
        "linear scaling (Panda et al.)": described(
            name, epsilon, *rivals.linear_scaling(name, epsilon, SEARCHES, SEED)
        ),
    }


def variants() -> Iterator[tuple[str, str, Plan]]:
    """Changes of one thing: group, name, plan."""
    plain = Plan()
    for fraction, count in LENGTHS:
        yield "fraction and runs", f"{fraction:g}, {count}", replace(plain, fraction=fraction, count=count)
    for fraction, factor in itertools.product((0.03, 0.1), FACTORS):
        yield "noise, times the rule's", f"{fraction:g}, {factor:g}", replace(plain, fraction=fraction, factor=factor)
    for fraction in (0.03, 0.1):
        equal = TASKS["MNIST"].full / TASKS["MNIST"].steps(fraction)
        yield (
            "noise, times the rule's",
            f"{fraction:g}, that of the full run",
            replace(plain, fraction=fraction, factor=equal**-0.5),
        )
    for start, tau, ranks in RULES:
        rule = Optimiser(start, tau, ranks)
        words = f"start {start}, {'EI' if tau is None else f'tau {tau:g}'}, {'ranks' if ranks else 'scores'}"
        yield "optimiser", words, replace(plain, optimiser=rule)
    for pick in ("mean", "visited mean", "score"):
        yield "pick of the last run", pick, replace(plain, pick=pick)


def changed(name: str, epsilon: float) -> list[dict[str, Any]]:
    """Every variant at one ε."""
    rows = []
    for group, words, one in variants():
        rows.append(
            {"task": name, "epsilon": epsilon, "group": group, "plan": words, **_or(survey(name, epsilon, one))}
        )
    for share in SHARES:
        found = rivals.split(name, epsilon, share, SEARCHES, SEED)
        rows.append({"task": name, "epsilon": epsilon, "group": "split of ε", "plan": f"{share:g}",
                     **_or(described(name, epsilon, *found))})  # fmt: skip
    for lengths in rivals.LENGTHS:
        for pick in ("longest", "extrapolated"):
            found = rivals.learned_drift(name, epsilon, lengths, pick, SEARCHES, SEED)
            words = " + ".join(f"{count} of {fraction:g}" for fraction, count in lengths.items()) + f", {pick}"
            rows.append({"task": name, "epsilon": epsilon, "group": "several lengths", "plan": words,
                         **_or(described(name, epsilon, *found))})  # fmt: skip
    return rows


def _or(found: dict[str, Any] | None) -> dict[str, Any]:
    return {"regret": None} if found is None else found


def table() -> dict[str, Any]:
    """All of it."""
    calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
    calls += [(changed, (name, epsilon)) for name in TASKS for epsilon in VARIED]
    calls += [(beside, (n, e, c)) for c in reversed(COMPUTES) for n in TASKS for e in EPSILONS]
    calls += [(single, (name, epsilon)) for name in TASKS for epsilon in EPSILONS]
    found = parallel.each(calls)
    first = len(TASKS) * len(VARIED)
    second = first + len(TASKS) * len(EPSILONS) * len(COMPUTES)
    return {
        "searches": SEARCHES,
        "defaults by compute": {str(compute): list(one) for compute, one in DEFAULTS.items()},
        "rows": found[first:second],
        "single": found[second:],
        "variants": [row for rows in found[:first] for row in rows],
    }
