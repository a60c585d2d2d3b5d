"""The Poisson law of T. It allows T = 0."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from flint import arb
from scipy import special

from dphypo import _validate
from dphypo._validate import Floats
from dphypo.laws.law import Law, at_x, like, stirling_error

LARGEST_MEAN = 1e9


@dataclasses.dataclass(frozen=True, repr=False)
class Poisson(Law):
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

    name: ClassVar[str] = "poisson"
    first: ClassVar[int] = 0
    mean: float

    def __post_init__(self) -> None:
        mean = _validate.within(0.0, LARGEST_MEAN, closed="right", mean=self.mean)
        object.__setattr__(self, "mean", mean)

    def survival(self, k: int) -> arb:
        """P[T > k], as a ball: 1 − Q(k + 1, μ), with Q the regularised upper incomplete gamma function."""
        return 1 - arb.gamma_upper(arb(self.mean), arb(k + 1), 1)

    def pgf(self, x: npt.ArrayLike) -> Floats:
        return like(np.exp(-self.mean * at_x(x)[1]), x)

    def log_derivative(self, v: Floats) -> Floats:
        return math.log(self.mean) - self.mean * v

    def log_pmf(self, k: Floats) -> Floats:
        return log_poisson_pmf(k, self.mean)

    def to_dict(self) -> dict[str, Any]:
        return {"law": self.name, "mean": self.mean}

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> Poisson:
        return cls(description["mean"])

    def __repr__(self) -> str:
        return f"Poisson(mean={self.mean:.10g})"


def log_poisson_pmf(k: npt.ArrayLike, mean: npt.ArrayLike) -> Floats:
    """log(e^(−μ) μ^k / k!) by the saddle-point form, accurate when k and μ are both large and close."""
    k, mean = np.asarray(k, dtype=np.float64), np.asarray(mean, dtype=np.float64)
    large = np.maximum(k, 16.0)
    offset = (mean - large) / large
    far = large * (np.log1p(offset) - offset) - stirling_error(large) - 0.5 * np.log(2 * math.pi * large)
    few = np.minimum(k, 16.0)
    return np.asarray(np.where(k < 16, special.xlogy(few, mean) - mean - special.gammaln(few + 1), far))
