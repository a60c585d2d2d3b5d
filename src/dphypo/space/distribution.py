"""Numeric parameters: frozen distributions of scipy.stats, by their quantiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from dphypo import _validate
from dphypo.space.dimension import CELLS, MIDDLE, SHORTEST, Array, Dimension, Finite, Value, plain


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

        Needed where the CDF is less accurate than a cell is wide. A value that no cell has keeps the cell it falls in.
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


# Integers up to this many are listed, with their masses; more are read off the quantile function.
MOST_LISTED = 2**16


def dimension(where: str, prior: Any) -> Dimension:
    """The parameter with this prior: a list of levels where the distribution is discrete and short enough."""
    if any(np.ndim(argument) for argument in (*prior.args, *prior.kwds.values())):
        raise ValueError(f"{where} has a distribution with an array as argument: give each parameter its own prior")
    if not hasattr(prior, "pmf"):
        result = Quantiles(where, prior, whole=False)
        result.check()
        return result
    _check_tail(where, prior)
    result = Quantiles(where, prior, whole=True)
    result.check()
    low, high = (int(end) for end in prior.ppf([SHORTEST, 1 - SHORTEST]))
    return result if high - low >= MOST_LISTED else _listed(where, prior, low, high)


def _check_tail(where: str, prior: Any) -> None:
    """Scipy walks along the tail of a discrete distribution to find a quantile: refuse a walk without end."""
    with np.errstate(all="ignore"):
        if np.isinf(prior.support()).any() and not math.isfinite(prior.std()):
            raise ValueError(f"{where} has a prior without a finite variance: cut it, or list (choices, probabilities)")


def _listed(where: str, prior: Any, low: int, high: int) -> Finite:
    """The integers from low to high with a mass of at least 2⁻³²; rarer ones do not happen in a search."""
    integers = np.arange(low, high + 1)
    masses = np.asarray(prior.pmf(integers), dtype=np.float64)
    kept = masses >= 1 / CELLS
    total = math.fsum(masses[kept])
    if total < 0.999:
        raise ValueError(f"{where} has a prior on values that are not integers: list (choices, probabilities)")
    return Finite(where, tuple(integers[kept].tolist()), masses[kept] / total, ordered=True)


def _argument(value: Any) -> float | int | str:
    """One spelling per number: 10 and 10.0 describe the same prior. JSON has no infinity, so that is a word."""
    number = float(value)
    if math.isinf(number):
        return repr(number)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def describe(prior: Prior, dimension: Dimension) -> dict[str, Any]:
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
