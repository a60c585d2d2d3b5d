"""The lower convex envelope of points: profiles are convex in e^ε, so that the envelope of a bound is a bound."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dphypo.accounting.profiles import Floats


def lower_hull(x: Floats, y: Floats) -> npt.NDArray[np.intp]:
    """Which points are the corners of the largest convex function that lies below all of them; ``x`` increases.

    A corner that rounding drops or keeps by mistake leaves chords between some of the points, which lie above the
    convex function that the points bound: any choice is safe, this one is the lowest.

    >>> lower_hull(np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 0.9, 0.2, 0.1]))
    array([0, 2, 3])
    """
    kept: list[int] = []
    points_x, points_y = x.tolist(), y.tolist()
    for i in range(len(points_x)):
        while len(kept) > 1:
            p, q = kept[-2], kept[-1]
            rise = (points_y[q] - points_y[p]) * (points_x[i] - points_x[p])
            if rise >= (points_y[i] - points_y[p]) * (points_x[q] - points_x[p]):
                kept.pop()
            else:
                break
        kept.append(i)
    return np.array(kept, dtype=np.intp)
