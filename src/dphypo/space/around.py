"""A prior around a point: a floor of the original prior, and a kernel a parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dphypo import _validate
from dphypo.space.dimension import Array, Dimension, Finite, describe, interior, plain
from dphypo.space.parameter import Parameters

if TYPE_CHECKING:
    from dphypo.space.space import Space


@dataclass(frozen=True)
class Flat:
    """The uniform distribution on [0, 1]: the coordinate keeps its prior."""

    def cdf(self, unit: Array) -> Array:
        return unit

    def quantile(self, share: Array) -> Array:
        return share


@dataclass(frozen=True)
class Normal:
    """A normal distribution about ``centre`` with standard deviation ``spread``, given that it lies in [0, 1]."""

    centre: float
    spread: float

    @cached_property
    def _ends(self) -> Array:
        return (np.array([0.0, 1.0]) - self.centre) / self.spread

    @cached_property
    def _masses(self) -> tuple[float, float]:
        from scipy.special import ndtr

        low, high = ndtr(self._ends)
        return float(low), float(high)

    def cdf(self, unit: Array) -> Array:
        from scipy.special import ndtr

        low, high = self._masses
        return np.asarray(np.clip((ndtr((unit - self.centre) / self.spread) - low) / (high - low), 0.0, 1.0))

    def quantile(self, share: Array) -> Array:
        from scipy.special import ndtri

        low, high = self._masses
        return np.asarray(self.centre + self.spread * np.clip(ndtri(low + share * (high - low)), *self._ends))


@dataclass(frozen=True, eq=False)
class Pieces:
    """A density that is constant on each of some intervals: ``ends`` of the intervals, and the CDF there."""

    ends: Array
    masses: Array

    @classmethod
    def keeping(cls, dimension: Finite, position: int, spread: float) -> Pieces:
        """For categories: the one at ``position`` keeps 1 − ``spread``, the others share it as they do in the prior."""
        low, high = dimension.pieces
        rest = 1.0 - dimension.masses[position]
        shares = dimension.masses * (spread / rest)
        shares[position] = 1.0 - spread
        order = np.argsort(low)
        cumulative = np.cumsum(shares[order])
        return cls(np.append(low[order], high[order][-1]), np.append(0.0, cumulative / cumulative[-1]))

    def cdf(self, unit: Array) -> Array:
        return np.asarray(np.interp(unit, self.ends, self.masses))

    def quantile(self, share: Array) -> Array:
        return np.asarray(np.interp(share, self.masses, self.ends))


Kernel = Flat | Normal | Pieces
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
        return interior(unit)

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


def around(space: Space, params: Mapping[str, Any], spread: Spread, floor: float) -> Around:
    """The mixture about ``params``, which must be a point of the space."""
    (centre,) = space.to_unit([params])
    spreads = read_spread(space.parameters, spread)
    kernels = tuple(
        _kernel(parameter.dimension, params[parameter.name], float(coordinate), spreads[parameter.name])
        if parameter.name in params and parameter.name in spreads
        else Flat()
        for parameter, coordinate in zip(space.parameters, centre, strict=True)
    )
    floor = _validate.within(0.0, 1.0, closed="right", floor=floor)
    given = {name: describe(plain(name, value)) for name, value in params.items()}
    return Around(kernels, floor, {"params": given, "spread": spreads, "floor": floor})


def _kernel(dimension: Dimension, value: object, coordinate: float, spread: float) -> Kernel:
    if not isinstance(dimension, Finite) or dimension.ordered:
        return Normal(coordinate, spread)
    return Flat() if dimension.size == 1 else Pieces.keeping(dimension, dimension.position(value), spread)


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
