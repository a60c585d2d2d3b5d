"""Simulated searches on a landscape: thousands at once, of lengths drawn beforehand.

A search of length T is the beginning of a longer one, so one path serves every T up to its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dphypo.band import Band
from dphypo.band.projections import Projection
from dphypo.samplers import GaussianProcess
from paper.data.points import Floats
from paper.simulate.pilot import fitted
from paper.simulate.project import project
from paper.simulate.surrogate import Basis, Searches
from paper.simulate.worlds import World

Lengths = npt.NDArray[np.intp]
UNIFORM = Band(1.0, 1.0)


@dataclass(frozen=True)
class Method:
    """A search rule with its band; ``sampler`` None draws from the prior, and ``lag`` latest runs are not seen."""

    name: str
    sampler: GaussianProcess | None = None
    band: Band = UNIFORM
    projection: Projection | None = None
    lag: int = 0


def paths(
    world: World, method: Method, lengths: Lengths, seed: int, batch: int = 400
) -> Iterator[tuple[npt.NDArray[np.intp], Floats]]:
    """For batches of searches: their indices, and the actual score of the best run so far (searches, longest length).

    The best run is that of the best noisy score, as a search sees it. Beyond a search's own length the row is nan.
    """
    order = np.argsort(-lengths, kind="stable")
    basis = Basis(world.features, fitted(world)) if method.sampler is not None else None
    for number, index in enumerate(np.split(order, range(batch, len(order), batch))):
        random = np.random.default_rng([seed, number])
        if basis is None:
            yield index, _prior(world, lengths[index], random)
        else:
            yield index, _adaptive(world, method, basis, lengths[index], random)


def _adaptive(world: World, method: Method, basis: Basis, lengths: Lengths, random: np.random.Generator) -> Floats:
    assert method.sampler is not None
    assert method.projection is not None
    count, longest = len(lengths), int(lengths.max())
    searches = Searches(basis, method.sampler, count)
    found = np.full((count, longest), np.nan)
    best, actual = np.full(count, -np.inf), np.empty(count)
    unseen: list[tuple[npt.NDArray[np.intp], Floats]] = []
    for t in range(longest):
        active = int((lengths > t).sum())  # lengths fall, so the active ones come first
        if active < len(best):
            searches.keep(active)
            best, actual = best[:active], actual[:active]
        if t < method.sampler.start + method.lag:
            cells = random.integers(0, len(world), active)
        else:
            cells = _drawn(project(searches.weights(), method.band, method.projection), random)
        scores = world.mean[cells] + world.noise[cells] * random.standard_normal(active)
        unseen.append((cells, scores))
        if len(unseen) > method.lag:
            seen = unseen.pop(0)
            searches.observe(seen[0][:active], seen[1][:active])
        better = scores > best
        best, actual = np.where(better, scores, best), np.where(better, world.mean[cells], actual)
        found[:active, t] = actual
    return found


def _drawn(ratios: Floats, random: np.random.Generator) -> npt.NDArray[np.intp]:
    cumulated = np.cumsum(ratios, axis=1)
    target = random.random(len(ratios)) * cumulated[:, -1]
    return np.asarray((cumulated < target[:, None]).sum(axis=1).clip(max=ratios.shape[1] - 1))


def _prior(world: World, lengths: Lengths, random: np.random.Generator) -> Floats:
    shape = (len(lengths), int(lengths.max()))
    cells = random.integers(0, len(world), shape)
    scores = world.mean[cells] + world.noise[cells] * random.standard_normal(shape)
    so_far = np.maximum.accumulate(scores, axis=1)
    fresh = scores == so_far
    last = np.maximum.accumulate(np.where(fresh, np.arange(shape[1]), 0), axis=1)
    found = np.take_along_axis(world.mean[cells], last, axis=1)
    return np.where(np.arange(shape[1]) < lengths[:, None], found, np.nan)
