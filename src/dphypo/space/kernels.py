"""Distributions on the unit interval with which a prior is shaped, each by its CDF and quantile function."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from dphypo.space.finite import Finite
from dphypo.space.unit import Array


class Kernel(Protocol):
    """A distribution on [0, 1]."""

    def cdf(self, unit: Array) -> Array: ...

    def quantile(self, share: Array) -> Array: ...


@dataclass(frozen=True)
class Flat:
    """The uniform distribution: the coordinate keeps its prior."""

    def cdf(self, unit: Array) -> Array:
        return unit

    def quantile(self, share: Array) -> Array:
        return share


@dataclass(frozen=True)
class Normal:
    """A normal distribution about ``centre`` with standard deviation ``spread``, given that it lies in [0, 1].

    >>> Normal(0.5, 0.1).quantile(np.array([0.16, 0.5, 0.84])).round(2).tolist()
    [0.4, 0.5, 0.6]
    """

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
