"""What an adaptive search with a random number of runs releases, in expectation: by simulation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dphypo.runs import Law
from paper.points import Floats
from paper.simulate import Method, paths
from paper.worlds import World


def masses(runs: Law) -> Floats:
    """P[T = 1], P[T = 2], … up to where 1e-7 is left, summing to 1."""
    found = np.asarray(runs.pmf(np.arange(1, runs.quantile(1 - 1e-7) + 1)), dtype=np.float64)
    return np.asarray(found / found.sum())


def drawn(runs: Law, uniforms: Floats) -> npt.NDArray[np.intp]:
    """T by inversion of the law's distribution function."""
    return np.asarray(np.searchsorted(np.cumsum(masses(runs)), uniforms) + 1)


def simulated(world: World, method: Method, runs: Law, count: int, seed: int) -> dict[str, float]:
    """Mean actual score of what a search releases, and half its 95 % interval.

    E[score] = Σ_t P[T = t] E[score after t runs]. The lengths of the ``count`` simulated searches are spread evenly
    over the law of T, and each search counts at every t up to its own length, not only at its end: with a geometric T
    the interval is a half to a quarter of what the ends alone give. T beyond the longest search counts as its length.
    """
    lengths = drawn(runs, (np.random.default_rng([seed, 7]).permutation(count) + 0.5) / count)
    longest = int(lengths.max())
    weight = masses(runs)
    weight = np.append(weight[: longest - 1], weight[longest - 1 :].sum())
    reaching = (lengths[:, None] > np.arange(longest)).sum(axis=0)
    parts = [found for _, found in paths(world, method, lengths, seed)]
    total = np.zeros(longest)
    for part in parts:
        total[: part.shape[1]] += np.nansum(part, axis=0)
    mean = total / reaching
    error = 0.0
    for part in parts:
        here = part.shape[1]
        share = np.nansum((part - mean[:here]) * (weight / reaching)[:here], axis=1)
        error += float(np.square(share).sum())
    half = 1.96 * (error * count / (count - 1)) ** 0.5
    return {"mean": round(float(weight @ mean), 5), "half": round(half, 5)}
