"""Parameters: each one a coordinate of the unit interval, read from the prior that people write.

A dimension is a list of values, or the quantiles of a distribution. A parameter may exist only while another has
certain values; parents come before their children.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo._validate import Floats

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
    raise _validate.fail(where, value, "values are None, bool, int, float, str or tuples of these; give it a name")


def is_number(value: object) -> bool:
    """Whether a plain value is an int or a float; a bool is not a number here."""
    return type(value) in (int, float)


def key(value: Value) -> Hashable:
    """A key that distinguishes values by type and value: True, 1 and 1.0 are three values."""
    return tuple(key(part) for part in value) if isinstance(value, tuple) else (type(value), value)


def is_printable(value: Value) -> bool:
    """Whether every text in a value is printable."""
    return all(map(is_printable, value)) if isinstance(value, tuple) else str(value).isprintable()


def describe(value: Value) -> Any:
    """The value as strict JSON from which it can be read back: tuples and infinities are marked."""
    if isinstance(value, tuple):
        return {"tuple": [describe(part) for part in value]}
    if isinstance(value, float) and math.isinf(value):
        return {"float": repr(value)}
    return value


# The coordinate of an inactive parameter.
MIDDLE = 0.5

# The unit interval is cut into this many cells, and a parameter takes the quantile at the middle of each: the prior
# is then 2³² equally likely values. Few enough that the CDF, with its rounding errors, still separates neighbours:
# that makes encoding and decoding exact inverses, which they cannot be on all floats.
CELLS = 2**32


def from_words(words: npt.NDArray[np.uint64]) -> Floats:
    """The coordinate (2k + 1)/2⁵³ for k the upper 52 bits of a word: exact, and uniform if the word is."""
    return ((words >> np.uint64(11)) | np.uint64(1)).astype(np.float64) * 2.0**-53


def interior(unit: Floats) -> Floats:
    """Moves what lies outside the open interval (0, 1) to its nearest coordinate."""
    return np.clip(unit, 2.0**-53, 1 - 2.0**-53)


def read_only(array: Floats) -> Floats:
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
    masses: Floats
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
    def _cuts(self) -> Floats:
        return np.cumsum(self.masses[self._order])[:-1]

    @cached_property
    def pieces(self) -> tuple[Floats, Floats]:
        """The beginning and the end of each value's piece, in the order of the list."""
        ends = np.concatenate([[0.0], self._cuts, [1.0]])
        low, high = np.empty(self.size), np.empty(self.size)
        low[self._order], high[self._order] = ends[:-1], ends[1:]
        return low, high

    @cached_property
    def centres(self) -> Floats:
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
        """The position of a value in the list."""
        found = self._positions.get(self._key(plain(self.name, value)))
        if found is None:
            shown = ", ".join(map(repr, self.choices[:10])) + (", …" if self.size > 10 else "")
            raise _validate.fail(self.name, value, f"it is one of {shown}")
        return found

    def __contains__(self, value: object) -> bool:
        return self._key(plain(self.name, value)) in self._positions

    def positions(self, unit: Floats) -> npt.NDArray[np.intp]:
        """The positions in the list of the values at these coordinates."""
        return self._order[np.searchsorted(self._cuts, unit, side="right")]

    def values(self, unit: Floats) -> list[Value]:
        """The prior's quantiles at these coordinates."""
        return [self.choices[position] for position in self.positions(unit)]

    def unit(self, values: Sequence[object]) -> Floats:
        """For each value a coordinate with that value; an error names what is not a value of the parameter."""
        return self.centres[np.array([self.position(value) for value in values], dtype=np.intp)]

    def features(self, unit: Floats) -> Floats:
        """The (n, width) features of the values at these coordinates."""
        positions = self.positions(unit)
        if self.ordered:
            return self.centres[positions, None]
        return np.asarray(positions[:, None] == np.arange(self.size), dtype=np.float64)


def finite(where: str, choices: Any, probabilities: object = None) -> Finite:
    """The parameter that takes these choices, with these probabilities."""
    if isinstance(choices, np.ndarray) and choices.ndim != 1:
        raise ValueError(f"{where} has choices of shape {choices.shape}: give a one-dimensional list")
    choices = list(choices)
    values = tuple(plain(where, value) for value in choices)
    for value in values:
        if not is_printable(value):
            raise _validate.fail(where, value, "a choice that is a text has printable characters only")
    if not values:
        raise _validate.fail(where, choices, "give at least one choice")
    found = Finite(where, values, _masses(where, len(values), probabilities), ordered=all(map(is_number, values)))
    for place, value in enumerate(values):
        if found.position(value) != place:
            raise _validate.fail(where, choices, f"{value!r} is listed twice; weigh it by (choices, probabilities)")
    return found


def _masses(where: str, count: int, probabilities: Any) -> Floats:
    if probabilities is None:
        return np.full(count, 1 / count)
    name = f"the probabilities of {where}"
    masses = _validate.vector(length=count, **{name: probabilities})
    if (masses < 1 / CELLS).any():
        remedy = "leave out a choice whose probability is 0; the smallest allowed is 2**-32"
        raise _validate.fail(name, probabilities, remedy)
    total = math.fsum(masses)
    if abs(total - 1) > 1e-9:
        raise _validate.fail(name, probabilities, f"they must sum to 1, not {total:.12g}")
    return masses / total


def _middle(cells: Floats) -> Floats:
    return (cells + 0.5) / CELLS


def _cell(unit: Floats) -> Floats:
    return np.clip(np.floor(unit * CELLS), 0, CELLS - 1)


@dataclass(frozen=True, eq=False)
class Quantiles:
    """A continuous distribution, or one of very many integers (``whole``)."""

    name: str
    prior: Any  # a frozen distribution of scipy.stats
    whole: bool

    size = None
    ordered = True
    width = 1

    @cached_property
    def _support(self) -> tuple[float, float]:
        low, high = self.prior.support()
        return float(low), float(high)

    def _quantile(self, cells: Floats) -> Floats:
        """The value of each cell; rounding in the quantile function may not leave the support."""
        return np.clip(np.asarray(self.prior.ppf(_middle(cells)), dtype=np.float64), *self._support)

    def values(self, unit: Floats) -> list[Value]:
        quantiles = self._quantile(_cell(unit))
        return [int(q) for q in quantiles] if self.whole else quantiles.tolist()

    def _checked(self, value: object) -> float:
        low, high = self._support
        value = plain(self.name, value)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high:
            number = _validate.number(**{self.name: value})
            if not self.whole or number.is_integer():
                return number
        wanted = "a whole number" if self.whole else "a number"
        raise _validate.fail(self.name, value, f"its prior gives {wanted} between {low:g} and {high:g}")

    def unit(self, values: Sequence[object]) -> Floats:
        wanted = np.array([self._checked(value) for value in values], dtype=np.float64)
        below = self.prior.cdf(wanted - 1) if self.whole else self.prior.cdf(wanted)
        cells = _cell((below + self.prior.cdf(wanted)) / 2)
        off = self._quantile(cells) != wanted
        if off.any():  # the CDF is less accurate here than a cell is wide
            cells[off] = self._search(wanted[off], cells[off])
        return _middle(cells)

    def _search(self, wanted: Floats, otherwise: Floats) -> Floats:
        """The first cell with the wanted value, by bisection; ``otherwise``, the cell it falls in, if none has it."""
        low, high = np.zeros_like(wanted), np.full_like(wanted, CELLS - 1)
        while (low < high).any():
            middle = np.floor((low + high) / 2)
            reached = self._quantile(middle) >= wanted
            low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
        return np.where(self._quantile(low) == wanted, low, otherwise)

    def features(self, unit: Floats) -> Floats:
        if self.whole:  # all coordinates of one integer share one feature
            distinct, inverse = np.unique(self._quantile(_cell(unit)), return_inverse=True)
            return self.unit([int(value) for value in distinct])[inverse, None]
        return _middle(_cell(unit))[:, None]


Dimension: TypeAlias = Finite | Quantiles
"""One parameter. Its prior is uniform in ``unit``; every other map goes through that coordinate.

``size`` is None where the values are too many to list. If ``ordered``, an interval of coordinates is a meaningful cell.
"""


def ends(dimension: Dimension) -> list[Value]:
    """The first and the last value that the prior draws: of an unbounded one, less than its support."""
    return dimension.values(interior(np.array([0.0, 1.0])))


def nearest_value(dimension: Dimension, wanted: float) -> Any:
    """The nearest of the numbers that a parameter can have."""
    if isinstance(dimension, Finite):
        return min(dimension.choices, key=lambda level: abs(level - wanted))  # type: ignore[operator]
    low, high = ends(dimension)
    within = min(max(wanted, low), high)  # type: ignore[type-var]
    return round(within) if dimension.whole else float(within)  # type: ignore[arg-type]


PRIORS = (
    "give a frozen distribution of scipy.stats, a list of choices, or a tuple (choices, probabilities); "
    "dphypo.Space.from_optuna converts a space of Optuna"
)

Parameters: TypeAlias = "tuple[Parameter, ...]"

COLUMNS = ("score", "status")
"""The columns of a table besides the parameters."""

MOST_LISTED = 2**16
"""Integers up to this many are listed, with their masses; more are read off the quantile function."""


@dataclass(frozen=True, eq=False)
class Parameter:
    """A named dimension, and when it is active: always, or when its parent takes one of some values."""

    name: str
    dimension: Dimension
    description: dict[str, Any]
    parent: int | None = None  # the parent's place among the parameters of the space
    cases: tuple[int, ...] = ()  # which of the parent's choices, by their place in its list

    def __repr__(self) -> str:
        """The prior, as it was written."""
        if isinstance(self.dimension, Finite) and "distribution" not in self.description:
            choices = repr(list(self.dimension.choices))
            probabilities = self.description.get("probabilities")
            return f"({choices}, {probabilities})" if probabilities else choices
        arguments = ", ".join(f"{name}={value}" for name, value in self.description["arguments"].items())
        return f"{self.description['distribution']}({arguments})"


def check_name(name: object) -> str:
    """The name of a parameter, refused unless it is printable: a table, a file or a page must show it as it is."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ValueError(f"parameter name {name!r} is not valid: names are non-empty strings of printable characters")
    if name in COLUMNS:
        remedy = f"it is a column of the table of a survey; give another name, such as {name}_parameter"
        raise ValueError(f"parameter name {name!r} is not valid: {remedy}")
    return name


def read(name: object, given: Any) -> Parameter:
    """One parameter from its name and prior."""
    name = check_name(name)
    where = f"parameter {name!r}"
    listed = isinstance(given, (list, range, np.ndarray))
    if listed or isinstance(given, tuple):
        parts = (given, []) if listed else given
        if len(parts) != 2 or not all(isinstance(part, (list, range, np.ndarray, tuple)) for part in parts):
            remedy = (
                "write a range as scipy.stats.loguniform(low, high) or uniform(low, high - low), and choices as a "
                "list; a tuple is (choices, probabilities), two lists"
            )
            raise _validate.fail(where, given, remedy)
        choices = finite(where, parts[0], None if listed else parts[1])
        description: dict[str, Any] = {"choices": [describe(value) for value in choices.choices]}
        if np.ptp(choices.masses) > 0:
            description["probabilities"] = choices.masses.tolist()
        return Parameter(name, choices, description)
    if hasattr(given, "ppf") and hasattr(given, "dist"):
        dimension = _dimension(where, given)
        return Parameter(name, dimension, _describe(given, dimension))
    if hasattr(given, "ppf"):
        called = getattr(given, "name", "distribution")
        raise ValueError(f"{where} has a distribution without its arguments: call it, as in {called}(...)")
    if hasattr(given, "rvs") or hasattr(given, "icdf"):
        raise _validate.fail(where, given, f"a prior needs one dimension and a quantile function; {PRIORS}")
    if isinstance(given, (bool, int, float, str, type(None))):
        raise _validate.fail(where, given, f"to fix a parameter write a list of one value, [{given!r}]")
    raise _validate.fail(where, given, PRIORS)


def _dimension(where: str, prior: Any) -> Dimension:
    """The parameter with this distribution: a list of levels if it is discrete and short enough."""
    if any(np.ndim(argument) for argument in (*prior.args, *prior.kwds.values())):
        raise ValueError(f"{where} has a distribution with an array as argument: give each parameter its own prior")
    whole = hasattr(prior, "pmf")
    with np.errstate(all="ignore"):
        # Scipy walks along the tail of a discrete distribution to find a quantile: refuse a walk without end.
        if whole and np.isinf(prior.support()).any() and not math.isfinite(prior.std()):
            raise ValueError(f"{where} has a prior without a finite variance: cut it, or list (choices, probabilities)")
        try:
            low, middle, high = np.asarray(prior.ppf([0.5 / CELLS, MIDDLE, 1 - 0.5 / CELLS]), dtype=np.float64)
        except Exception as error:  # scipy's solver, or a user's distribution
            remedy = "check the distribution's arguments, or list (choices, probabilities)"
            raise ValueError(f"{where} has no usable prior: its quantiles raise {error!r}; {remedy}") from error
    if not (np.isfinite([low, high]).all() and low <= middle <= high):
        quantiles = f"its lowest, middle and highest quantiles are {low:g}, {middle:g} and {high:g}"
        raise ValueError(f"{where} has no usable prior: {quantiles}; check the distribution's arguments")
    if not whole or int(high) - int(low) >= MOST_LISTED:
        return Quantiles(where, prior, whole)
    integers = np.arange(int(low), int(high) + 1)
    masses = np.asarray(prior.pmf(integers), dtype=np.float64)
    kept = masses >= 1 / CELLS  # rarer ones do not happen in a search
    total = math.fsum(masses[kept])
    if total < 0.999:
        raise ValueError(f"{where} has a prior on values that are not integers: list (choices, probabilities)")
    return Finite(where, tuple(integers[kept].tolist()), masses[kept] / total, ordered=True)


def _describe(prior: Any, dimension: Dimension) -> dict[str, Any]:
    """Name and arguments, however they were passed; for a distribution that is not scipy's, its content as well."""
    import scipy.stats

    family = prior.dist
    discrete = hasattr(prior, "pmf")
    names = [*(family.shapes or "").replace(" ", "").split(","), "loc", *([] if discrete else ["scale"])]
    named = dict(zip([name for name in names if name], prior.args, strict=False)) | prior.kwds
    arguments = {name: _argument(named[name]) for name in names if name in named}
    arguments = {name: value for name, value in arguments.items() if (name, value) not in (("loc", 0), ("scale", 1))}
    description: dict[str, Any] = {"distribution": family.name, "arguments": arguments}
    ours = type(family).__module__.startswith("dphypo.")
    if ours or type(family) is type(getattr(scipy.stats, family.name, None)):
        return description
    description["distribution"] = f"{type(family).__module__}.{type(family).__qualname__}"
    if isinstance(dimension, Finite):
        content = {"choices": list(dimension.choices), "probabilities": dimension.masses.tolist()}
    else:
        content = {"quantiles": np.asarray(prior.ppf(np.arange(1, 64) / 64), dtype=np.float64).tolist()}
    return description | content


def _argument(value: Any) -> float | int | str:
    """One spelling per number: 10 and 10.0 describe the same prior. JSON has no infinity, so that is a word."""
    number = float(value)
    if math.isinf(number):
        return repr(number)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def read_all(given: Mapping[str, Any]) -> Parameters:
    """The parameters of a space from the dict people write."""
    if not isinstance(given, Mapping) or not given:
        raise _validate.fail("parameters", given, 'give a dict of name to prior, such as {"lr": loguniform(1e-4, 10)}')
    return tuple(read(name, prior) for name, prior in given.items())


def under(child: Parameter, parameters: Sequence[Parameter], place: int, values: Sequence[object]) -> Parameter:
    """The parameter, active while the one at ``place`` has one of these values."""
    parent, dimension = parameters[place].name, parameters[place].dimension
    if not isinstance(dimension, Finite):
        raise _validate.fail("parent", parent, "it must have a list of values; for ranges make them a parameter")
    cases = tuple(sorted({dimension.position(value) for value in values}))
    condition = {"parent": parent, "values": [describe(dimension.choices[case]) for case in cases]}
    return replace(child, description=child.description | {"when": condition}, parent=place, cases=cases)


def values_of(parent: Parameter, cases: tuple[int, ...]) -> list[Value]:
    """The values of the parent with which a parameter is active."""
    assert isinstance(parent.dimension, Finite)
    return [parent.dimension.choices[case] for case in cases]
