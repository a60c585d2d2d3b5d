"""A prior shaped around a point: so much of the original prior, the rest a kernel about the point.

π = floor · π₀ + (1 − floor) · Π_i K_i, in the coordinates in which π₀ is uniform. It is no product of one-dimensional
priors, so a draw has one coordinate more than the space: it says which of the two the others are drawn from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dphypo import _validate
from dphypo.space import layout
from dphypo.space import unit as _unit
from dphypo.space.finite import Finite
from dphypo.space.kernels import Flat, Kernel, Normal, Pieces
from dphypo.space.unit import Array
from dphypo.space.values import describe, plain

Spread = float | Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Around:
    """The mixture: a kernel for every coordinate, and the share of the original prior."""

    kernels: tuple[Kernel, ...]
    floor: float
    description: dict[str, Any] = field(repr=False)

    def warp(self, points: Array) -> Array:
        """Draws from the mixture, one for each row that is uniform on a cube of one coordinate more."""
        near = points[:, 0] >= self.floor
        unit = points[:, 1:].copy()
        for column, kernel in enumerate(self.kernels):
            unit[near, column] = kernel.quantile(unit[near, column])
        return _unit.interior(unit)

    def within(self, low: Array, high: Array, plain: float, point: Array) -> Array:
        """A draw from the mixture given that it lies in a box, of whose mass the share ``plain`` is π₀'s."""
        shares = point[1:]
        if point[0] < plain:
            return low + shares * (high - low)
        first = [kernel.cdf(np.array([a, b])) for kernel, a, b in zip(self.kernels, low, high, strict=True)]
        drawn = [
            kernel.quantile(ends[0] + share * (ends[1] - ends[0]))
            for kernel, ends, share in zip(self.kernels, first, shares, strict=True)
        ]
        return np.clip(np.array(drawn, dtype=np.float64), low, high)

    def __str__(self) -> str:
        return f".around({self.description['params']!r}, spread={self.description['spread']!r}, floor={self.floor:g})"


def around(parameters: layout.Parameters, params: Mapping[str, Any], spread: Spread, floor: float) -> Around:
    """The mixture about ``params``, which must be a point of the space."""
    (centre,) = layout.unit(parameters, [params])
    spreads = read_spread(parameters, spread)
    kernels = tuple(
        _kernel(parameter.dimension, params[parameter.name], float(coordinate), spreads[parameter.name])
        if parameter.name in params and parameter.name in spreads
        else Flat()
        for parameter, coordinate in zip(parameters, centre, strict=True)
    )
    floor = _validate.within(0.0, 1.0, closed="right", floor=floor)
    given = {name: describe(plain(name, value)) for name, value in params.items()}
    return Around(kernels, floor, {"params": given, "spread": spreads, "floor": floor})


def _kernel(dimension: Any, value: object, coordinate: float, spread: float) -> Kernel:
    if not isinstance(dimension, Finite) or dimension.ordered:
        return Normal(coordinate, spread)
    return Flat() if dimension.size == 1 else Pieces.keeping(dimension, dimension.position(value), spread)


def read_spread(parameters: layout.Parameters, spread: Spread) -> dict[str, float]:
    """The spread of each parameter that has one, checked."""
    dimensions = {parameter.name: parameter.dimension for parameter in parameters}
    named = dict(spread) if isinstance(spread, Mapping) else dict.fromkeys(dimensions, spread)
    for name, value in named.items():
        if name not in dimensions:
            raise _validate.fail("spread", spread, f"{name!r} is none of the parameters {', '.join(dimensions)}")
        why = "a standard deviation in the unit interval, or the share of the other categories"
        closed = "right" if dimensions[name].ordered else "neither"
        named[name] = _validate.within(0.0, 1.0, closed=closed, why=why, **{f"the spread of {name!r}": value})
    return named
