"""A law of T cut at a compute cap K and renormalised."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from flint import arb

from dphypo import _validate
from dphypo.entropy import Entropy
from dphypo.laws import exact_draw
from dphypo.laws.law import Array, Law, at_v, at_x, from_dict, like, register
from dphypo.laws.special import quantile


class Sums(Protocol):
    """Tails and partial sums of an uncut law; every one a logarithm, accurate however small the sum is."""

    def log_pmf(self, k: Array) -> Array:
        """log P[T = k]."""

    def log_partial_pgf(self, limit: int, log_x: Array, v: Array) -> Array:
        """log Σ_{k ≤ limit} P[T = k] x^k at x = 1 − v."""

    def log_partial_derivative(self, limit: int, log_x: Array, v: Array) -> Array:
        """log Σ_{k ≤ limit} k P[T = k] x^(k−1) at x = 1 − v."""

    def log_head(self, k: int) -> float:
        """log P[T ≤ k]."""

    def log_tail(self, k: int) -> float:
        """log P[T > k]."""


class Cuttable(Protocol):
    """An uncut law that knows its partial sums and, as balls, P[T ≤ k]."""

    @property
    def sums(self) -> Sums: ...

    @property
    def first(self) -> int: ...

    def head(self, k: int) -> arb: ...

    def to_dict(self) -> dict[str, Any]: ...


@dataclasses.dataclass(frozen=True, repr=False)
class Capped:
    """The law of T given T ≤ K. Made by ``law.capped(K)``.

    It is a law of its own, P[T = k | T ≤ K] with its own f′, and not the law it was cut from: a theorem stated for
    the negative binomial law does not apply to it, so that it has no ``shape`` and no ``gamma``.

    Args:
        law: the law that is cut.
        limit: K, 1 or greater.

    >>> from dphypo.laws import Geometric
    >>> law = Geometric(mean=100).capped(150)
    >>> round(law.mean, 3), law.quantile(1.0)
    (57.334, 150)
    """

    law: Cuttable
    limit: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", _validate.integer(at_least=1, limit=self.limit))

    @functools.cached_property
    def mean(self) -> float:
        return math.exp(float(self.log_g(0.0)))

    @functools.cached_property
    def _log_total(self) -> float:
        return self.law.sums.log_head(self.limit)

    def pmf(self, k: npt.ArrayLike) -> Array:
        k = _validate.counts(k=k)
        first = self.law.first
        inside = (k >= first) & (k <= self.limit)
        logs = self.law.sums.log_pmf(np.clip(k, first, self.limit)) - self._log_total
        return like(np.where(inside, np.exp(np.where(inside, logs, 0.0)), 0.0), k)

    def pgf(self, x: npt.ArrayLike) -> Array:
        return like(np.exp(self.law.sums.log_partial_pgf(self.limit, *at_x(x)) - self._log_total), x)

    def pgf_derivative(self, x: npt.ArrayLike) -> Array:
        return np.exp(self.log_pgf_derivative(x))

    def log_pgf_derivative(self, x: npt.ArrayLike) -> Array:
        return like(self.law.sums.log_partial_derivative(self.limit, *at_x(x)) - self._log_total, x)

    def log_g(self, v: npt.ArrayLike) -> Array:
        return like(self.law.sums.log_partial_derivative(self.limit, *at_v(v)) - self._log_total, v)

    @property
    def first(self) -> int:
        """The smallest value of T."""
        return self.law.first

    def survival(self, k: int) -> arb:
        """P[T > k | T ≤ limit], as a ball."""
        return 1 - self.law.head(k) / self.law.head(self.limit) if k < self.limit else arb(0)

    def quantile(self, q: float) -> int:
        sums, first = self.law.sums, self.law.first
        return quantile(q, first=first, log_head=sums.log_head, log_tail=sums.log_tail, limit=self.limit)

    def sample(self, entropy: Entropy) -> int:
        return exact_draw.draw(self, entropy)

    def capped(self, limit: int) -> Capped:
        """The smaller of the two caps holds."""
        return Capped(self.law, min(self.limit, _validate.integer(at_least=1, limit=limit)))

    def to_dict(self) -> dict[str, Any]:
        return {"law": "capped", "limit": self.limit, "of": self.law.to_dict()}

    def __repr__(self) -> str:
        return f"{self.law!r}.capped({self.limit})"


@register("capped")
def _from_dict(description: Mapping[str, Any]) -> Law:
    return from_dict(description["of"]).capped(description["limit"])
