"""Noise between the levels at which a landscape was trained, by the cost at those levels."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.interpolate import PchipInterpolator


def noise_between(levels: npt.ArrayLike, costs: npt.ArrayLike, epsilon: float) -> float:
    """The noise multiplier of cost ε: a monotone cubic of log σ against log ε.

    Args:
        levels: increasing noise multipliers.
        costs: the cost at each.
        epsilon: a cost between the first and the last.

    >>> round(noise_between([1.0, 2.0, 4.0], [8.0, 4.0, 2.0], 5.0), 6)
    1.6
    """
    falling = PchipInterpolator(np.log(np.asarray(costs)[::-1]), np.log(np.asarray(levels)[::-1]))
    return float(np.exp(falling(math.log(epsilon))))
