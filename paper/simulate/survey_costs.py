"""The noise of surveys: k short runs of matched noise and one full run that cost ε together at δ = 1e-5."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from dp_accounting.pld import privacy_loss_distribution
from scipy.optimize import brentq

DELTA = 1e-5
GRID = 1e-3  # of losses
STEP = 0.3  # in log σ, of the search for a bracket


@dataclass(frozen=True)
class Steps:
    """Poisson batches of sampling rate ``rate``; ``full`` of them make a full run."""

    rate: float
    full: int


@cache
def _one_run(rate: float, noise: float, steps: int) -> privacy_loss_distribution.PrivacyLossDistribution:
    one = privacy_loss_distribution.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=GRID, use_connect_dots=True
    )
    return one.self_compose(steps)


def epsilon(steps: Steps, noise: float, short: int, short_noise: float, count: int) -> float:
    """ε of ``count`` runs of ``short`` steps and one full run."""
    total = _one_run(steps.rate, noise, steps.full)
    if count:
        total = total.compose(_one_run(steps.rate, short_noise, short).self_compose(count))
    return float(total.get_epsilon_for_delta(DELTA))


@cache
def noise(steps: Steps, total: float, short: int = 0, count: int = 0, factor: float = 1.0) -> float:
    """σ of the full run; the short ones have ``factor`` σ √(full/short).

    >>> round(noise(Steps(256 / 60_000, 2344), 4.25), 3)
    0.627
    """

    def cost(level: float) -> float:
        scale = factor * math.sqrt(steps.full / short) if count else 1.0
        return epsilon(steps, level, short, level * scale, count)

    return solve(cost, total)


def solve(cost: Callable[[float], float], total: float) -> float:
    """The noise at which a cost that falls with it comes to ``total``.

    >>> round(solve(lambda level: 3 / level, 2.0), 3)
    1.5
    """
    low = math.log(0.35)
    while cost(math.exp(low + STEP)) > total:
        low += STEP
    found = brentq(lambda log_level: math.log(cost(math.exp(log_level)) / total), low, low + STEP, xtol=1e-4)
    return math.exp(float(found))
