"""What a law of T, the secret number of runs, must offer, and how a law is found by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo._registry import Registry
from dphypo.entropy import Entropy

Array = npt.NDArray[np.float64]


@runtime_checkable
class Law(Protocol):
    """The law of T: f(x) = E[x^T], f′(x) = E[T x^(T−1)], g(v) = f′(1 − v), m = E[T] = f′(1).

    The accountant reads ``mean``, ``pgf`` and ``log_g``; the study draws from ``sample``. Both must describe one and
    the same law: :func:`dphypo.testing.check_law` tests a law of your own. Functions of x, v and k take a number or
    an array and answer in kind.
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


_LAWS: Registry[Callable[[Mapping[str, Any]], Law]] = Registry("dphypo.laws")

register = _LAWS.register
"""Decorate a function that makes a law from its description. The name is the ``"law"`` of ``to_dict``.

>>> @register("one_run")
... def one_run(description):
...     from dphypo.laws import Pmf
...     return Pmf({1: 1.0})
>>> from_dict({"law": "one_run"})
Pmf({1: 1})
"""


def from_dict(description: Mapping[str, Any]) -> Law:
    """The law that ``law.to_dict()`` describes: equal to it, number for number.

    >>> from dphypo.laws import Geometric
    >>> law = Geometric(mean=100).capped(400)
    >>> from_dict(law.to_dict()) == law
    True
    """
    name = description.get("law") if isinstance(description, Mapping) else None
    make = _LAWS.find(name) if isinstance(name, str) else None
    if make is None:
        known = ", ".join(_LAWS.names())
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
    shaped: Array = values.reshape(np.shape(argument))[()]
    return shaped
