"""Partial sums and tails of the Poisson law, without summing its terms.

Σ_{k ≤ K} p_k x^k = e^(−μ(1−x)) Q(K+1, μx) and Σ_{k ≤ K} k p_k x^(k−1) = μ e^(−μ(1−x)) Q(K, μx), with Q the regularised
upper incomplete gamma function: Q(K, z) is the probability that a Poisson variate of mean z is below K. Where scipy's Q
loses digits a series of positive terms stands in: against mpmath (μ and K to 10⁶) the logarithm is off by less than
1e-12, or, where it is below −1000, by less than a few units in its last place.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from scipy import special

from dphypo.laws.special import Array, leading_ratios, log_poisson_pmf, log_power_series

_UNDERFLOW = 1e-280
_LOW = 1.4  # scipy's prefactor of Q(K, z) cancels from about z = 1.4 K on
_MANY = 1e5  # from here on scipy's series for P(K, z) stops before it has converged
_WORTH = 9.0  # standard deviations below K at which P(K, z) is below 1e-17


@dataclasses.dataclass(frozen=True)
class PoissonSums:
    """Sums over k ≤ K and k > K for the law of mean μ."""

    mean: float

    def log_pmf(self, k: Array) -> Array:
        """log p_k."""
        return log_poisson_pmf(k, self.mean)

    def log_partial_pgf(self, limit: int, log_x: Array, v: Array) -> Array:
        """log Σ_{k ≤ limit} p_k x^k at x = 1 − v."""
        return log_lower(limit + 1, self.mean * np.exp(log_x)) - self.mean * v

    def log_partial_derivative(self, limit: int, log_x: Array, v: Array) -> Array:
        """log Σ_{k ≤ limit} k p_k x^(k−1) at x = 1 − v."""
        return math.log(self.mean) + log_lower(limit, self.mean * np.exp(log_x)) - self.mean * v

    def log_head(self, k: int) -> float:
        """log P[T ≤ k]."""
        return float(log_lower(k + 1, np.array([self.mean]))[0])

    def log_tail(self, k: int) -> float:
        """log P[T > k]."""
        if self.mean <= k + 1:
            return float(log_upper(k + 1, np.array([self.mean]))[0])
        return math.log(-math.expm1(self.log_head(k)))


def log_lower(count: int, z: Array) -> Array:
    """log Q(count, z): the logarithm of P[Poisson(z) < count]."""
    head: Array = special.gammaincc(count, z)
    with np.errstate(divide="ignore"):
        out: Array = np.log(head)
    if count > _MANY:
        deviations = (count - z) / math.sqrt(count)
        band = (deviations > 4) & (deviations < _WORTH)
        out[deviations >= _WORTH] = 0.0
        out[band] = np.log1p(-np.exp(log_upper(count, z[band])))
    low = (head < _UNDERFLOW) | (z > _LOW * count)
    if low.any():
        # e^(−z) z^(K−1)/(K−1)! · (1 + (K−1)/z + (K−1)(K−2)/z² + …), a finite sum that falls fast for z far above K.
        nearest = float(z[low].min())
        ratios = leading_ratios(lambda n: np.maximum(count - 1 - n, 0) / nearest)
        out[low] = log_poisson_pmf(count - 1, z[low]) + log_power_series(nearest / z[low], ratios)
    return out


def log_upper(count: int, z: Array) -> Array:
    """log P(count, z) for z ≤ count: the logarithm of P[Poisson(z) ≥ count].

    e^(−z) z^K/K! · (1 + z/(K+1) + z²/((K+1)(K+2)) + …), all terms positive.
    """
    if not z.size:
        return np.empty_like(z)
    largest = float(z.max())
    ratios = leading_ratios(lambda n: largest / (count + 1 + n))
    return log_poisson_pmf(count, z) + log_power_series(z / largest, ratios)
