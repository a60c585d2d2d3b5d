"""The Poisson law of T. It allows T = 0."""

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
from dphypo.laws.law import Array, at_x, draw, like, quantile, register, stirling_error
from dphypo.laws.pmf import Pmf, listed

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
        """P[T > k], as a ball: 1 − Q(k + 1, μ), with Q the regularised upper incomplete gamma function."""
        return 1 - arb.gamma_upper(arb(self.mean), arb(k + 1), 1)

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

    def capped(self, limit: int) -> Pmf:
        """The law given T ≤ ``limit``, as a list; T = 0 stays possible."""
        return listed(self, limit)

    def log_pmf(self, k: Array) -> Array:
        return log_poisson_pmf(k, self.mean)

    def to_dict(self) -> dict[str, Any]:
        return {"law": "poisson", "mean": self.mean}

    def __repr__(self) -> str:
        return f"Poisson(mean={self.mean:.10g})"


@register("poisson")
def _from_dict(description: Mapping[str, Any]) -> Poisson:
    return Poisson(description["mean"])


def log_poisson_pmf(k: npt.ArrayLike, mean: npt.ArrayLike) -> Array:
    """log(e^(−μ) μ^k / k!) by the saddle-point form, accurate when k and μ are both large and close."""
    k, mean = np.asarray(k, dtype=np.float64), np.asarray(mean, dtype=np.float64)
    large = np.maximum(k, 16.0)
    offset = (mean - large) / large
    far = large * (np.log1p(offset) - offset) - stirling_error(large) - 0.5 * np.log(2 * math.pi * large)
    few = np.minimum(k, 16.0)
    return np.asarray(np.where(k < 16, special.xlogy(few, mean) - mean - special.gammaln(few + 1), far))
