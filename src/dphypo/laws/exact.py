"""Exact draws that involve a logarithm: comparisons of a uniform number whose bits are revealed only as needed.

A uniform U in (0, 1) is never rounded. After some bits it is known to lie between two neighbouring dyadic numbers; a
question about it is answered as soon as the whole interval gives the same answer, and more bits are drawn until it
does. So each outcome has its stated probability exactly, however small, and irrational ones too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from dphypo import entropy as _entropy
from dphypo.laws.bounds import Bounds, log_bounds

_FIRST_BITS = 40  # enough to decide all but one draw in 10¹²


class Exponential:
    """A standard exponential variate E = −log U, known to as many bits as have been asked for."""

    def __init__(self, entropy: _entropy.Entropy) -> None:
        self._entropy = entropy
        self._numerator = 0  # U lies in [numerator, numerator + 1] / 2^count
        self._count = 0

    def bounds(self, bits: int) -> Bounds:
        """Bounds on 2^bits · E, narrow to a few units."""
        while self._numerator.bit_length() <= bits:
            self._numerator = self._numerator << 64 | _entropy.bits(64, self._entropy)
            self._count += 64
        whole = 1 << self._count
        low = -log_bounds(Fraction(self._numerator + 1, whole), bits)[1]
        return low, -log_bounds(Fraction(self._numerator, whole), bits)[0]


def accept(exponent: Callable[[int], Bounds], entropy: _entropy.Entropy) -> bool:
    """True with probability e^(−x) exactly, for the x ≥ 0 that ``exponent(bits)`` bounds."""
    variate, bits = Exponential(entropy), _FIRST_BITS
    while True:
        (low, high), (x_low, x_high) = variate.bounds(bits), exponent(bits)
        if low >= x_high:
            return True
        if high <= x_low:
            return False
        bits *= 2


def geometric(ratio: Fraction, entropy: _entropy.Entropy) -> int:
    """A whole number that is j or more with probability ratio^j exactly, for 0 < ratio < 1.

    It is the whole part of E / (−log ratio), E standard exponential, so the time does not grow with the result.
    """
    variate = Exponential(entropy)
    bits = _FIRST_BITS + 2 * math.floor(1 / (1 - ratio)).bit_length()
    while True:
        (low, high), (rate_high, rate_low) = variate.bounds(bits), (-bound for bound in log_bounds(ratio, bits))
        if rate_low > 0 and low // rate_high == high // rate_low:
            return low // rate_high
        bits *= 2
