"""The float half way between two floats, counted in floats: bisection with it ends after at most 64 steps."""

from __future__ import annotations

import math
import struct


def half_way(low: float, high: float) -> float:
    """The float with as many floats between it and ``low`` as between it and ``high``, one more or less."""
    middle = (_rank(low) + _rank(high)) // 2
    size: float = struct.unpack("<d", struct.pack("<q", abs(middle)))[0]
    return math.copysign(size, middle)


def _rank(x: float) -> int:
    """The number of floats between 0 and x, with the sign of x: ordered as the floats are."""
    (size,) = struct.unpack("<q", struct.pack("<d", abs(x)))
    return int(math.copysign(1, x)) * int(size)
