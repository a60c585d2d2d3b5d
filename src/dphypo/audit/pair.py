"""A pair of laws that a run really produces, coarsened onto a grid of losses: the ground for true lower bounds.

Merging outcomes is post-processing, so whatever is achieved on merged outcomes is achieved on the run itself. Here the
outcomes of one step of DP-SGD are merged into intervals whose probability ratio is *exactly* a multiple of the grid:
the losses of many steps then add up on the grid without any rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.signal import fftconvolve
from scipy.special import ndtr

from dphypo import _validate
from dphypo.accounting import Floats
from dphypo.band import Band

_TAIL = 1e-15  # probability, a step, that is given up at the top


@dataclass(frozen=True, eq=False)
class Pair:
    """One run on D and on D′, by its loss: ``on[i]`` = P[loss = ``losses[i]``], ``off[i]`` = Q[loss = ``losses[i]``].

    Masses may sum to a little less than one: what is missing is an outcome that no attack uses.
    """

    losses: Floats
    on: Floats
    off: Floats

    def with_policy(self, band: Band, *, from_prior: bool = False) -> Pair:
        """The pair of one run whose λ is drawn by the policy that makes Lemma 2 tight.

        Three groups of λ, of prior mass q, q and 1−2q with q = min(p, 1−p), have densities (C, c), (c, C) and, for
        the rest, (c, c) or (C, C) on (D, D′). λ is part of the outcome, so its ratio adds to the loss. With
        ``from_prior`` the outcomes are the same, in the same order, and λ is drawn from the prior, as that of the first
        run of a study is: ``losses`` are then names of outcomes and not what they tell.
        """
        if band.c == band.C:
            return self
        q = min(band.p, 1.0 - band.p)
        rest = band.c if band.p <= 0.5 else band.C
        groups = [(q, band.C, band.c), (q, band.c, band.C), (1.0 - 2.0 * q, rest, rest)]
        losses = np.concatenate([self.losses + math.log(here / there) for _, here, there in groups])
        densities = [(1.0, 1.0) if from_prior else (here, there) for _, here, there in groups]
        on = np.concatenate([self.on * mass * here for (mass, _, _), (here, _) in zip(groups, densities, strict=True)])
        off = np.concatenate(
            [self.off * mass * there for (mass, _, _), (_, there) in zip(groups, densities, strict=True)]
        )
        order = np.argsort(losses, kind="stable")
        return Pair(losses[order], on[order], off[order])


def dp_sgd_pair(noise_multiplier: float, sampling_rate: float, steps: int, *, grid: float = 1e-3) -> Pair:
    """DP-SGD on D (with the record) against D′ (without it), its outcomes merged as described above.

    One step shows x ~ (1−q) N(0, σ²) + q N(1, σ²) on D and x ~ N(0, σ²) on D′.
    """
    sigma = _validate.positive(noise_multiplier=noise_multiplier)
    q = _validate.within(0.0, 1.0, closed="right", sampling_rate=sampling_rate)
    count = _validate.integer(at_least=1, steps=steps)
    lowest, step = _one_step(sigma, q, _validate.positive(grid=grid))
    lowest, composed = _self_convolve(lowest, step, count)
    return Pair(np.arange(lowest, lowest + composed.shape[1], dtype=np.float64) * grid, composed[0], composed[1])


def _one_step(sigma: float, q: float, grid: float) -> tuple[int, Floats]:
    """Cut the line into intervals whose losses are consecutive multiples of the grid; the lowest multiple, P and Q."""

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
    masses: dict[int, tuple[float, float]] = {}
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
        masses[index] = between(edge, cut)
        edge = cut
    first, last = min(masses), max(masses)
    return first, np.array([masses.get(index, (0.0, 0.0)) for index in range(first, last + 1)]).T


def _self_convolve(lowest: int, masses: Floats, count: int) -> tuple[int, Floats]:
    """The law of the sum of ``count`` losses, by repeated squaring; tails below 1e-16 are given up."""
    result: tuple[int, Floats] | None = None
    power = (lowest, masses)
    while count:
        if count & 1:
            result = power if result is None else _add(result, power)
        count >>= 1
        if count:
            power = _add(power, power)
    assert result is not None
    return result


def _add(first: tuple[int, Floats], second: tuple[int, Floats]) -> tuple[int, Floats]:
    masses = np.maximum(fftconvolve(first[1], second[1], axes=1), 0.0)
    kept = np.flatnonzero(masses.max(axis=0) > 1e-17)
    return first[0] + second[0] + int(kept[0]), masses[:, kept[0] : kept[-1] + 1]
