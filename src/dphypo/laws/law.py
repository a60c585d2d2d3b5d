"""What a law of T, the secret number of runs, must offer."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy.typing as npt

from dphypo.entropy import Entropy
from dphypo.laws.points import Array


@runtime_checkable
class Law(Protocol):
    """The law of T: f(x) = E[x^T], f′(x) = E[T x^(T−1)], g(v) = f′(1 − v), m = E[T] = f′(1).

    The accountant reads ``mean``, ``pgf`` and ``log_g``; the study draws from ``sample``. Both must speak of one and
    the same law: :func:`dphypo.testing.check_law` tests a law of your own. Functions of x, v and k take a number or
    an array and answer in kind.
    """

    @property
    def mean(self) -> float:
        """m = E[T]."""
        ...

    def pmf(self, k: npt.ArrayLike) -> Array:
        """P[T = k]."""
        ...

    def pgf(self, x: npt.ArrayLike) -> Array:
        """f(x) for x in [0, 1]; f(0) = P[T = 0]."""
        ...

    def pgf_derivative(self, x: npt.ArrayLike) -> Array:
        """f′(x) for x in [0, 1]."""
        ...

    def log_pgf_derivative(self, x: npt.ArrayLike) -> Array:
        """log f′(x) for x in [0, 1]."""
        ...

    def log_g(self, v: npt.ArrayLike) -> Array:
        """log f′(1 − v) for v in [0, 1], without the rounding of 1 − v: it tells v = 1e-300 from 0."""
        ...

    def quantile(self, q: float) -> int:
        """The smallest value k of T with P[T ≤ k] ≥ q."""
        ...

    def sample(self, entropy: Entropy) -> int:
        """One T, drawn exactly."""
        ...

    def capped(self, limit: int) -> Law:
        """The law given T ≤ ``limit``: another law, with its own generating function."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """A public description, fit for JSON, from which the law can be made again."""
        ...
