"""Quantiles of T, and exact draws, by inverting its distribution function in ball arithmetic.

U is uniform in [0, 1) and never rounded: after b bits it is known to lie in [n, n+1)/2^b. T is the smallest k with
P[T > k] ≤ U. FLINT's balls enclose P[T > k] with certainty, so a comparison that is decided is right. One that is not
decided reveals more bits of U and computes with more of its own. Each value of T thus has its stated probability
exactly, into the farthest tail, where a walk along a float distribution function would stop at 1 − 2⁻⁵³.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from flint import arb, ctx

from dphypo import _validate
from dphypo import entropy as _entropy

if TYPE_CHECKING:
    from dphypo.laws.law import Cuttable, Drawable

_FIRST_BITS = 128
_STARTS = 64  # a draw starts its search at the nearest of this many quantiles
_TIE = 1e-12  # probabilities this close, relatively, are equal: P[T ≤ 1] of the geometric law of mean 2 reaches 0.5


class _UndecidedError(Exception):
    """The balls overlap: more bits are needed."""


def draw(law: Drawable, entropy: _entropy.Entropy) -> int:
    """One T."""
    numerator, count = _entropy.bits(_FIRST_BITS, entropy), _FIRST_BITS
    start = _guess(law, numerator / 2**count)
    while True:
        with ctx.workprec(2 * count):
            low, high = arb(numerator) / 2**count, arb(numerator + 1) / 2**count
            try:
                return _smallest(functools.partial(_reaches, law, low, high), start, law.first)
            except _UndecidedError:
                numerator, count = numerator << count | _entropy.bits(count, entropy), 2 * count


def _guess(law: Drawable, u: float) -> int:
    """About where P[T > k] falls to u. It decides how long a draw takes and nothing else."""
    k = _quantile(law, min(int(_STARTS * u), _STARTS - 1))  # u rounds to 1 where all its bits are ones
    for _ in range(3):  # Newton's method
        with ctx.workprec(_FIRST_BITS):
            slope, gap = float(law.pmf(k)), float(law.survival(k)) - u
        if slope < 1e-200 or not slope < abs(gap) <= 1:
            break
        k = max(law.first, k // 2, min(2 * k + 4, k + round(gap / slope)))
    return k


@functools.lru_cache(maxsize=64 * _STARTS)
def _quantile(law: Drawable, part: int) -> int:
    return law.quantile(1 - (part + 0.5) / _STARTS)


def _reaches(law: Drawable, low: arb, high: arb, k: int) -> bool:
    """Whether P[T > k] is at most U, which lies in [low, high)."""
    ball = law.survival(k)
    if ball <= low:
        return True
    if ball >= high:
        return False
    raise _UndecidedError


def _smallest(holds: Callable[[int], bool], start: int, first: int) -> int:
    """The smallest k ≥ ``first`` at which a monotone ``holds`` is true, searched outwards from ``start``."""
    step = 1
    if holds(start):
        high, low = start, start - 1
        while low >= first and holds(low):
            high, step = low, 2 * step
            low = high - step
        low = max(low, first - 1)
    else:
        low, high = start, start + 1
        while not holds(high):
            low, step = high, 2 * step
            high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def quantile(law: Cuttable, q: float, limit: int | None = None) -> int:
    """The smallest k with P[T ≤ k | T ≤ limit] ≥ q.

    The smaller of P[T ≤ k] and P[T > k] is used, so that 1 − q = 1e-12 is met as accurately as q = 1e-12.
    """
    q = _validate.probability(q=q)
    if q == 1 and limit is None:
        raise _validate.fail("q", q, "this law has no largest value; give q below 1, or cap the law")
    log_q = math.log(q) if q else -math.inf
    if limit is None:
        enough, few = log_q, math.log1p(-q)
    else:
        total = law.log_head(limit)
        beyond = (1 - q) * math.exp(total) + math.exp(law.log_tail(limit))
        enough, few = log_q + total, math.log(beyond) if beyond else -math.inf

    def reaches(k: int) -> bool:
        if limit is not None and k >= limit:
            return True
        tail = law.log_tail(k)
        return tail <= few + _TIE if tail < -math.log(2) else law.log_head(k) >= enough - _TIE

    return _smallest(reaches, law.first, law.first)
