"""A parameter whose values are too many to list: it is read off the quantile function of its prior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from dphypo import _validate
from dphypo.space.unit import MIDDLE, Array
from dphypo.space.values import Value, plain

# The unit interval is cut into this many cells, and a parameter takes the quantile at the middle of each: the prior
# is then 2³² equally likely values. So few that the CDF, with its rounding errors, still tells neighbours apart: that
# is what makes encoding and decoding exact inverses, which they cannot be on all floats.
CELLS = 2**32
SHORTEST = 0.5 / CELLS


class Prior(Protocol):
    """What is used of a frozen distribution of ``scipy.stats``."""

    dist: Any
    args: tuple[Any, ...]
    kwds: dict[str, Any]

    def ppf(self, q: Any) -> Any: ...
    def cdf(self, x: Any) -> Any: ...
    def support(self) -> tuple[Any, Any]: ...


def _middle(cells: Array) -> Array:
    return (cells + 0.5) / CELLS


def _cell(unit: Array) -> Array:
    return np.clip(np.floor(unit * CELLS), 0, CELLS - 1)


@dataclass(frozen=True, eq=False)
class Quantiles:
    """A continuous distribution, or one of very many integers (``whole``)."""

    name: str
    prior: Prior
    whole: bool

    size = None
    ordered = True
    width = 1

    @cached_property
    def _support(self) -> tuple[float, float]:
        low, high = self.prior.support()
        return float(low), float(high)

    def _quantile(self, cells: Array) -> Array:
        """The value of each cell; rounding in the quantile function may not leave the support."""
        return np.clip(np.asarray(self.prior.ppf(_middle(cells)), dtype=np.float64), *self._support)

    def values(self, unit: Array) -> list[Value]:
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

    def unit(self, values: Sequence[object]) -> Array:
        wanted = np.array([self._checked(value) for value in values], dtype=np.float64)
        below = self.prior.cdf(wanted - 1) if self.whole else self.prior.cdf(wanted)
        cells = _cell((below + self.prior.cdf(wanted)) / 2)
        off = self._quantile(cells) != wanted
        if off.any():
            cells[off] = self._search(wanted[off], cells[off])
        return _middle(cells)

    def _search(self, wanted: Array, otherwise: Array) -> Array:
        """The first cell with the wanted value, by bisection of the quantile function; ``otherwise`` if none has it.

        Needed where the CDF is less accurate than a cell is wide, and for values that no cell has (a user's 0.1):
        those keep the cell they fall in.
        """
        low, high = np.zeros_like(wanted), np.full_like(wanted, CELLS - 1)
        while (low < high).any():
            middle = np.floor((low + high) / 2)
            reached = self._quantile(middle) >= wanted
            low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
        return np.where(self._quantile(low) == wanted, low, otherwise)

    def features(self, unit: Array) -> Array:
        if self.whole:  # all coordinates of one integer share one feature
            distinct, inverse = np.unique(self._quantile(_cell(unit)), return_inverse=True)
            return self.unit([int(value) for value in distinct])[inverse, None]
        return _middle(_cell(unit))[:, None]

    def coordinates(self, features: Array) -> Array:
        return features[:, 0]

    def check(self) -> None:
        """Refuses distributions whose quantiles are not finite increasing numbers."""
        with np.errstate(all="ignore"):
            low, middle, high = np.asarray(self.prior.ppf([SHORTEST, MIDDLE, 1 - SHORTEST]), dtype=np.float64)
        if not (np.isfinite([low, high]).all() and low <= middle <= high):
            quantiles = f"its lowest, middle and highest quantiles are {low:g}, {middle:g} and {high:g}"
            raise ValueError(f"{self.name} has no usable prior: {quantiles}; check the distribution's arguments")
