"""Rows of the unit cube, of parameters and of features, for parameters that may depend on each other.

Parents stand before their children. The cube has a coordinate for every parameter; that of an inactive one is
ignored, and its features rest at a neutral constant: the parent's features say that it is inactive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.space.dimension import MIDDLE, Array, interior
from dphypo.space.finite import Finite
from dphypo.space.parameter import Parameter

Parameters: TypeAlias = tuple[Parameter, ...]
Params: TypeAlias = dict[str, Any]


def is_active(parameter: Parameter, parameters: Parameters, unit: Array) -> npt.NDArray[np.bool_]:
    """In which rows of the cube a parameter has a value; only the coordinates of its ancestors are looked at."""
    if parameter.parent is None:
        return np.ones(len(unit), dtype=np.bool_)
    parent = parameters[parameter.parent]
    assert isinstance(parent.dimension, Finite)
    case = np.isin(parent.dimension.positions(unit[:, parameter.parent]), parameter.cases)
    return case & is_active(parent, parameters, unit)


def params(parameters: Parameters, unit: Array) -> list[Params]:
    """The parameters at each row of the cube, the active ones only."""
    rows: list[Params] = [{} for _ in range(len(unit))]
    for column, parameter in enumerate(parameters):
        where = np.flatnonzero(is_active(parameter, parameters, unit))
        for row, value in zip(where, parameter.dimension.values(unit[where, column]), strict=True):
            rows[row][parameter.name] = value
    return rows


def unit(parameters: Parameters, rows: Sequence[Mapping[str, Any]]) -> Array:
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


def features(parameters: Parameters, unit: Array) -> Array:
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


def coordinates(parameters: Parameters, features: Array) -> Array:
    """Points of the cube with these features, as nearly as possible."""
    columns = _columns(parameters)
    if features.ndim != 2 or features.shape[1] != columns[-1].stop:
        raise ValueError(f"features has shape {features.shape}: give rows of {columns[-1].stop} columns")
    blocks = zip(parameters, columns, strict=True)
    return interior(
        np.column_stack([parameter.dimension.coordinates(features[:, block]) for parameter, block in blocks])
    )
