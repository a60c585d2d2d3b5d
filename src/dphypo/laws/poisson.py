"""The Poisson law of T, the one that allows no run at all, and its partial sums, without summing terms.

Σ_{k ≤ K} p_k x^k = e^(−μ(1−x)) Q(K+1, μx) and Σ_{k ≤ K} k p_k x^(k−1) = μ e^(−μ(1−x)) Q(K, μx), with Q the regularised
upper incomplete gamma function: Q(K, z) is the probability that a Poisson variate of mean z is below K. Where scipy's Q
loses digits a series of positive terms stands in: against mpmath (μ and K to 10⁶) the logarithm is off by less than
1e-12, or, where it is below −1000, by less than a few units in its last place.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from flint import arb
from scipy import special

from dphypo import _validate
from dphypo.entropy import Entropy
from dphypo.laws.draw import draw, quantile
from dphypo.laws.law import Array, Capped, at_x, like, register
from dphypo.laws.special import leading_ratios, log_poisson_pmf, log_power_series

LARGEST_MEAN = 1e9


@dataclasses.dataclass(frozen=True, repr=False)
class Poisson:
    """P[T = k] = e^(−μ) μ^k/k!, k ≥ 0, with f′(x) = μ e^(μ(x−1)).

    T = 0 has probability e^(−μ): a search that then makes no run and releases nothing.

    Args:
        mean: μ, above 0 and at most 1e9.

    >>> law = Poisson(10)
    >>> law.quantile(0.5), round(float(law.pgf(0.0)), 7)
    (10, 4.54e-05)

    References:
        Papernot and Steinke, Hyperparameter Tuning with Renyi Differential Privacy, 2022, section 3.3.
    """

    mean: float

    def __post_init__(self) -> None:
        mean = _validate.within(0.0, LARGEST_MEAN, closed="right", mean=self.mean)
        object.__setattr__(self, "mean", mean)

    first = 0  # the smallest value of T

    def survival(self, k: int) -> arb:
        return 1 - self.head(k)

    def head(self, k: int) -> arb:
        """P[T ≤ k], as a ball: the regularised upper incomplete gamma function Q(k + 1, μ)."""
        return arb.gamma_upper(arb(self.mean), arb(k + 1), 1)

    def pmf(self, k: npt.ArrayLike) -> Array:
        k = _validate.counts(k=k)
        return like(np.where(k >= 0, np.exp(self.log_pmf(np.maximum(k, 0))), 0.0), k)

    def pgf(self, x: npt.ArrayLike) -> Array:
        return like(np.exp(-self.mean * at_x(x)[1]), x)

    def pgf_derivative(self, x: npt.ArrayLike) -> Array:
        return np.exp(self.log_pgf_derivative(x))

    def log_pgf_derivative(self, x: npt.ArrayLike) -> Array:
        return like(math.log(self.mean) - self.mean * at_x(x)[1], x)

    def log_g(self, v: npt.ArrayLike) -> Array:
        return like(math.log(self.mean) - self.mean * _validate.fractions(v=v), v)

    def quantile(self, q: float) -> int:
        return quantile(self, q)

    def sample(self, entropy: Entropy) -> int:
        return draw(self, entropy)

    def capped(self, limit: int) -> Capped:
        """The law given T ≤ ``limit``; T = 0 stays possible."""
        return Capped(self, limit)

    def log_pmf(self, k: Array) -> Array:
        return log_poisson_pmf(k, self.mean)

    def log_partial_pgf(self, limit: int, log_x: Array, v: Array) -> Array:
        return log_lower(limit + 1, self.mean * np.exp(log_x)) - self.mean * v

    def log_partial_derivative(self, limit: int, log_x: Array, v: Array) -> Array:
        return math.log(self.mean) + log_lower(limit, self.mean * np.exp(log_x)) - self.mean * v

    def to_dict(self) -> dict[str, Any]:
        return {"law": "poisson", "mean": self.mean}

    def __repr__(self) -> str:
        return f"Poisson(mean={self.mean:.10g})"


@register("poisson")
def _from_dict(description: Mapping[str, Any]) -> Poisson:
    return Poisson(description["mean"])


_UNDERFLOW = 1e-280
_LOW = 1.4  # scipy's prefactor of Q(K, z) cancels from about z = 1.4 K on
_MANY = 1e5  # from here on scipy's series for P(K, z) stops before it has converged
_WORTH = 9.0  # standard deviations below K at which P(K, z) is below 1e-17


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
