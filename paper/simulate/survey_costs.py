"""The noise of surveys: k short runs of matched noise and one full run that cost ε together at δ = 1e-5."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from dphypo.accounting import Composition, solve_noise
from dphypo.accounting.composition import PublishedRuns, account_published
from dphypo.mechanisms import SampledGaussian

DELTA = 1e-5
LEAST = 0.35  # the smallest noise multiplier that is considered


@dataclass(frozen=True)
class Steps:
    """Poisson batches of sampling rate ``rate``; ``full`` of them make a full run."""

    rate: float
    full: int


@cache
def runs(rate: float, noise: float, steps: int, count: int = 1) -> PublishedRuns:
    """``count`` published runs of so many steps."""
    return account_published(SampledGaussian(rate=rate, steps=steps, noise_multiplier=noise).event, count)


def together(*parts: PublishedRuns) -> Composition:
    """What all of these runs cost together."""
    return Composition.of(*parts)


@cache
def noise(steps: Steps, total: float, short: int = 0, count: int = 0, factor: float = 1.0) -> float:
    """σ of the full run; the short ones have ``factor`` σ √(full/short).

    >>> round(noise(Steps(256 / 60_000, 2344), 4.25), 3)
    0.627
    """

    def plan_at(level: float) -> Composition:
        full = runs(steps.rate, level, steps.full)
        if not count:
            return together(full)
        matched = level * factor * math.sqrt(steps.full / short)
        return together(runs(steps.rate, matched, short, count), full)

    return solve(plan_at, total)


def solve(plan_at: Callable[[float], Composition], total: float) -> float:
    """The noise at which a plan costs ``total``, to within 1e-3."""
    return solve_noise(plan_at, epsilon=total, delta=DELTA, smallest=LEAST).value
