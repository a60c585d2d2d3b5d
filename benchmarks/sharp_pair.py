"""DP-SGD from below, as sharply as it can be: the ground for lower bounds that are quoted.

Merging outcomes is post-processing, so whatever is achieved on merged outcomes is achieved on the run itself. The
outcomes of one step are merged into intervals whose probability ratio is *exactly* a multiple of the grid, so that the
losses of many steps add up without any rounding. ``accounting.lower_bound`` knows more kinds of runs and rounds.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from dphypo.accounting.lower_bound import Pair, compose

_TAIL = 1e-15  # probability, a step, that is given up at the top


def dp_sgd_pair(noise_multiplier: float, sampling_rate: float, steps: int, *, grid: float = 1e-3) -> Pair:
    """DP-SGD on D (with the record) against D′ (without it), its outcomes merged as described above.

    One step shows x ~ (1−q) N(0, σ²) + q N(1, σ²) on D and x ~ N(0, σ²) on D′.
    """
    return compose([(_one_step(noise_multiplier, sampling_rate, grid), steps)])


def _one_step(sigma: float, q: float, grid: float) -> Pair:
    """Cut the line into intervals whose losses are consecutive multiples of the grid."""

    def between(low: float, high: float) -> tuple[float, float]:
        # By the mirror image where that keeps small differences of probabilities accurate.
        zero = ndtr(high / sigma) - ndtr(low / sigma) if low < 0 else ndtr(-low / sigma) - ndtr(-high / sigma)
        one = (
            ndtr((high - 1) / sigma) - ndtr((low - 1) / sigma)
            if low < 1
            else ndtr((1 - low) / sigma) - ndtr((1 - high) / sigma)
        )
        return float((1 - q) * zero + q * one), float(zero)

    def loss_at(x: float) -> float:
        return float(np.logaddexp(math.log1p(-q) if q < 1 else -math.inf, math.log(q) + (x - 0.5) / sigma**2))

    def point_of(loss: float) -> float:
        return 0.5 + sigma**2 * (math.log(math.exp(loss) - (1 - q)) - math.log(q))

    edge, top = -math.inf if q < 1 else -12.0 * sigma, 1.0 + 12.0 * sigma
    masses: dict[int, float] = {}
    while between(edge, math.inf)[0] > _TAIL:
        index = math.ceil(loss_at(edge) / grid + 0.25)  # a quarter of a step away: no interval gets too short
        ratio = math.exp(index * grid)

        def excess(x: float, edge: float = edge, ratio: float = ratio) -> float:
            on, off = between(edge, x)
            return on - ratio * off

        # Up to `low` every point has a smaller loss than wanted, so the interval must reach beyond it.
        low = point_of(index * grid)
        high = next((x for k in range(1, 40) if excess(x := point_of((index + 2.0**k) * grid)) > 0 or x > top), top)
        if excess(high) <= 0:
            break
        cut = float(brentq(excess, low, high, xtol=1e-14)) if excess(low) < 0 else low
        masses[index] = between(edge, cut)[0]
        edge = cut
    first, last = min(masses), max(masses)
    return Pair(first, np.array([masses.get(index, 0.0) for index in range(first, last + 1)]), 0.0, grid)
