"""The mean of a truncated negative binomial law and its γ, each from the other, decided in ball arithmetic.

With m = θ(1−γ)/(γ(1−γ^θ)), the question "is the mean at least m?" compares two logarithms:

    θ log γ  against  log ρ,  ρ = 1 − θ(1−γ)/(mγ)        (θ = 0: log γ against −(1−γ)/(mγ)).

So a float γ can be certified, and the rounding goes the safe way: γ is the largest float whose mean is not below the
mean asked for, and the mean reported for a γ is not below the true one.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

from flint import arb, ctx, fmpq

from dphypo._floats import half_way
from dphypo._validate import fail

SMALLEST_GAMMA = 1e-300
# Two sides that agree to this many bits beyond the leading one are equal: mean 3 at θ = 1/2, γ = 1/4 is an example.
_TIE_BITS = 1024


@functools.lru_cache(maxsize=1024)
def gamma_of(shape: float, mean: float) -> float:
    """The largest float γ whose mean is at least ``mean``; the mean falls as γ grows."""
    low, high = SMALLEST_GAMMA, math.nextafter(1.0, 0.0)
    if not mean_reaches(shape, low, mean):
        raise fail(
            "mean",
            mean,
            f"at shape {shape:g} it would need gamma below {low:g}: give a smaller mean or a shape nearer 0",
        )
    if mean_reaches(shape, high, mean):
        return high
    while low < (middle := half_way(low, high)) < high:
        low, high = (middle, high) if mean_reaches(shape, middle, mean) else (low, middle)
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
    while mean_reaches(shape, gamma, guess):
        guess = math.nextafter(guess, math.inf)
    # Now the mean is below the guess; step down to the last float that it does not exceed.
    while not mean_reaches(shape, gamma, math.nextafter(guess, 0.0)):
        guess = math.nextafter(guess, 0.0)
    below = math.nextafter(guess, 0.0)
    return below if _compare(shape, gamma, below) == 0 else guess


def mean_reaches(shape: float, gamma: float, mean: float) -> bool:
    """Whether the mean of the law is ``mean`` or more."""
    return _compare(shape, gamma, mean) >= 0


def _compare(shape: float, gamma: float, mean: float) -> int:
    """The sign of (the law's mean) − ``mean``."""
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
