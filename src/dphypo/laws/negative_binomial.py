"""The truncated negative binomial laws of T: the paper's family, with the geometric and logarithmic laws in it."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from flint import arb, ctx, fmpq
from scipy import special

from dphypo import _validate
from dphypo._validate import Floats, half_way
from dphypo.laws.law import Law, at_x, like, stirling_error
from dphypo.laws.poisson import log_poisson_pmf

LARGEST_SHAPE = 1e6
SMALLEST_GAMMA = 1e-300
_LARGE_SHAPE = 1000.0  # up to it, the masses have a relative error of a few 1e-12
# Two sides that agree to this many bits beyond the leading one are equal: mean 3 at θ = 1/2, γ = 1/4 is an example.
_TIE_BITS = 1024


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class NegativeBinomial(Law):
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

    name: ClassVar[str] = "negative_binomial"
    first: ClassVar[int] = 1
    shape: float
    gamma: float

    def __init__(self, shape: float, *, mean: float | None = None, gamma: float | None = None) -> None:
        why = "a law more concentrated than that is Poisson(mean)"
        shape = _validate.within(-1.0, LARGEST_SHAPE, closed="right", why=why, shape=shape)
        if (mean is None) == (gamma is None):
            raise ValueError(f"mean = {mean!r} and gamma = {gamma!r}: give exactly one of them")
        if gamma is None:
            assert mean is not None
            if _validate.number(mean=mean) <= 1:
                raise _validate.fail(
                    "mean", mean, "this law has T ≥ 1, so the mean must exceed 1; use Poisson to allow T = 0"
                )
            gamma = gamma_of(shape, float(mean))
        gamma = _validate.within(SMALLEST_GAMMA, 1.0, closed="left", gamma=gamma)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "gamma", gamma)

    @functools.cached_property
    def mean(self) -> float:
        return mean_of(self.shape, self.gamma)

    def survival(self, k: int) -> arb:
        """P[T > k], as a ball.

        With z = 1 − γ: θ/(1 − γ^θ) · Γ(k+1+θ)/(Γ(k+1) Γ(1+θ)) · B(z; k+1, θ), where the incomplete beta function is
        z^(k+1)/(k+1) · ₂F₁(k+1, 1−θ; k+2; z), for θ ≤ 0 too.
        """
        with ctx.workprec(ctx.prec - 2 * min(0, math.frexp(self.gamma)[1])):  # 1 − γ takes as many bits as γ is small
            theta, gamma, after = arb(self.shape), arb(self.gamma), arb(k + 1)
            z = 1 - gamma
            if self.shape == 1:
                return z**k
            log_gamma = gamma.log()
            constant = -theta / (theta * log_gamma).expm1() if self.shape else -1 / log_gamma
            log_ratio = (after + theta).lgamma() - after.lgamma() - (theta + 1).lgamma()
            return constant * (log_ratio + after * z.log()).exp() / after * z.hypgeom_2f1(after, 1 - theta, after + 1)

    def pgf(self, x: npt.ArrayLike) -> Floats:
        log_x, v = at_x(x)
        # y = 1 − (1−γ)x, by whichever form does not cancel.
        z = (1 - self.gamma) * np.exp(log_x)
        log_y = np.where(z < 0.5, np.log1p(-np.minimum(z, 0.5)), np.log(self.gamma + (1 - self.gamma) * v))
        # (y^(−θ) − 1)/(γ^(−θ) − 1), arranged so that nothing overflows or cancels.
        size, log_gamma = abs(self.shape), math.log(self.gamma)
        if -size * log_gamma < 1e-17:
            return like(log_y / log_gamma, x)
        fraction = np.expm1(size * log_y) / math.expm1(size * log_gamma)
        return like(fraction if self.shape < 0 else fraction * np.exp(size * (log_gamma - log_y)), x)

    def log_pmf(self, k: Floats) -> Floats:
        """log p_k for k ≥ 1: log m + (θ+1) log γ + (k−1) log(1−γ) + log Γ(k+θ)/(Γ(1+θ) k!).

        If θ is large, these terms cancel. Then with n = k + θ, and Poisson probabilities,
        p_k = θ/n · P[θ; nγ] P[k; n(1−γ)] / P[n; n] / (1 − γ^θ) (Loader 2000).
        """
        if self.shape > _LARGE_SHAPE:
            n = k + self.shape
            chosen = log_poisson_pmf(self.shape, n * self.gamma) + log_poisson_pmf(k, n * (1 - self.gamma))
            truncated = math.log(-math.expm1(self.shape * math.log(self.gamma)))
            return np.asarray(np.log(self.shape / n) + chosen - log_poisson_pmf(n, n) - truncated)
        constant = math.log(self.mean) + (self.shape + 1) * math.log(self.gamma) - math.lgamma(self.shape + 1)
        return constant + (k - 1) * math.log1p(-self.gamma) + log_gamma_ratio(k + 1, self.shape - 1)

    def log_derivative(self, v: Floats) -> Floats:
        """log f′(1 − v) = log m − (θ+1) log(1 + v(1−γ)/γ)."""
        return math.log(self.mean) - (self.shape + 1) * np.log1p((1 - self.gamma) / self.gamma * v)

    def to_dict(self) -> dict[str, Any]:
        return {"law": self.name, "shape": self.shape, "gamma": self.gamma}

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> NegativeBinomial:
        return cls(description["shape"], gamma=description["gamma"])

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


@functools.lru_cache(maxsize=1024)
def gamma_of(shape: float, mean: float) -> float:
    """The largest float γ whose mean is at least ``mean``; the mean falls as γ grows."""
    low, high = SMALLEST_GAMMA, math.nextafter(1.0, 0.0)
    if _compare(shape, low, mean) < 0:
        remedy = f"at shape {shape:g} it would need gamma below {low:g}: give a smaller mean or a shape nearer 0"
        raise _validate.fail("mean", mean, remedy)
    if _compare(shape, high, mean) >= 0:
        return high
    while low < (middle := half_way(low, high)) < high:
        low, high = (middle, high) if _compare(shape, middle, mean) >= 0 else (low, middle)
    return low


@functools.lru_cache(maxsize=1024)
def mean_of(shape: float, gamma: float) -> float:
    """The smallest float that is not below the mean."""
    if abs(shape) < 1e-20:  # the limit θ = 0; products with a subnormal shape would lose their digits
        guess = (1 - gamma) / gamma / -math.log(gamma)
    else:
        # For shape < 0 the factor γ^(−(1+θ)) is kept apart so that nothing overflows.
        power = gamma ** -(1 + min(shape, 0.0))
        guess = abs(shape) * (1 - gamma) * power / -math.expm1(abs(shape) * math.log(gamma))
    while _compare(shape, gamma, guess) >= 0:
        guess = math.nextafter(guess, math.inf)
    # Now the mean is below the guess; step down to the last float that it does not exceed.
    while _compare(shape, gamma, math.nextafter(guess, 0.0)) < 0:
        guess = math.nextafter(guess, 0.0)
    below = math.nextafter(guess, 0.0)
    return below if _compare(shape, gamma, below) == 0 else guess


def _compare(shape: float, gamma: float, mean: float) -> int:
    """The sign of (the law's mean) − ``mean``, decided in ball arithmetic.

    With m the given mean it is that of θ log γ − log ρ, ρ = 1 − θ(1−γ)/(mγ), for θ > 0, and its opposite for θ < 0;
    for θ = 0 that of log γ + (1−γ)/(mγ).
    """
    theta, rational = Fraction(shape), Fraction(gamma)
    odds = (1 - rational) / (rational * Fraction(mean))
    rho = 1 - theta * odds
    if rho <= 0:  # only for θ > 0, where γ^θ is above zero
        return 1
    sign = -1 if shape < 0 else 1
    bits = 64 - min(0, math.frexp(shape)[1] if shape else 0) - min(0, math.frexp(1 - gamma)[1])
    for precision in (bits, 2 * bits, 4 * bits, 4 * bits + 4 * _TIE_BITS):
        with ctx.workprec(precision):
            left = _ball(rational).log()
            difference = _ball(theta) * left - _ball(rho).log() if shape else left + _ball(odds)
            if difference > 0:
                return sign
            if difference < 0:
                return -sign
    return 0


def _ball(x: Fraction) -> arb:
    return arb(fmpq(x.numerator, x.denominator))


def log_gamma_ratio(z: npt.ArrayLike, d: float) -> Floats:
    """log Γ(z + d) − log Γ(z) without the cancellation of two large numbers."""
    z = np.asarray(z, dtype=np.float64)
    near = np.maximum(z, 16.0 + max(0.0, -d))
    far = (near + d - 0.5) * np.log1p(d / near) + d * (np.log(near) - 1)
    far = far + stirling_error(near + d) - stirling_error(near)
    small = np.minimum(z, near)
    return np.asarray(np.where(z < near, special.gammaln(small + d) - special.gammaln(small), far))
