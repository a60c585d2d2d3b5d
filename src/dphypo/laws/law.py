"""What a law of T, the secret number of runs, must offer; how it is read from a document, and cut at a compute cap."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from flint import arb

from dphypo import _validate
from dphypo.entropy import Entropy
from dphypo.laws.draw import draw, quantile

Array = npt.NDArray[np.float64]


@runtime_checkable
class Law(Protocol):
    """The law of T: f(x) = E[x^T], f′(x) = E[T x^(T−1)], g(v) = f′(1 − v), m = E[T] = f′(1).

    The accountant reads ``mean``, ``pgf`` and ``log_g``; the study draws from ``sample``. Both must describe one and
    the same law. Functions of x, v and k take a number or an array and answer in kind. A law of your own is a
    :class:`Pmf`: a certificate names its law, and whoever verifies it must know the law.
    """

    @property
    def mean(self) -> float:
        """m = E[T]."""

    def pmf(self, k: npt.ArrayLike) -> Array:
        """P[T = k]."""

    def pgf(self, x: npt.ArrayLike) -> Array:
        """f(x) for x in [0, 1]; f(0) = P[T = 0]."""

    def pgf_derivative(self, x: npt.ArrayLike) -> Array:
        """f′(x) for x in [0, 1]."""

    def log_pgf_derivative(self, x: npt.ArrayLike) -> Array:
        """log f′(x) for x in [0, 1]."""

    def log_g(self, v: npt.ArrayLike) -> Array:
        """log f′(1 − v) for v in [0, 1], without the rounding of 1 − v: it tells v = 1e-300 from 0."""

    def quantile(self, q: float) -> int:
        """The smallest value k of T with P[T ≤ k] ≥ q."""

    def sample(self, entropy: Entropy) -> int:
        """One T, drawn exactly."""

    def capped(self, limit: int) -> Law:
        """The law given T ≤ ``limit``: another law, with its own generating function."""

    def to_dict(self) -> dict[str, Any]:
        """A public description, fit for JSON, from which the law can be made again; ``"law"`` is its name."""


class Drawable(Law, Protocol):
    """A law of T that can be drawn exactly."""

    @property
    def first(self) -> int:
        """The smallest value of T."""

    def survival(self, k: int) -> arb:
        """P[T > k] for k ≥ ``first``, as a ball at the working precision."""


class Cuttable(Drawable, Protocol):
    """A law that can be cut: it has partial sums, as logarithms that are accurate however small they are."""

    def head(self, k: int) -> arb:
        """P[T ≤ k], as a ball."""

    def log_pmf(self, k: Array) -> Array:
        """log P[T = k] for values k of T."""

    def log_partial_pgf(self, limit: int, log_x: Array, v: Array) -> Array:
        """log Σ_{k ≤ limit} P[T = k] x^k at x = 1 − v."""

    def log_partial_derivative(self, limit: int, log_x: Array, v: Array) -> Array:
        """log Σ_{k ≤ limit} k P[T = k] x^(k−1) at x = 1 − v."""


Make = Callable[[Mapping[str, Any]], Law]
_LAWS: dict[str, Make] = {}


def register(name: str) -> Callable[[Make], Make]:
    """Decorate the function that makes a law from ``to_dict``, whose ``"law"`` is this name."""

    def known(make: Make) -> Make:
        _LAWS[name] = make
        return make

    return known


def from_dict(description: Mapping[str, Any]) -> Law:
    """The law that ``law.to_dict()`` describes: equal to it, number for number.

    >>> from dphypo.laws import Geometric
    >>> law = Geometric(mean=100).capped(400)
    >>> from_dict(law.to_dict()) == law
    True
    """
    name = description.get("law") if isinstance(description, Mapping) else None
    make = _LAWS.get(name) if isinstance(name, str) else None
    if make is None:
        known = ", ".join(sorted(_LAWS))
        raise _validate.fail("description", description, f'its "law" must be one of {known}')
    try:
        return make(description)
    except KeyError as missing:
        raise _validate.fail("description", description, f"a {name} law also needs {missing}") from None


def at_x(x: npt.ArrayLike) -> tuple[Array, Array]:
    """(log x, 1 − x) of points in [0, 1], as one-dimensional arrays: both are accurate."""
    flat = _validate.fractions(x=x).ravel()
    with np.errstate(divide="ignore"):
        return np.log(flat), 1 - flat


def at_v(v: npt.ArrayLike) -> tuple[Array, Array]:
    """(log(1 − v), v), as one-dimensional arrays."""
    flat = _validate.fractions(v=v).ravel()
    with np.errstate(divide="ignore"):
        return np.log1p(-flat), flat


def like(values: Array, argument: npt.ArrayLike) -> Array:
    """``values`` in the form of ``argument``: a number for a number, an array of its shape for an array."""
    return values.reshape(np.shape(argument))[()]


@dataclass(frozen=True, repr=False)
class Capped:
    """The law of T given T ≤ K. Made by ``law.capped(K)``.

    It is a law of its own, P[T = k | T ≤ K] with its own f′, and not the law it was cut from: a theorem stated for
    the negative binomial law does not apply to it, so that it has no ``shape`` and no ``gamma``.

    >>> from dphypo.laws import Geometric
    >>> law = Geometric(mean=100).capped(150)
    >>> round(law.mean, 3), law.quantile(1.0)
    (57.334, 150)
    """

    law: Cuttable
    limit: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", _validate.integer(at_least=1, limit=self.limit))

    @cached_property
    def mean(self) -> float:
        return math.exp(float(self.log_g(0.0)))

    @cached_property
    def _log_total(self) -> float:
        """log P[T ≤ K], the partial sum at x = 1."""
        return min(0.0, float(self.law.log_partial_pgf(self.limit, np.zeros(1), np.zeros(1))[0]))

    def pmf(self, k: npt.ArrayLike) -> Array:
        k = _validate.counts(k=k)
        inside = np.clip(k, self.first, self.limit)
        return like(np.where(inside == k, np.exp(self.law.log_pmf(inside) - self._log_total), 0.0), k)

    def pgf(self, x: npt.ArrayLike) -> Array:
        return like(np.exp(self.law.log_partial_pgf(self.limit, *at_x(x)) - self._log_total), x)

    def pgf_derivative(self, x: npt.ArrayLike) -> Array:
        return np.exp(self.log_pgf_derivative(x))

    def log_pgf_derivative(self, x: npt.ArrayLike) -> Array:
        return like(self.law.log_partial_derivative(self.limit, *at_x(x)) - self._log_total, x)

    def log_g(self, v: npt.ArrayLike) -> Array:
        return like(self.law.log_partial_derivative(self.limit, *at_v(v)) - self._log_total, v)

    @property
    def first(self) -> int:
        return self.law.first

    def survival(self, k: int) -> arb:
        return 1 - self.law.head(k) / self.law.head(self.limit) if k < self.limit else arb(0)

    def quantile(self, q: float) -> int:
        return self.limit if q == 1 else quantile(self, q)

    def sample(self, entropy: Entropy) -> int:
        return draw(self, entropy)

    def capped(self, limit: int) -> Capped:
        """The smaller of the two caps holds."""
        return Capped(self.law, min(self.limit, _validate.integer(at_least=1, limit=limit)))

    def to_dict(self) -> dict[str, Any]:
        return {"law": "capped", "limit": self.limit, "of": self.law.to_dict()}

    def __repr__(self) -> str:
        return f"{self.law!r}.capped({self.limit})"


@register("capped")
def _capped(description: Mapping[str, Any]) -> Law:
    return from_dict(description["of"]).capped(description["limit"])
