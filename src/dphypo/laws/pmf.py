"""Any law of T on finitely many values. A law of T with a cap is one of them."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.entropy import Entropy, below
from dphypo.laws.law import Array, Drawable, at_v, at_x, like, log_sum_exp, register

_TOLERANCE = Fraction(1, 10**9)
_BITS = 60  # of the probabilities of a law with a cap
_MOST_VALUES = 100_000  # of such a list
_CACHED = 2**13  # numbers worked on at once, so that they stay in the processor's cache


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Pmf:
    """P[T = k] as given, for finitely many k ≥ 0.

    Probabilities are read as the rational numbers they are, must sum to 1 within 1e-9, and are divided by their sum
    exactly. T is drawn with those rational probabilities.

    Args:
        probabilities: k to P[T = k], floats or fractions; values of probability 0 are left out.

    >>> from fractions import Fraction
    >>> law = Pmf({5: 0.5, 20: Fraction(1, 2)})
    >>> law, law.mean, law.quantile(0.9)
    (Pmf({5: 0.5, 20: 0.5}), 12.5, 20)
    """

    probabilities: tuple[tuple[int, Fraction], ...]

    def __init__(self, probabilities: Mapping[int, float | Fraction]) -> None:
        if not isinstance(probabilities, Mapping) or not probabilities:
            raise _validate.fail("probabilities", probabilities, "give a dict of values of T to their probabilities")
        exact = {_validate.integer(at_least=0, value=k): _exact(k, p) for k, p in probabilities.items()}
        total = sum(exact.values(), Fraction(0))
        if abs(total - 1) > _TOLERANCE:
            raise ValueError(f"the probabilities sum to {float(total)!r}: they must sum to 1 within 1e-9")
        kept = tuple((k, p / total) for k, p in sorted(exact.items()) if p)
        if kept[-1][0] == 0:
            raise _validate.fail("probabilities", dict(probabilities), "some value of T must be 1 or greater")
        object.__setattr__(self, "probabilities", kept)

    @functools.cached_property
    def mean(self) -> float:
        return float(sum((k * p for k, p in self.probabilities), Fraction(0)))

    @functools.cached_property
    def _values(self) -> Array:
        return np.array([k for k, _ in self.probabilities], dtype=np.float64)

    @functools.cached_property
    def _logs(self) -> Array:
        return np.array([_log(p) for _, p in self.probabilities])

    @functools.cached_property
    def _cumulative(self) -> tuple[int, ...]:
        unit = math.lcm(*(p.denominator for _, p in self.probabilities))
        return tuple(itertools.accumulate(int(p * unit) for _, p in self.probabilities))

    def pmf(self, k: npt.ArrayLike) -> Array:
        k = _validate.counts(k=k)
        where = np.minimum(np.searchsorted(self._values, k), len(self._values) - 1)
        return like(np.where(self._values[where] == k, np.exp(self._logs)[where], 0.0), k)

    def pgf(self, x: npt.ArrayLike) -> Array:
        return like(np.exp(log_polynomial(self._logs, self._values, at_x(x)[0])), x)

    def pgf_derivative(self, x: npt.ArrayLike) -> Array:
        return np.exp(self.log_pgf_derivative(x))

    def log_pgf_derivative(self, x: npt.ArrayLike) -> Array:
        return like(self._log_derivative(at_x(x)[0]), x)

    def log_g(self, v: npt.ArrayLike) -> Array:
        return like(self._log_derivative(at_v(v)[0]), v)

    def _log_derivative(self, log_x: Array) -> Array:
        some = self._values > 0
        return log_polynomial(self._logs[some] + np.log(self._values[some]), self._values[some] - 1, log_x)

    def quantile(self, q: float) -> int:
        goal = Fraction(_validate.probability(q=q)) * self._cumulative[-1]
        return self.probabilities[bisect.bisect_left(self._cumulative, goal)][0]

    def sample(self, entropy: Entropy) -> int:
        return self.probabilities[bisect.bisect_right(self._cumulative, below(self._cumulative[-1], entropy))][0]

    def capped(self, limit: int) -> Pmf:
        """The law given T ≤ ``limit``."""
        limit = _validate.integer(at_least=1, limit=limit)
        kept = {k: p for k, p in self.probabilities if k <= limit}
        total = sum(kept.values(), Fraction(0))
        if not any(kept):
            raise _validate.fail("limit", limit, "this law has no value of T from 1 to it")
        return Pmf({k: p / total for k, p in kept.items()})

    def to_dict(self) -> dict[str, Any]:
        return {"law": "pmf", "probabilities": {str(k): str(p) for k, p in self.probabilities}}

    def __repr__(self) -> str:
        shown = [f"{k}: {float(p):.10g}" for k, p in self.probabilities]
        if len(shown) > 6:
            shown = [*shown[:3], "...", *shown[-2:]]
        return f"Pmf({{{', '.join(shown)}}})"


def listed(law: Drawable, limit: int) -> Pmf:
    """A law given T ≤ ``limit``: its probabilities as a list, rounded to multiples of about 2⁻⁶⁰, and not to 0.

    What is listed is the law that is accounted for and drawn from. It is none of the laws that theorems are stated for.
    Values that are rarer than about 2⁻⁵³ are left out.
    """
    last = max(min(_validate.integer(at_least=1, limit=limit), law.quantile(1 - 2.0**-53)), 1)
    if last - law.first >= _MOST_VALUES:
        raise _validate.fail("limit", limit, f"it would list more than {_MOST_VALUES} values of T: give a smaller cap")
    values = np.arange(law.first, last + 1)
    logs = law.log_pmf(values.astype(np.float64))
    weights = [max(round(math.ldexp(p, _BITS)), 1) for p in np.exp(logs - log_sum_exp(logs)).tolist()]
    total = sum(weights)
    return Pmf({int(k): Fraction(weight, total) for k, weight in zip(values, weights, strict=True)})


def _exact(k: int, p: float | Fraction) -> Fraction:
    """The probability as the rational number it is."""
    if not isinstance(p, (bool, str)):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            exact = Fraction(p)
            if 0 <= exact <= 1 + _TOLERANCE:
                return exact
    raise _validate.fail(f"probabilities[{k}]", p, "give a float or fraction in [0, 1]")


def _log(p: Fraction) -> float:
    """log p, also where p is too small for a float."""
    shift = max(0, p.denominator.bit_length() - p.numerator.bit_length() - 900)
    return math.log(p * 2**shift) - shift * math.log(2)


@register("pmf")
def _from_dict(description: Mapping[str, Any]) -> Pmf:
    return Pmf({int(k): Fraction(p) for k, p in description["probabilities"].items()})


def log_polynomial(log_coefficients: Array, powers: Array, log_x: Array) -> Array:
    """log Σ_i exp(log_coefficients_i) x^powers_i; a power of 0 is 1 at x = 0 too."""
    flat = np.atleast_1d(log_x).reshape(-1, 1)
    rows = max(1, _CACHED // len(powers))
    out = np.empty(len(flat))
    for start in range(0, len(flat), rows):
        block = slice(start, start + rows)
        with np.errstate(invalid="ignore"):  # 0 · (−∞), replaced
            terms = np.where(powers == 0, 0.0, powers * flat[block]) + log_coefficients
        out[block] = log_sum_exp(terms)
    return out.reshape(np.shape(log_x))
