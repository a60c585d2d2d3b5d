"""The float half way between two others."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from dphypo._validate import half_way

floats = st.floats(allow_nan=False, allow_infinity=False)


@given(floats, floats)
def test_it_lies_between_and_bisection_ends(a, b):
    low, high = min(a, b), max(a, b)
    for _ in range(70):
        middle = half_way(low, high)
        assert low <= middle <= high
        if not low < middle < high:
            break
        low = middle
    assert high == math.nextafter(low, math.inf) or high == low or (low, high) == (0.0, 0.0)
