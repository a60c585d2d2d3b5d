"""What every kind of parameter can do: maps between values, the unit interval and features.

Values are plain Python ones that every process and every journal spells the same way. Coordinates of the unit cube are
odd multiples of 2⁻⁵³, so that none is 0 or 1, where a quantile may be infinite.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from dphypo import _validate


class Dimension(Protocol):
    """One parameter. Its prior is uniform in ``unit``; every other map goes through that coordinate."""

    @property
    def size(self) -> int | None:
        """The number of values, or None where they are too many to list."""

    @property
    def ordered(self) -> bool:
        """Whether nearby coordinates mean nearby values, so that an interval of them is a meaningful cell."""

    @property
    def width(self) -> int:
        """The number of feature columns."""

    def values(self, unit: Array) -> list[Value]:
        """The prior's quantiles at these coordinates."""

    def unit(self, values: Sequence[object]) -> Array:
        """For each value a coordinate with that value; an error names what is not a value of the parameter."""

    def features(self, unit: Array) -> Array:
        """The (n, width) features of the values at these coordinates."""

    def coordinates(self, features: Array) -> Array:
        """Coordinates whose features are, as nearly as possible, these."""


Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | None"


def plain(where: str, value: object) -> Value:
    """The value as a plain Python one: numpy scalars are unwrapped, lists (what JSON makes of tuples) become tuples."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (tuple, list)):
        return tuple(plain(where, part) for part in value)
    if type(value) is float and math.isnan(value):
        raise _validate.fail(where, value, "NaN equals nothing, itself included; use None for a missing value")
    if value is None or type(value) in (bool, int, float, str):
        return value  # type: ignore[return-value]
    raise _validate.fail(
        where, value, "values are None, bool, int, float, str or tuples of these; give it a name and look that up"
    )


def is_number(value: object) -> bool:
    """Whether a plain value is an int or a float; a bool is not a number here."""
    return type(value) in (int, float)


def key(value: Value) -> Hashable:
    """What tells values apart: type and value, so that True, 1 and 1.0 are three values."""
    return tuple(key(part) for part in value) if isinstance(value, tuple) else (type(value), value)


def texts(value: Value) -> Iterator[str]:
    """The texts in a value."""
    if isinstance(value, tuple):
        for part in value:
            yield from texts(part)
    elif isinstance(value, str):
        yield value


def describe(value: Value) -> Any:
    """The value as strict JSON from which it can be read back: tuples and infinities are marked."""
    if isinstance(value, tuple):
        return {"tuple": [describe(part) for part in value]}
    if isinstance(value, float) and math.isinf(value):
        return {"float": repr(value)}
    return value


Array: TypeAlias = npt.NDArray[np.float64]

# Where a coordinate that means nothing rests.
MIDDLE = 0.5

# The unit interval is cut into this many cells, and a parameter takes the quantile at the middle of each: the prior
# is then 2³² equally likely values. So few that the CDF, with its rounding errors, still tells neighbours apart: that
# is what makes encoding and decoding exact inverses, which they cannot be on all floats.
CELLS = 2**32
SHORTEST = 0.5 / CELLS


def ends(dimension: Dimension) -> list[Value]:
    """The first and the last value that the prior draws: of an unbounded one, less than its support."""
    return dimension.values(interior(np.array([0.0, 1.0])))


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
