"""The lower convex hull against its definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dphypo.accounting.hull import falling_part, lower_hull

points = st.lists(st.tuples(st.integers(0, 20), st.integers(-20, 20)), min_size=1, max_size=12).map(sorted)


@given(points)
def test_the_hull_is_below_every_point_and_touches_its_own(given_points):
    x, y = np.array(given_points, dtype=np.float64).T
    hull = lower_hull(x, y)
    below = np.interp(x, x[hull], y[hull])
    assert (below <= y + 1e-9).all()
    assert (np.diff(x[hull]) > 0).all()
    slopes = np.diff(y[hull]) / np.diff(x[hull])
    assert (np.diff(slopes) > 0).all()


@given(points, st.integers(0, 40))
def test_a_minimum_of_lines_is_attained_on_the_falling_part(given_points, v):
    slopes, intercepts = np.array(given_points, dtype=np.float64).T
    kept = falling_part(slopes, intercepts)
    assert np.min(slopes[kept] * v + intercepts[kept]) == np.min(slopes * v + intercepts)


def test_very_small_coordinates_do_not_underflow():
    x, y = np.array([0.0, 1e-200, 2e-200, 3e-200]), np.array([1e-200, 1e-210, 0.9e-210, 0.0])
    np.testing.assert_array_equal(lower_hull(x, y), [0, 1, 3])
