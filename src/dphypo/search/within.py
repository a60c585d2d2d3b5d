"""Whether a prior keeps to the space for which the guarantee was computed."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np

from dphypo import errors
from dphypo.space import Dimension, Finite, Parameter, Space, interior

_MOST_CASES = 100_000


def refuse_wider(prior: Space, space: Space) -> None:
    """Refuse a prior that can draw what the space cannot.

    A rule may put the prior where it likes, inside the space. Outside it, nothing was declared of a run: its event may
    be the same by accident, because the event reads no hyperparameter, and the run another all the same.
    """
    known = {parameter.name: parameter for parameter in space.parameters}
    for parameter in prior.parameters:
        if parameter.name not in known:
            raise errors.WiderPrior(f"({parameter.name!r} is none of the declared hyperparameters.)")
        _refuse_values(parameter.name, parameter.dimension, known[parameter.name].dimension)
    _refuse_conditions(prior, space)


def _refuse_values(name: str, dimension: Dimension, declared: Dimension) -> None:
    if isinstance(dimension, Finite):
        values = dimension.choices
    elif isinstance(declared, Finite):
        raise errors.WiderPrior(f"({name!r} was declared as a list of values, and the rule made a range of it.)")
    else:
        values = tuple(dimension.values(interior(np.array([0.0, 1.0]))))
        if isinstance(_ends(declared)[0], int) and not isinstance(values[0], int):
            raise errors.WiderPrior(f"({name!r} was declared as a range of whole numbers.)")
    for value in values:
        if not _has(declared, value):
            raise errors.WiderPrior(f"({name!r} was not declared with the value {value!r}.)")


def _has(declared: Dimension, value: Any) -> bool:
    try:
        declared.unit([value])
    except ValueError:
        return False
    if isinstance(declared, Finite):
        return True
    low, high = _ends(declared)  # the event was taken at what can be drawn, which is less than the support
    return bool(low <= value <= high)


def _ends(declared: Dimension) -> list[Any]:
    return list(declared.values(interior(np.array([0.0, 1.0]))))


def _refuse_conditions(prior: Space, space: Space) -> None:
    """The same hyperparameters must be active, whatever values those have on which others depend."""
    parents = {s.parameters[p.parent].name for s in (prior, space) for p in s.parameters if p.parent is not None}
    given = {parameter.name: parameter.dimension for parameter in prior.parameters if parameter.name in parents}
    choices = {name: dimension.choices for name, dimension in given.items() if isinstance(dimension, Finite)}
    if prod(len(values) for values in choices.values()) > _MOST_CASES:
        raise errors.WiderPrior("(It has too many conditions to be checked: shape the prior with space.around.)")
    for values in product(*choices.values()):
        case = dict(zip(choices, values, strict=True))
        if other := sorted(_active(prior, case) ^ _active(space, case)):
            raise errors.WiderPrior(f"({other[0]!r} is active where it was not declared, or missing where it was.)")


def _active(space: Space, case: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    for parameter in space.parameters:  # parents stand before their children
        if parameter.parent is None or _holds(space.parameters[parameter.parent], parameter, case, found):
            found.add(parameter.name)
    return found


def _holds(parent: Parameter, parameter: Parameter, case: Mapping[str, Any], found: set[str]) -> bool:
    if parent.name not in found or parent.name not in case or not isinstance(parent.dimension, Finite):
        return False
    return parent.dimension.position(case[parent.name]) in parameter.cases
