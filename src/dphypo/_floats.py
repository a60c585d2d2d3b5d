"""Bisection in float order: at most 64 steps."""

from __future__ import annotations

import math
import struct


def half_way(low: float, high: float) -> float:
    """The middle of the floats between ``low`` and ``high``: as many lie below it as above, give or take one."""
    middle = (_rank(low) + _rank(high)) // 2
    size: float = struct.unpack("<d", struct.pack("<q", abs(middle)))[0]
    return math.copysign(size, middle)


def _rank(x: float) -> int:
    """The number of floats between 0 and x, with the sign of x."""
    (size,) = struct.unpack("<q", struct.pack("<d", abs(x)))
    return int(math.copysign(1, x)) * int(size)
