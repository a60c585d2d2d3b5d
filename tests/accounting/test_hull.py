"""The lower convex hull against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import ConvexHull

from dphypo.accounting.profiles import falling_part, lower_hull

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


@pytest.mark.parametrize("points", [300, 5000])
@pytest.mark.parametrize("bend", [0.0, 1e-3, 1.0, -1.0])
def test_many_points_have_the_hull_that_quickhull_finds(points, bend):
    """So many that a rough hull is made first: convex, concave, and rough curves."""
    rng = np.random.default_rng(points)
    x = np.sort(rng.random(points))
    y = bend * (x - 0.5) ** 2 + 1e-4 * rng.random(points)
    both = ConvexHull(np.column_stack([x, y])).vertices
    line = np.interp(x[both], x[[0, -1]], y[[0, -1]])
    np.testing.assert_array_equal(lower_hull(x, y), np.sort(both[y[both] <= line]))


def test_coordinates_of_all_sizes_keep_every_corner():
    """δ falls by many orders of magnitude along a profile: a corner near the small end counts as much."""
    x = np.arange(2000.0)
    y = np.exp(-0.3 * x)
    np.testing.assert_array_equal(lower_hull(x, y), np.arange(2000))
