"""What a law of T, the secret number of runs, must offer; and how it is read from a document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from flint import arb

from dphypo import _validate
from dphypo.entropy import Entropy

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
        """The law given T ≤ ``limit``, as a list of probabilities: another law, with its own generating function."""

    def to_dict(self) -> dict[str, Any]:
        """A public description, fit for JSON, from which the law can be made again; ``"law"`` is its name."""


class Drawable(Law, Protocol):
    """A law of T that can be drawn exactly."""

    @property
    def first(self) -> int:
        """The smallest value of T."""

    def survival(self, k: int) -> arb:
        """P[T > k] for k ≥ ``first``, as a ball at the working precision."""


class Listable(Drawable, Protocol):
    """A law whose probabilities can be listed up to a cap."""

    def log_pmf(self, k: Array) -> Array:
        """log P[T = k] for values k of T."""


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
    >>> law = Geometric(mean=100)
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


def log_sum_exp(terms: Array) -> Array:
    """log Σ exp along the last axis."""
    top = terms.max(axis=-1, keepdims=True)
    anchor = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", over="ignore"):  # beside an infinite term the others may overflow
        total = np.log(np.exp(terms - anchor).sum(axis=-1))
    return np.asarray(total + anchor[..., 0])


# Coefficients of 1/z, 1/z³, … in Stirling's series of log Γ; six reach 1e-18 from z = 16 on.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)


def stirling_error(z: Array) -> Array:
    """log Γ(z) − [(z − ½) log z − z + ½ log 2π] for z ≥ 16."""
    return np.polyval(_STIRLING[::-1], (1 / z) * (1 / z)) / z
