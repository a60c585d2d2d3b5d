"""The one-dimensional search of the accountant: the answer is the end of its bracket that is on the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.optimize import toms748

_PRECISION = 1e-6


def smallest(delta_at: Callable[[float], float], delta: float, *, top: float) -> float:
    """The smallest ε ≥ 0 at which a non-increasing function is at most ``delta``, rounded up by at most 2e-6.

    ``top`` is where the function has come to rest: if it is above ``delta`` even there, the answer is infinite. The
    ε returned has itself been evaluated.
    """
    if delta_at(0.0) <= delta:
        return 0.0
    high = max(top, _PRECISION)
    if delta_at(high) > delta:
        return math.inf
    if delta == 0.0:
        return _bisect(delta_at, high)
    least = math.ulp(0.0)  # δ can be zero, its logarithm cannot
    root = toms748(lambda eps: math.log(max(delta_at(eps), least)) - math.log(delta), 0.0, high, xtol=_PRECISION / 4)
    step = _PRECISION / 2
    epsilon = min(float(root) + step, high)
    while delta_at(epsilon) > delta:
        step *= 2
        epsilon = min(epsilon + step, high)
    return epsilon


def _bisect(delta_at: Callable[[float], float], high: float) -> float:
    """The end of the support, from above: δ = 0 has no logarithm."""
    low = 0.0
    while high - low > _PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > 0 else (low, middle)
    return high
