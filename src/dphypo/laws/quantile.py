"""Quantiles of a law from the logarithms of its two tails."""

from __future__ import annotations

import math
from collections.abc import Callable

from dphypo import _validate

_TIE = 1e-12  # probabilities this close, relatively, are equal: P[T ≤ 1] of the geometric law of mean 2 reaches 0.5


def quantile(
    q: float,
    *,
    first: int,
    log_head: Callable[[int], float],
    log_tail: Callable[[int], float],
    limit: int | None = None,
) -> int:
    """The smallest k ≥ ``first`` with P[T ≤ k | T ≤ limit] ≥ q, by doubling and halving.

    ``log_head(k)`` is log P[T ≤ k] and ``log_tail(k)`` log P[T > k]; each is used where it is the smaller, so that
    1 − q = 1e-12 is met as accurately as q = 1e-12.
    """
    q = _validate.probability(q=q)
    if q == 1 and limit is None:
        raise _validate.fail("q", q, "this law has no largest value; give q below 1, or cap the law")
    log_q = math.log(q) if q else -math.inf
    if limit is None:
        enough, few = log_q, math.log1p(-q)
    else:
        total = log_head(limit)
        beyond = (1 - q) * math.exp(total) + math.exp(log_tail(limit))
        enough, few = log_q + total, math.log(beyond) if beyond else -math.inf

    def reaches(k: int) -> bool:
        if limit is not None and k >= limit:
            return True
        tail = log_tail(k)
        return tail <= few + _TIE if tail < -math.log(2) else log_head(k) >= enough - _TIE

    if reaches(first):
        return first
    step = 1
    while not reaches(first + step):
        step *= 2
    low, high = first + step // 2, first + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high if limit is None else min(high, limit)
