"""The lower convex hull of points in the plane.

It serves three purposes. The largest convex function below given points is the hull itself. A minimum of lines
s_i v + t_i is attained by the lines whose points (s_i, t_i) are on the falling part of the hull, and a maximum of lines
a_i − z b_i by those whose points (b_i, −a_i) are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def lower_hull(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Indices of the points on the lower convex hull, from left to right; ``x`` does not decrease.

    Slopes are compared, not areas: products of very small coordinates would underflow. Of points with equal ``x`` the
    lowest counts.

    >>> lower_hull(np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 0.0, 2.0, 1.0]))
    array([0, 1, 3])
    """
    kept: list[int] = []
    slopes: list[float] = []  # from each kept point but the first back to the one before it
    xs, ys = x.tolist(), y.tolist()
    for i in range(len(xs)):
        while kept and xs[kept[-1]] == xs[i] and ys[i] <= ys[kept[-1]]:
            kept.pop()
            if slopes:
                slopes.pop()
        if kept and xs[kept[-1]] == xs[i]:
            continue
        while kept:
            slope = (ys[i] - ys[kept[-1]]) / (xs[i] - xs[kept[-1]])
            if not slopes or slopes[-1] < slope:
                slopes.append(slope)
                break
            kept.pop()
            slopes.pop()
        kept.append(i)
    return np.array(kept, dtype=np.intp)


def falling_part(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Indices of the hull from its left end to its lowest point."""
    hull = lower_hull(x, y)
    return hull[: int(np.argmin(y[hull])) + 1]
