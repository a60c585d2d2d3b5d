"""Parameters, read from the priors that people write, and those that exist only while another has certain values.

Parents stand before their children.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from dphypo import _validate
from dphypo.space.dimension import CELLS, MIDDLE, Dimension, Finite, Quantiles, Value, describe, finite

PRIORS = "give a frozen distribution of scipy.stats, a list of choices, or a tuple (choices, probabilities)"

Parameters: TypeAlias = "tuple[Parameter, ...]"

COLUMNS = ("score", "status")
"""What a table has besides the parameters."""

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
        """What was written for it."""
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
            remedy = "a tuple is (choices, probabilities), two lists; write choices as a list"
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
        except Exception as error:  # scipy's solver, or a distribution of one's own
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
