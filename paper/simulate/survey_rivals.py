"""Other ways to run a survey: a split of ε, several lengths with a learnt drift, Panda and others' linear scaling."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dphypo.accounting import Composition
from paper.data.points import Floats
from paper.simulate.staged_task import TASKS
from paper.simulate.survey_costs import noise, runs, solve, together
from paper.simulate.survey_optimiser import Optimiser, Surveys, even
from paper.simulate.surveys import STEPS, Plan, picked

LENGTHS: tuple[Mapping[float, int], ...] = ({0.03: 14, 0.1: 6}, {0.03: 10, 0.1: 7, 0.3: 3})


def _alone(name: str, steps: int, count: int, total: float) -> float:
    """The noise with which ``count`` runs of so many steps cost ``total`` by themselves."""
    return solve(lambda level: together(runs(STEPS[name].rate, level, steps, count)), total)


def split(
    name: str, epsilon: float, share: float, searches: int, seed: int, fraction: float = 0.1
) -> tuple[Floats | None, float]:
    """The default survey, but its runs cost ``share`` of ε by themselves, whatever the full run's noise."""
    task, plan = TASKS[name], Plan(fraction=fraction)
    steps = task.steps(fraction)
    short_noise = _alone(name, steps, plan.count, share * epsilon)
    survey = runs(STEPS[name].rate, short_noise, steps, plan.count)
    try:
        level = solve(lambda one: together(survey, runs(STEPS[name].rate, one, task.full)), epsilon)
        short, world = task.trained(steps).at(short_noise), task.world(level)
    except ValueError:
        return None, 0.0
    return world.mean[picked(world.features, short, task.noise, plan, searches, seed)], level


def learned_drift(
    name: str, epsilon: float, lengths: Mapping[float, int], pick: str, searches: int, seed: int
) -> tuple[Floats | None, float]:
    """Runs of several lengths, short ones first, all with matched noise; the length is an input of the process.

    The last run is where the posterior mean is best at the longest of them, or extrapolated to the full length.
    """
    task, rule = TASKS[name], Optimiser()
    steps = [task.steps(fraction) for fraction in lengths]

    def plan_at(level: float) -> Composition:
        short = [
            runs(STEPS[name].rate, level * (task.full / one) ** 0.5, one, count)
            for one, count in zip(steps, lengths.values(), strict=True)
        ]
        return together(*short, runs(STEPS[name].rate, level, task.full))

    try:
        level = solve(plan_at, epsilon)
        world = task.world(level)
        means = [task.trained(one).at(level * (task.full / one) ** 0.5) for one in steps]
    except ValueError:
        return None, 0.0
    cells, plain = len(world), world.features
    place = [1 + 0.5 * math.log10(one / task.full) for one in (*steps, task.full)]
    features = np.concatenate([np.column_stack([plain, np.full(cells, at)]) for at in place])
    random = np.random.default_rng(seed)
    shift = random.random((searches, 2))
    surveys, t = Surveys(features, rule, searches), 0
    for number, count in enumerate(lengths.values()):
        for _ in range(count):
            if t < rule.start:
                chosen = even(plain, t, shift)
            else:
                mean, deviation = surveys.posterior()
                here = slice(number * cells, (number + 1) * cells)
                chosen = (mean + (rule.tau or 0.0) * deviation)[:, here].argmax(axis=1)
            scores = means[number][chosen] + task.noise * random.standard_normal(searches)
            surveys.observe(chosen + number * cells, scores)
            t += 1
    first = (len(steps) - (pick == "longest")) * cells
    return world.mean[surveys.posterior()[0][:, first : first + cells].argmax(axis=1)], level


def linear_scaling(name: str, epsilon: float, searches: int, seed: int) -> tuple[Floats | None, float]:
    """Panda and others (2024): the best η·steps at two small ε, extrapolated linearly in ε; the clipping norm is fixed.

    Ten runs at random learning rates of a thirtieth of the steps cost ε/20 each, ten of a tenth ε/10 each; the best
    score of each ten gives η·steps, a line through both its value at ε. The second hyperparameter is the middle of its
    axis.
    """
    task = TASKS[name]
    grid, full = task.grid, task.full
    steps, shares = [task.steps(0.03), task.steps(0.1)], [epsilon / 20, epsilon / 10]
    try:
        noises = [_alone(name, one, 1, share) for one, share in zip(steps, shares, strict=True)]
        trials = [runs(STEPS[name].rate, *pair, 10) for pair in zip(noises, steps, strict=True)]
        level = solve(lambda one: together(*trials, runs(STEPS[name].rate, one, full)), epsilon)
        landscapes = [task.trained(one).at(level_) for one, level_ in zip(steps, noises, strict=True)]
        world = task.world(level)
    except ValueError:
        return None, noise(STEPS[name], epsilon)
    random = np.random.default_rng(seed)
    middle = len(grid.second) // 2
    reach = []
    for landscape, one in zip(landscapes, steps, strict=True):
        tried = random.integers(0, len(grid.first), (searches, 10))
        scores = landscape[tried * len(grid.second) + middle] + task.noise * random.standard_normal(tried.shape)
        reach.append(grid.first[tried[np.arange(searches), scores.argmax(axis=1)]] * one)
    slope = (reach[1] - reach[0]) / (shares[1] - shares[0])
    rate = np.maximum(reach[1] + slope * (epsilon - shares[1]), 1e-12) / full
    nearest = np.abs(np.log(rate)[:, None] - np.log(grid.first)[None]).argmin(axis=1)
    return world.mean[nearest * len(grid.second) + middle], level
