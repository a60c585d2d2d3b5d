"""The lower convex hull of points in the plane.

It serves three purposes. The largest convex function below given points is the hull itself. A minimum of lines
s_i v + t_i is attained by the lines whose points (s_i, t_i) are on the falling part of the hull, and a maximum of lines
a_i − z b_i by those whose points (b_i, −a_i) are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_ROUNDS = 24  # of dropping points at once, before those that are left are scanned


def lower_hull(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Indices of the points on the lower convex hull, from left to right; ``x`` does not decrease.

    Slopes are compared, not areas: products of very small coordinates would underflow, and a slope has a small
    relative error whatever the size of the coordinates. Of points with equal ``x`` the lowest counts.

    >>> lower_hull(np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 0.0, 2.0, 1.0]))
    array([0, 1, 3])
    """
    kept = _lowest(x, y)
    for _ in range(_ROUNDS):  # a point that is not below the line through its neighbours is not on the hull
        with np.errstate(all="ignore"):
            slopes = np.diff(y[kept]) / np.diff(x[kept])
        below = np.ones(len(kept), dtype=np.bool_)
        below[1:-1] = slopes[:-1] < slopes[1:]
        if below.all():
            return kept
        kept = kept[below]
    return kept[_scanned(x[kept].tolist(), y[kept].tolist())]


def _lowest(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Indices of the lowest point at every ``x``; of equally low ones, the last."""
    later = x[1:] > x[:-1]
    if later.all():
        return np.arange(len(x))
    order = np.lexsort((-np.arange(len(x)), y, x))
    return np.asarray(order[np.append(True, later)])  # equal x stay together: the first of each group


def _scanned(xs: list[float], ys: list[float]) -> list[int]:
    """The hull by one scan from left to right, for the points that are left; ``xs`` increase."""
    kept: list[int] = []
    slopes: list[float] = []  # from each kept point but the first back to the one before it
    for i in range(len(xs)):
        while kept:
            slope = (ys[i] - ys[kept[-1]]) / (xs[i] - xs[kept[-1]])
            if not slopes or slopes[-1] < slope:
                slopes.append(slope)
                break
            kept.pop()
            slopes.pop()
        kept.append(i)
    return kept


def falling_part(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Indices of the hull from its left end to its lowest point."""
    hull = lower_hull(x, y)
    return hull[: int(np.argmin(y[hull])) + 1]
