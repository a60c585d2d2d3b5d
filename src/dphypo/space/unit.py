"""Coordinates of the unit cube: odd multiples of 2⁻⁵³, so that none is 0 or 1, where a quantile may be infinite."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]

# Where a coordinate that means nothing rests.
MIDDLE = 0.5

# The unit interval is cut into this many cells, and a parameter takes the quantile at the middle of each: the prior
# is then 2³² equally likely values. So few that the CDF, with its rounding errors, still tells neighbours apart: that
# is what makes encoding and decoding exact inverses, which they cannot be on all floats.
CELLS = 2**32
SHORTEST = 0.5 / CELLS


def from_words(words: npt.NDArray[np.uint64]) -> Array:
    """The coordinate (2k + 1)/2⁵³ for k the upper 52 bits of a word: exact, and uniform if the word is."""
    return ((words >> np.uint64(11)) | np.uint64(1)).astype(np.float64) * 2.0**-53


def interior(unit: Array) -> Array:
    """Moves what lies outside the open interval (0, 1) to its nearest coordinate."""
    return np.clip(unit, 2.0**-53, 1 - 2.0**-53)


def read_only(array: Array) -> Array:
    """The same array, protected from being written to."""
    array.flags.writeable = False
    return array
