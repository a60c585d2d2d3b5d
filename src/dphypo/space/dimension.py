"""Plain values, coordinates of the unit interval, and parameters with finitely many values."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
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


@dataclass(frozen=True, eq=False)
class Finite:
    """Values with prior masses, kept in the order given.

    The unit interval is cut into one piece per value, as long as its mass: in increasing order of the values where
    they are ``ordered`` (numbers), else as listed. The feature of a level is the middle of its piece; a category has
    one column per value.
    """

    name: str
    choices: tuple[Value, ...]
    masses: Array
    ordered: bool

    @property
    def size(self) -> int:
        return len(self.choices)

    @property
    def width(self) -> int:
        return 1 if self.ordered else self.size

    @cached_property
    def _order(self) -> npt.NDArray[np.intp]:
        """Positions in the list, in the order of the pieces of the unit interval."""
        listed: list[Any] = list(self.choices)
        positions = sorted(range(self.size), key=listed.__getitem__) if self.ordered else range(self.size)
        return np.array(positions, dtype=np.intp)

    @cached_property
    def _cuts(self) -> Array:
        return np.cumsum(self.masses[self._order])[:-1]

    @cached_property
    def pieces(self) -> tuple[Array, Array]:
        """Where each value's piece begins and ends, in the order of the list."""
        ends = np.concatenate([[0.0], self._cuts, [1.0]])
        low, high = np.empty(self.size), np.empty(self.size)
        low[self._order], high[self._order] = ends[:-1], ends[1:]
        return low, high

    @cached_property
    def centres(self) -> Array:
        """The middle of each value's piece, in the order of the list."""
        low, high = self.pieces
        return (low + high) / 2

    @cached_property
    def _positions(self) -> dict[Hashable, int]:
        return {self._key(value): position for position, value in enumerate(self.choices)}

    def _key(self, value: Value) -> Hashable:
        """Levels are compared as numbers, 64.0 being 64; categories by type and value."""
        return value if self.ordered and is_number(value) else key(value)

    def position(self, value: object) -> int:
        """Where in the list a value stands."""
        found = self._positions.get(self._key(plain(self.name, value)))
        if found is None:
            shown = ", ".join(map(repr, self.choices[:10])) + (", …" if self.size > 10 else "")
            raise _validate.fail(self.name, value, f"it is one of {shown}")
        return found

    def positions(self, unit: Array) -> npt.NDArray[np.intp]:
        """Where in the list the values at these coordinates stand."""
        return self._order[np.searchsorted(self._cuts, unit, side="right")]

    def values(self, unit: Array) -> list[Value]:
        return [self.choices[position] for position in self.positions(unit)]

    def unit(self, values: Sequence[object]) -> Array:
        return self.centres[np.array([self.position(value) for value in values], dtype=np.intp)]

    def features(self, unit: Array) -> Array:
        positions = self.positions(unit)
        if self.ordered:
            return self.centres[positions, None]
        return np.asarray(positions[:, None] == np.arange(self.size), dtype=np.float64)

    def coordinates(self, features: Array) -> Array:
        return features[:, 0] if self.ordered else self.centres[np.argmax(features, axis=1)]


def finite(where: str, choices: Sequence[object], probabilities: object = None) -> Finite:
    """The parameter that takes these choices, with these probabilities."""
    values = tuple(plain(where, value) for value in choices)
    for value in values:
        if not all(text.isprintable() for text in texts(value)):
            raise _validate.fail(where, value, "a choice that is a text has printable characters only")
    if not values:
        raise _validate.fail(where, choices, "give at least one choice")
    ordered = all(is_number(value) for value in values)
    seen: set[Hashable] = set()
    for value in values:
        identity: Hashable = value if ordered else key(value)
        if identity in seen:
            raise _validate.fail(where, choices, f"{value!r} is listed twice; weigh it by (choices, probabilities)")
        seen.add(identity)
    return Finite(where, values, _masses(where, len(values), probabilities), ordered)


def _masses(where: str, count: int, probabilities: Any) -> Array:
    if probabilities is None:
        return np.full(count, 1 / count)
    masses = _validate.vector(length=count, **{f"the probabilities of {where}": probabilities})
    if (masses < 1 / CELLS).any():
        remedy = "leave out a choice whose probability is 0; the smallest allowed is 2**-32"
        raise _validate.fail(f"the probabilities of {where}", probabilities, remedy)
    total = math.fsum(masses)
    if abs(total - 1) > 1e-9:
        raise _validate.fail(f"the probabilities of {where}", probabilities, f"they must sum to 1, not {total:.12g}")
    return masses / total


def describe_choices(dimension: Finite) -> dict[str, Any]:
    """The choices with their types, and their probabilities where they differ."""
    description: dict[str, Any] = {"choices": [describe(value) for value in dimension.choices]}
    if np.ptp(dimension.masses) > 0:
        description["probabilities"] = dimension.masses.tolist()
    return description
