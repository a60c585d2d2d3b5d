"""What a search with a random number of runs releases, in expectation: by simulation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dphypo.laws import Law
from paper.data.points import Floats
from paper.simulate.paths import Lengths, Method, paths
from paper.simulate.worlds import World


def masses(runs: Law) -> Floats:
    """P[T = 1], P[T = 2], … up to where 1e-7 is left, summing to 1."""
    found = np.asarray(runs.pmf(np.arange(1, runs.quantile(1 - 1e-7) + 1)), dtype=np.float64)
    return np.asarray(found / found.sum())


def drawn(runs: Law, uniforms: Floats) -> npt.NDArray[np.intp]:
    """T by inversion of the law's distribution function."""
    return np.asarray(np.searchsorted(np.cumsum(masses(runs)), uniforms) + 1)


def averaged(parts: Sequence[Floats], lengths: Lengths, runs: Law) -> tuple[float, float]:
    """E[score] = Σ_t P[T = t] E[score after t runs] and half its 95 % interval, from what :func:`paths` gives.

    Each search counts at every t up to its own length, not only at its end; lengths must not depend on scores. With a
    geometric T the interval is a half to a quarter of what the ends alone give. T beyond the longest search counts as
    its length.
    """
    longest, weight = int(lengths.max()), masses(runs)
    weight = np.append(weight[: longest - 1], weight[longest - 1 :].sum())
    weight = np.pad(weight, (0, longest - len(weight)))
    reaching = (lengths[:, None] > np.arange(longest)).sum(axis=0)
    total = np.zeros(longest)
    for part in parts:
        total[: part.shape[1]] += np.nansum(part, axis=0)
    mean, squares = total / reaching, 0.0
    for part in parts:
        here = part.shape[1]
        squares += float(np.square(np.nansum((part - mean[:here]) * (weight / reaching)[:here], axis=1)).sum())
    return float(weight @ mean), 1.96 * (squares * len(lengths) / (len(lengths) - 1)) ** 0.5


def simulated(world: World, method: Method, runs: Law, count: int, seed: int) -> dict[str, float]:
    """Mean actual score of what a search releases, and half its 95 % interval.

    The lengths of the ``count`` simulated searches are spread evenly over the law of T; :func:`averaged` does the rest.
    """
    lengths = drawn(runs, (np.random.default_rng([seed, 7]).permutation(count) + 0.5) / count)
    mean, half = averaged([found for _, found in paths(world, method, lengths, seed)], lengths, runs)
    return {"mean": round(mean, 5), "half": round(half, 5)}
