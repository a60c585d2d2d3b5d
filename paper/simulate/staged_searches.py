"""Simulated searches without a band, in stages or not, with random numbers common to all searches compared.

Search n of every kind has the same quantile of T in its last stage, and visit t of it the same uniform number for its
cell and the same normal number for its noise; so differences between kinds are less noisy than the kinds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paper.data.points import Floats
from paper.simulate.adaptive import drawn
from paper.simulate.paths import Method, paths
from paper.simulate.staged_plan import Plan, around
from paper.simulate.staged_task import StagedTask
from paper.simulate.worlds import World

Cells = npt.NDArray[np.intp]
CHUNK = 250  # searches at once


def quantiles(count: int, seed: int = 0) -> Floats:
    """Numbers spread evenly over [0, 1], and so every beginning of them: (offset + n·golden ratio) mod 1."""
    return np.asarray((np.random.default_rng(seed).random() + np.arange(count) * (5**0.5 - 1) / 2) % 1)


def released(plan: Plan, task: StagedTask, count: int, seed: int) -> Floats:
    """Actual scores of what ``count`` searches release; all have T ≥ 1 in every stage."""
    rows = None if len(plan.steps) == 1 else _cumulated(around(task, plan.spread, plan.floor))
    winners: Cells | None = None
    for number, (world, law) in enumerate(zip(plan.worlds(task), plan.laws, strict=True)):
        before = len(plan.steps) - 1 - number  # the last stage is number 0: it is the one that all have
        random = np.random.default_rng([seed, before])
        uniforms = random.permutation(quantiles(count, seed)) if before else quantiles(count, seed)
        lengths, parts = drawn(law, uniforms), []
        for start in range(0, count, CHUNK):
            part = slice(start, start + CHUNK)
            seeds = [seed, before, start]
            parts.append(_best(world, lengths[part], rows, None if winners is None else winners[part], seeds))
        winners = np.concatenate(parts)
    return np.asarray(world.mean[winners])


def adaptive(world: World, method: Method, lengths: Cells, seed: int) -> Floats:
    """Actual scores of what adaptive searches of these lengths release."""
    result = np.empty(len(lengths))
    for index, found in paths(world, method, lengths, seed):
        result[index] = found[np.arange(len(index)), lengths[index] - 1]
    return result


def _best(world: World, lengths: Cells, rows: Floats | None, centres: Cells | None, seeds: list[int]) -> Cells:
    """The cell that each search releases, its prior uniform or around a centre of its own."""
    shape = (int(lengths.max()), len(lengths))  # longer searches continue shorter ones
    uniforms = np.random.default_rng([*seeds, 1]).random(shape)
    if centres is None or rows is None:
        cells = (uniforms * len(world)).astype(np.intp)
    else:
        cells = np.searchsorted(rows, uniforms + centres, side="right") - centres * len(world)
    cells = np.clip(cells, 0, len(world) - 1)
    scores = world.mean[cells] + world.noise[cells] * np.random.default_rng([*seeds, 2]).standard_normal(shape)
    scores[np.arange(shape[0])[:, None] >= lengths] = -np.inf
    return np.asarray(cells[scores.argmax(axis=0), np.arange(shape[1])])


def _cumulated(priors: Floats) -> Floats:
    """Distribution functions of all rows in one increasing array, that of row i from i to i + 1."""
    sums = np.cumsum(priors, axis=1)
    return np.asarray((sums / sums[:, -1:] + np.arange(len(priors))[:, None]).ravel())
