"""The root of a function of one variable that crosses zero once, from below."""

from __future__ import annotations

import math
from collections.abc import Callable

from dphypo._floats import half_way


def crossing(
    evaluate: Callable[[float], tuple[float, float]], start: float, low: float, high: float, tolerance: float
) -> float:
    """Where ``evaluate`` crosses zero between ``low`` and ``high``: Newton's method inside a shrinking bracket.

    ``evaluate(x)`` gives the value and the slope there; the value is below zero left of the crossing and above zero
    right of it. Newton's step is exact once it is taken on the linear piece that holds the root, so a piecewise linear
    function ends on its root up to rounding. Where a step leaves the bracket, or the last two have not halved the
    value, the bracket is halved instead: in turn at its mean, which suits a root of ordinary size, and at the float
    half way through the floats it holds, after at most 64 of which no float is left. So the search ends whatever the
    function.

    >>> round(crossing(lambda x: (x * x - 2.0, 2.0 * x), 1.0, 0.0, 2.0, 1e-15), 12)
    1.414213562373
    """
    x, by_mean = min(max(start, low), high), True
    older = previous = math.inf
    while True:
        value, slope = evaluate(x)
        if abs(value) <= tolerance:
            return x
        if value < 0:
            low = x
        else:
            high = x
        step = x - value / slope if slope > 0 else math.nan
        if low < step < high and abs(value) <= older / 2:
            x, older, previous = step, previous, abs(value)
            continue
        x = 0.5 * low + 0.5 * high if by_mean else half_way(low, high)
        older = previous = math.inf
        by_mean = not by_mean
        if not low < x < high:
            x = half_way(low, high)
            if not low < x < high:  # neighbouring floats: the crossing lies between them
                return low
