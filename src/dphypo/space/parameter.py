"""Parameters with their priors, and those that exist only while another has certain values.

Rows of the unit cube, of parameters and of features belong together. Parents stand before their children. The cube has
a coordinate for every parameter; that of an inactive one is ignored, and its features rest at a neutral constant: the
parent's features say that it is inactive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.space import distribution
from dphypo.space.dimension import MIDDLE, Array, Dimension, Finite, describe, describe_choices, finite, interior

PRIORS = "give a frozen distribution of scipy.stats, a list of choices, or a tuple (choices, probabilities)"

Parameters: TypeAlias = "tuple[Parameter, ...]"
Params: TypeAlias = dict[str, Any]

COLUMNS = ("score", "status")
"""What a table has besides the parameters."""


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
        raise ValueError(
            f"parameter name {name!r} is not valid: it is a column of the table of a survey; give another name, such "
            f"as {name}_parameter"
        )
    return name


def read(name: object, given: Any) -> Parameter:
    """One parameter from its name and prior."""
    name = check_name(name)
    where = f"parameter {name!r}"
    if isinstance(given, (list, range, np.ndarray)):
        listed = finite(where, _listed(where, given))
        return Parameter(name, listed, describe_choices(listed))
    if isinstance(given, tuple):
        if len(given) != 2 or not all(isinstance(part, (list, range, np.ndarray, tuple)) for part in given):
            raise _validate.fail(
                where, given, "a tuple is (choices, probabilities), two lists; write choices as a list"
            )
        listed = finite(where, _listed(where, given[0]), given[1])
        return Parameter(name, listed, describe_choices(listed))
    if hasattr(given, "ppf") and hasattr(given, "dist"):
        dimension = distribution.dimension(where, given)
        return Parameter(name, dimension, distribution.describe(given, dimension))
    if hasattr(given, "ppf"):
        called = getattr(given, "name", "distribution")
        raise ValueError(f"{where} has a distribution without its arguments: call it, as in {called}(...)")
    if hasattr(given, "rvs") or hasattr(given, "icdf"):
        raise _validate.fail(where, given, f"a prior needs one dimension and a quantile function; {PRIORS}")
    if isinstance(given, (bool, int, float, str, type(None))):
        raise _validate.fail(where, given, f"to fix a parameter write a list of one value, [{given!r}]")
    raise _validate.fail(where, given, PRIORS)


def _listed(where: str, given: Any) -> list[Any]:
    if isinstance(given, np.ndarray) and given.ndim != 1:
        raise ValueError(f"{where} has choices of shape {given.shape}: give a one-dimensional list")
    return list(given)


def read_all(given: Mapping[str, Any]) -> Parameters:
    """The parameters of a space from the dict people write."""
    if not isinstance(given, Mapping) or not given:
        raise _validate.fail("parameters", given, 'give a dict of name to prior, such as {"lr": loguniform(1e-4, 10)}')
    return tuple(read(name, prior) for name, prior in given.items())


def conditional(parameters: Parameters, parent: str, values: Any, given: Mapping[str, Any]) -> Parameters:
    """The parameters with those given added, active while ``parent`` has one of ``values``."""
    names = [parameter.name for parameter in parameters]
    if parent not in names:
        raise _validate.fail("parent", parent, f"it must be one of {', '.join(names)}")
    place = names.index(parent)
    dimension = parameters[place].dimension
    if not isinstance(dimension, Finite):
        raise _validate.fail("parent", parent, "it must have a list of values; for ranges make them a parameter")
    cases = tuple(sorted({dimension.position(value) for value in (values if isinstance(values, list) else [values])}))
    if not cases:
        raise _validate.fail("values", values, f"give at least one value of {parent!r}")
    added = read_all(given)
    if known := [parameter.name for parameter in added if parameter.name in names]:
        raise ValueError(f"{known[0]!r} is already a parameter: give it another name, such as {parent}_{known[0]}")
    condition = {"parent": parent, "values": [describe(dimension.choices[case]) for case in cases]}
    return parameters + tuple(
        replace(parameter, description=parameter.description | {"when": condition}, parent=place, cases=cases)
        for parameter in added
    )


def with_priors(parameters: Parameters, priors: Mapping[str, Any]) -> Parameters:
    """The parameters, those named with other priors. A list that others depend on keeps its order."""
    if unknown := sorted(set(priors) - {parameter.name for parameter in parameters}):
        raise _validate.fail("priors", unknown[0], "it is none of the parameters")
    found = []
    for old in parameters:
        new = old if old.name not in priors else read(old.name, priors[old.name])
        condition = {"when": old.description["when"]} if "when" in old.description else {}
        found.append(replace(new, description=new.description | condition, parent=old.parent, cases=old.cases))
    return tuple(found)


def text(parameters: Parameters) -> str:
    """The Python that makes the space, more or less."""
    result = ""
    for (parent, cases), group in groupby(parameters, key=lambda parameter: (parameter.parent, parameter.cases)):
        entries = "{" + ", ".join(f"{parameter.name!r}: {parameter!r}" for parameter in group) + "}"
        if parent is None:
            result += f"Space({entries})"
        else:
            dimension = parameters[parent].dimension
            assert isinstance(dimension, Finite)
            values = [dimension.choices[case] for case in cases]
            result += f".when({parameters[parent].name!r}, {values!r}, {entries})"
    return result


def is_active(parameter: Parameter, parameters: Parameters, unit: Array) -> npt.NDArray[np.bool_]:
    """In which rows of the cube a parameter has a value; only the coordinates of its ancestors are looked at."""
    if parameter.parent is None:
        return np.ones(len(unit), dtype=np.bool_)
    parent = parameters[parameter.parent]
    assert isinstance(parent.dimension, Finite)
    case = np.isin(parent.dimension.positions(unit[:, parameter.parent]), parameter.cases)
    return case & is_active(parent, parameters, unit)


def params_at(parameters: Parameters, unit: Array) -> list[Params]:
    """The parameters at each row of the cube, the active ones only."""
    rows: list[Params] = [{} for _ in range(len(unit))]
    for column, parameter in enumerate(parameters):
        where = np.flatnonzero(is_active(parameter, parameters, unit))
        for row, value in zip(where, parameter.dimension.values(unit[where, column]), strict=True):
            rows[row][parameter.name] = value
    return rows


def unit_of(parameters: Parameters, rows: Sequence[Mapping[str, Any]]) -> Array:
    """For each row of parameters a point of the cube that gives it; an error names what does not fit."""
    result = np.full((len(rows), len(parameters)), MIDDLE)
    known = {parameter.name for parameter in parameters}
    for number, row in enumerate(rows):
        _validate.mapping(**{f"params[{number}]": row})
        if unknown := [name for name in row if name not in known]:
            raise ValueError(f"params[{number}] has {unknown[0]!r}, which is none of {sorted(known)}")
    for column, parameter in enumerate(parameters):
        active = is_active(parameter, parameters, result)
        for number, row in enumerate(rows):
            if active[number] and parameter.name not in row:
                raise ValueError(f"params[{number}] = {dict(row)!r} lacks {parameter.name!r}")
            if not active[number] and parameter.name in row:
                assert parameter.parent is not None
                parent = parameters[parameter.parent].name
                state = f"{parent} = {row[parent]!r}" if parent in row else f"{parent} is inactive"
                raise ValueError(f"params[{number}] has {parameter.name!r}, which has no meaning when {state}")
        where = np.flatnonzero(active).tolist()
        result[where, column] = parameter.dimension.unit([rows[row][parameter.name] for row in where])
    return result


def _columns(parameters: Parameters) -> list[slice]:
    ends = np.cumsum([0, *(parameter.dimension.width for parameter in parameters)]).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]


def features_at(parameters: Parameters, unit: Array) -> Array:
    """The features of each row of the cube."""
    columns = _columns(parameters)
    result = np.empty((len(unit), columns[-1].stop))
    for column, (parameter, block) in enumerate(zip(parameters, columns, strict=True)):
        dimension = parameter.dimension
        result[:, block] = dimension.features(unit[:, column])
        if parameter.parent is not None:
            neutral = MIDDLE if dimension.ordered else 1 / dimension.width
            result[~is_active(parameter, parameters, unit), block] = neutral
    return result


def coordinates_of(parameters: Parameters, features: Array) -> Array:
    """Points of the cube with these features, as nearly as possible."""
    columns = _columns(parameters)
    if features.ndim != 2 or features.shape[1] != columns[-1].stop:
        raise ValueError(f"features has shape {features.shape}: give rows of {columns[-1].stop} columns")
    blocks = zip(parameters, columns, strict=True)
    return interior(
        np.column_stack([parameter.dimension.coordinates(features[:, block]) for parameter, block in blocks])
    )
