"""Exact draws of T, and its quantiles, by inverting its distribution function in ball arithmetic.

U is uniform in [0, 1) and never rounded: after b bits it is known to lie in [n, n+1)/2^b. T is the smallest k with
P[T > k] ≤ U. FLINT's balls enclose P[T > k] with certainty, so a comparison that is decided is right. One that is not
decided reveals more bits of U and computes with more of its own. Each value of T thus has its stated probability
exactly, into the farthest tail, where a walk along a float distribution function would stop at 1 − 2⁻⁵³.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flint import arb, ctx

from dphypo import _validate
from dphypo import entropy as _entropy

if TYPE_CHECKING:
    from dphypo.laws.law import Drawable

_FIRST_BITS = 128
_TIE = 1e-12  # probabilities this close, relatively, are equal: P[T ≤ 1] of the geometric law of mean 2 reaches 0.5


class _UndecidedError(Exception):
    """The balls overlap: more bits are needed."""


def draw(law: Drawable, entropy: _entropy.Entropy) -> int:
    """One T."""
    numerator, count = _entropy.bits(_FIRST_BITS, entropy), _FIRST_BITS
    while True:
        with ctx.workprec(2 * count):
            try:
                return _smallest(law, arb(numerator) / 2**count, arb(numerator + 1) / 2**count)
            except _UndecidedError:
                numerator, count = numerator << count | _entropy.bits(count, entropy), 2 * count


def quantile(law: Drawable, q: float) -> int:
    """The smallest k with P[T ≤ k] ≥ q: accurate for q = 1e-12 and for 1 − q = 1e-12 alike."""
    q = _validate.probability(q=q)
    if q == 1:
        raise _validate.fail("q", q, "this law has no largest value: give q below 1, or law.capped(limit)")
    precision = _FIRST_BITS
    while q > 0:
        with ctx.workprec(precision):
            tail = 1 - arb(q) + _TIE * arb(min(q, 1 - q))
            try:
                return _smallest(law, tail, tail)
            except _UndecidedError:
                precision *= 2
    return law.first


def _smallest(law: Drawable, low: arb, high: arb) -> int:
    """The smallest k with P[T > k] ≤ U, for a U in [low, high), searched upwards and then by bisection."""

    def reaches(k: int) -> bool:
        ball = law.survival(k)
        if ball <= low:
            return True
        if ball >= high:
            return False
        raise _UndecidedError

    below, found, step = law.first - 1, law.first, 1
    while not reaches(found):
        below, step = found, 2 * step
        found = below + step
    while found - below > 1:
        middle = (below + found) // 2
        below, found = (below, middle) if reaches(middle) else (middle, found)
    return found
