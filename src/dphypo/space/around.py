"""A prior around a point: a floor of the original prior, and a kernel a parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dphypo import _validate
from dphypo.space.dimension import Array, Finite, Parameter, Parameters, describe, interior, plain

if TYPE_CHECKING:
    from dphypo.space.space import Space


Kernel: TypeAlias = Any
"""A frozen distribution of scipy.stats on [0, 1]."""
Spread = float | Mapping[str, float]
_LAST = 1 - 1e-15  # beyond it scipy's quantiles may be infinite, or no numbers


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
            unit[near, column] = kernel.ppf(np.minimum(unit[near, column], _LAST))
        return interior(unit)

    def within(self, low: Array, high: Array, plain: float, point: Array) -> Array:
        """A draw from the mixture given that it lies in a box, of whose mass the share ``plain`` is π₀'s."""
        shares = point[1:]
        if point[0] < plain:
            return low + shares * (high - low)
        drawn = []
        for kernel, ends, share in zip(self.kernels, np.column_stack([low, high]), shares, strict=True):
            first, last = np.clip(kernel.cdf(ends), 0.0, _LAST)
            drawn.append(kernel.ppf(first + share * (last - first)))
        return np.clip(np.array(drawn, dtype=np.float64), low, high)

    def __str__(self) -> str:
        return f".around({self.description['params']!r}, spread={self.description['spread']!r}, floor={self.floor:g})"


def around(space: Space, params: Mapping[str, Any], spread: Spread, floor: float) -> Around:
    """The mixture about ``params``, which must be a point of the space."""
    (centre,) = space.to_unit([params])
    spreads = read_spread(space.parameters, spread)
    near = zip(space.parameters, centre.tolist(), strict=True)
    kernels = tuple(_kernel(parameter, params, coordinate, spreads) for parameter, coordinate in near)
    floor = _validate.within(0.0, 1.0, closed="right", floor=floor)
    given = {name: describe(plain(name, value)) for name, value in params.items()}
    return Around(kernels, floor, {"params": given, "spread": spreads, "floor": floor})


def _kernel(parameter: Parameter, params: Mapping[str, Any], coordinate: float, spreads: dict[str, float]) -> Kernel:
    from scipy.stats import rv_histogram, uniform

    name, dimension = parameter.name, parameter.dimension
    if name not in params or name not in spreads or dimension.size == 1:
        return uniform()  # the coordinate keeps its prior
    if not isinstance(dimension, Finite) or dimension.ordered:
        return normal(coordinate, spreads[name])
    # Of categories the one given keeps 1 − spread, and the others share the rest as they do in the prior.
    position = dimension.position(params[name])
    shares = dimension.masses * (spreads[name] / (1.0 - dimension.masses[position]))
    shares[position] = 1.0 - spreads[name]
    return rv_histogram((shares, np.append(dimension.pieces[0], 1.0)), density=False)


def normal(centre: float | Array, spread: float) -> Kernel:
    """A normal distribution about ``centre`` with standard deviation ``spread``, given that it lies in [0, 1]."""
    from scipy.stats import truncnorm

    return truncnorm(-centre / spread, (1 - centre) / spread, centre, spread)


def read_spread(parameters: Parameters, spread: Spread) -> dict[str, float]:
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
