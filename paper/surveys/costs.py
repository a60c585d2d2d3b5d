"""The noise of surveys: k short runs of matched noise and one full run that cost ε together at δ = 1e-5."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from dp_accounting.pld import privacy_loss_distribution
from scipy.optimize import brentq

DELTA = 1e-5
GRID = 1e-3  # of losses


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

    def excess(log_noise: float) -> float:
        level = math.exp(log_noise)
        scale = factor * math.sqrt(steps.full / short) if count else 1.0
        return math.log(epsilon(steps, level, short, level * scale, count) / total)

    low = math.log(0.35)
    while excess(low + 0.3) > 0:
        low += 0.3
    return math.exp(float(brentq(excess, low, low + 0.3, xtol=1e-4)))
