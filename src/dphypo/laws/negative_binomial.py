"""The truncated negative binomial laws of T: the paper's family, with the geometric and logarithmic laws in it."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from flint import arb, ctx

from dphypo import _validate
from dphypo.entropy import Entropy
from dphypo.laws import exact_draw
from dphypo.laws.capped import Capped
from dphypo.laws.law import Array, at_x, like, register
from dphypo.laws.negative_binomial_mean import SMALLEST_GAMMA, gamma_of, mean_of
from dphypo.laws.negative_binomial_sums import NegativeBinomialSums
from dphypo.laws.special import quantile

LARGEST_SHAPE = 1e6


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class NegativeBinomial:
    """The negative binomial law of shape θ > −1, given T ≥ 1.

    P[T = k] = (1−γ)^k / (γ^(−θ) − 1) · ∏_{ℓ<k} (ℓ+θ)/(ℓ+1), k ≥ 1 (θ = 0 by continuity: the logarithmic law), with
    mean m = θ(1−γ)/(γ(1−γ^θ)) and f′(x) = m γ^(θ+1) (1−(1−γ)x)^(−θ−1).

    Give the mean or γ. A mean is turned into the largest float γ whose mean is not below it, decided in exact
    arithmetic; ``mean`` is then the mean of that γ, rounded up. The float γ that the accountant sees is the rational
    number that is sampled.

    Args:
        shape: θ, above −1. Larger shapes are more concentrated around the mean.
        mean: E[T], above 1.
        gamma: γ in (0, 1).

    >>> law = NegativeBinomial(2, mean=10)
    >>> law, round(law.gamma, 6)
    (NegativeBinomial(shape=2, mean=10), 0.17082)
    >>> [law.quantile(q) for q in (0.05, 0.5, 0.95)]
    [2, 8, 25]

    References:
        Papernot and Steinke, Hyperparameter Tuning with Renyi Differential Privacy, 2022, Definition 1.
    """

    shape: float
    gamma: float

    def __init__(self, shape: float, *, mean: float | None = None, gamma: float | None = None) -> None:
        why = "a law more concentrated than that is Poisson(mean)"
        shape = _validate.within(-1.0, LARGEST_SHAPE, closed="right", why=why, shape=shape)
        if (mean is None) == (gamma is None):
            raise ValueError(f"mean = {mean!r} and gamma = {gamma!r}: give exactly one of them")
        if mean is not None:
            mean = _validate.number(mean=mean)
            if mean <= 1:
                raise _validate.fail(
                    "mean", mean, "T is 1 or more here, so that its mean is above 1; Poisson has T = 0"
                )
            gamma = gamma_of(shape, mean)
        assert gamma is not None
        gamma = _validate.within(SMALLEST_GAMMA, 1.0, closed="left", gamma=gamma)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "gamma", gamma)

    @property
    def mean(self) -> float:
        return mean_of(self.shape, self.gamma)

    @functools.cached_property
    def sums(self) -> NegativeBinomialSums:
        """The law's tails and partial sums."""
        return NegativeBinomialSums(self.shape, self.gamma, self.mean)

    first = 1  # the smallest value of T

    def survival(self, k: int) -> arb:
        """P[T > k], as a ball.

        With z = 1 − γ: θ/(1 − γ^θ) · Γ(k+1+θ)/(Γ(k+1) Γ(1+θ)) · B(z; k+1, θ), where the incomplete beta function is
        z^(k+1)/(k+1) · ₂F₁(k+1, 1−θ; k+2; z), for θ ≤ 0 too.
        """
        with ctx.workprec(ctx.prec - 2 * min(0, math.frexp(self.gamma)[1])):  # 1 − γ takes as many bits as γ is small
            return self._survival(k)

    def head(self, k: int) -> arb:
        """P[T ≤ k], as a ball."""
        return 1 - self.survival(k)

    def _survival(self, k: int) -> arb:
        theta, gamma, after = arb(self.shape), arb(self.gamma), arb(k + 1)
        z = 1 - gamma
        if self.shape == 1:
            return z**k
        log_gamma = gamma.log()
        constant = -theta / (theta * log_gamma).expm1() if self.shape else -1 / log_gamma
        log_ratio = (after + theta).lgamma() - after.lgamma() - (theta + 1).lgamma()
        return constant * (log_ratio + after * z.log()).exp() / after * z.hypgeom_2f1(after, 1 - theta, after + 1)

    def pmf(self, k: npt.ArrayLike) -> Array:
        k = _validate.counts(k=k)
        return like(np.where(k >= 1, np.exp(self.sums.log_pmf(np.maximum(k, 1))), 0.0), k)

    def pgf(self, x: npt.ArrayLike) -> Array:
        log_x, v = at_x(x)
        # y = 1 − (1−γ)x, by whichever form does not cancel.
        z = (1 - self.gamma) * np.exp(log_x)
        log_y = np.where(z < 0.5, np.log1p(-np.minimum(z, 0.5)), np.log(self.gamma + (1 - self.gamma) * v))
        return like(self._rise(log_y), x)

    def _rise(self, log_y: Array) -> Array:
        """(y^(−θ) − 1)/(γ^(−θ) − 1), arranged so that nothing overflows or cancels."""
        size, log_gamma = abs(self.shape), math.log(self.gamma)
        if -size * log_gamma < 1e-17:
            return np.asarray(log_y / log_gamma)
        fraction = np.expm1(size * log_y) / math.expm1(size * log_gamma)
        return fraction if self.shape < 0 else fraction * np.exp(size * (log_gamma - log_y))

    def pgf_derivative(self, x: npt.ArrayLike) -> Array:
        return np.exp(self.log_pgf_derivative(x))

    def log_pgf_derivative(self, x: npt.ArrayLike) -> Array:
        return like(self.sums.log_derivative(at_x(x)[1]), x)

    def log_g(self, v: npt.ArrayLike) -> Array:
        return like(self.sums.log_derivative(_validate.fractions(v=v)), v)

    def quantile(self, q: float) -> int:
        return quantile(q, first=1, log_head=self.sums.log_head, log_tail=self.sums.log_tail)

    def sample(self, entropy: Entropy) -> int:
        return exact_draw.draw(self, entropy)

    def capped(self, limit: int) -> Capped:
        """The law given T ≤ ``limit``: what to account for when compute is bounded.

        >>> Geometric(mean=100).capped(400)
        Geometric(mean=100).capped(400)
        """
        return Capped(self, limit)

    def to_dict(self) -> dict[str, Any]:
        return {"law": "negative_binomial", "shape": self.shape, "gamma": self.gamma}

    def __repr__(self) -> str:
        names = {1.0: "Geometric(", 0.0: "Logarithmic("}
        start = names.get(self.shape, f"NegativeBinomial(shape={self.shape:.10g}, ")
        return f"{start}mean={self.mean:.10g})"


def Geometric(*, mean: float | None = None, gamma: float | None = None) -> NegativeBinomial:  # noqa: N802 (reads as a law)
    """The geometric law, ``NegativeBinomial(1, ...)``: P[T = k] = γ(1−γ)^(k−1), mean 1/γ.

    >>> Geometric(gamma=0.25).pmf([1, 2, 3])
    array([0.25    , 0.1875  , 0.140625])
    """
    return NegativeBinomial(1.0, mean=mean, gamma=gamma)


def Logarithmic(*, mean: float | None = None, gamma: float | None = None) -> NegativeBinomial:  # noqa: N802
    """The logarithmic law, ``NegativeBinomial(0, ...)``: P[T = k] = (1−γ)^k/(k log(1/γ)), mean (1/γ−1)/log(1/γ).

    >>> Logarithmic(gamma=0.01)
    Logarithmic(mean=21.49757685)
    """
    return NegativeBinomial(0.0, mean=mean, gamma=gamma)


@register("negative_binomial")
def _from_dict(description: Mapping[str, Any]) -> NegativeBinomial:
    return NegativeBinomial(description["shape"], gamma=description["gamma"])
