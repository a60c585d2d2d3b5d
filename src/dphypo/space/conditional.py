"""Parameters that exist only while another has certain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from dphypo import _validate
from dphypo.space.finite import Finite
from dphypo.space.parameter import Parameter, read_all
from dphypo.space.values import describe


def conditional(
    parameters: tuple[Parameter, ...], parent: str, values: Any, given: Mapping[str, Any]
) -> tuple[Parameter, ...]:
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


def text(parameters: tuple[Parameter, ...]) -> str:
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
