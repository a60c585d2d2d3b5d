"""A law of T, the secret number of runs: its interface, exact draws of T, and laws that are lists.

**Exact draws.** T and its quantiles are found by inverting its distribution function in ball arithmetic. U is uniform
in [0, 1) and never rounded: after b bits it is known to lie in [n, n+1)/2^b. T is the smallest k with P[T > k] ≤ U.
FLINT's balls enclose P[T > k] with certainty, so a decided comparison is right. An undecided one draws more bits of U
and computes with a higher precision. Each value of T thus has exactly its stated probability, even in the farthest
tail, where the inverse of a floating-point distribution function would stop at 1 − 2⁻⁵³.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from flint import arb, ctx

from dphypo import _validate
from dphypo import entropy as _entropy
from dphypo._validate import Floats
from dphypo.entropy import Entropy, below

_FIRST_BITS = 128
_TIE = 1e-12  # probabilities this close, relatively, are equal: P[T ≤ 1] of the geometric law of mean 2 reaches 0.5
_TOLERANCE = Fraction(1, 10**9)
_BITS = 60  # of the probabilities of a law with a cap
_MOST_VALUES = 100_000  # of such a list
_CACHED = 2**13  # numbers worked on at once, so that they stay in the processor's cache


class Law:
    """The law of T: f(x) = E[x^T], f′(x) = E[T x^(T−1)], g(v) = f′(1 − v), m = E[T] = f′(1).

    The accountant reads ``mean``, ``pgf`` and ``log_g``; the study draws from ``sample``. Both describe one and the
    same law. Functions of x, v and k take a number or an array, and return the same. A law of your own is a
    :class:`Pmf`: a certificate names its law, and anyone who verifies it must know the law.

    Attributes:
        name: of the law, in :meth:`to_dict`.
        first: the smallest value of T.
        mean: m = E[T].
    """

    name: ClassVar[str] = ""
    first: ClassVar[int]

    if TYPE_CHECKING:  # a field or a property

        @property
        def mean(self) -> float: ...

    # What a law in closed form states.

    def survival(self, k: int) -> arb:
        """P[T > k] for k ≥ ``first``, as a ball at the working precision."""
        raise NotImplementedError

    def log_pmf(self, k: Floats) -> Floats:
        """log P[T = k] for values k of T."""
        raise NotImplementedError

    def log_derivative(self, v: Floats) -> Floats:
        """log f′(1 − v)."""
        raise NotImplementedError

    def pgf(self, x: npt.ArrayLike) -> Floats:
        """f(x) for x in [0, 1]; f(0) = P[T = 0]."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """A public description, fit for JSON, from which the law can be restored; ``"law"`` is its name."""
        raise NotImplementedError

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> Law:
        """The law of this class with this description."""
        raise NotImplementedError

    # What follows.

    def pmf(self, k: npt.ArrayLike) -> Floats:
        """P[T = k]."""
        k = _validate.counts(k=k)
        return like(np.where(k >= self.first, np.exp(self.log_pmf(np.maximum(k, self.first))), 0.0), k)

    def log_pgf_derivative(self, x: npt.ArrayLike) -> Floats:
        """log f′(x) for x in [0, 1]."""
        return like(self.log_derivative(at_x(x)[1]), x)

    def log_g(self, v: npt.ArrayLike) -> Floats:
        """log f′(1 − v) for v in [0, 1], without the rounding of 1 − v: it separates v = 1e-300 from 0."""
        return like(self.log_derivative(_validate.fractions(v=v)), v)

    def quantile(self, q: float) -> int:
        """The smallest value k of T with P[T ≤ k] ≥ q: accurate for q = 1e-12 and for 1 − q = 1e-12 alike."""
        q = _validate.probability(q=q)
        if q == 1:
            raise _validate.fail("q", q, "this law has no largest value: give q below 1, or law.capped(limit)")
        precision = _FIRST_BITS
        while q > 0:
            with ctx.workprec(precision):
                tail = 1 - arb(q) + _TIE * arb(min(q, 1 - q))
                try:
                    return _smallest(self, tail, tail)
                except _UndecidedError:
                    precision *= 2
        return self.first

    def sample(self, entropy: Entropy) -> int:
        """One T, drawn exactly."""
        numerator, count = _entropy.bits(_FIRST_BITS, entropy), _FIRST_BITS
        while True:
            with ctx.workprec(2 * count):
                try:
                    return _smallest(self, arb(numerator) / 2**count, arb(numerator + 1) / 2**count)
                except _UndecidedError:
                    numerator, count = numerator << count | _entropy.bits(count, entropy), 2 * count

    def capped(self, limit: int) -> Pmf:
        """The law given T ≤ ``limit``, as a list of probabilities: what to account for when compute is bounded.

        The probabilities are rounded to multiples of about 2⁻⁶⁰, and not to 0; values that are rarer than about 2⁻⁵³
        are left out. What is listed is the law that is accounted for and drawn from. It is none of the laws that
        theorems are stated for.

        >>> from dphypo.laws import Geometric
        >>> Geometric(mean=2).capped(3)
        Pmf({1: 0.5714285714, 2: 0.2857142857, 3: 0.1428571429})
        """
        last = max(min(_validate.integer(at_least=1, limit=limit), self.quantile(1 - 2.0**-53)), 1)
        if last - self.first >= _MOST_VALUES:
            remedy = f"it would list more than {_MOST_VALUES} values of T: give a smaller cap"
            raise _validate.fail("limit", limit, remedy)
        values = np.arange(self.first, last + 1)
        logs = self.log_pmf(values.astype(np.float64))
        weights = [max(round(math.ldexp(p, _BITS)), 1) for p in np.exp(logs - log_sum_exp(logs)).tolist()]
        total = sum(weights)
        return Pmf({int(k): Fraction(weight, total) for k, weight in zip(values, weights, strict=True)})


class _UndecidedError(Exception):
    """The balls overlap: more bits are needed."""


def _smallest(law: Law, low: arb, high: arb) -> int:
    """The smallest k with P[T > k] ≤ U, for a U in [low, high), searched upwards and then by bisection."""

    def reaches(k: int) -> bool:
        ball = law.survival(k)
        if ball <= low:
            return True
        if ball >= high:
            return False
        raise _UndecidedError

    below, found, step = law.first - 1, law.first, 1
    while not reaches(found):
        below, step = found, 2 * step
        found = below + step
    while found - below > 1:
        middle = (below + found) // 2
        below, found = (below, middle) if reaches(middle) else (middle, found)
    return found


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Pmf(Law):
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

    name: ClassVar[str] = "pmf"
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
    def _values(self) -> Floats:
        return np.array([k for k, _ in self.probabilities], dtype=np.float64)

    @functools.cached_property
    def _logs(self) -> Floats:
        return np.array([_log(p) for _, p in self.probabilities])

    @functools.cached_property
    def _cumulative(self) -> tuple[int, ...]:
        unit = math.lcm(*(p.denominator for _, p in self.probabilities))
        return tuple(itertools.accumulate(int(p * unit) for _, p in self.probabilities))

    def pmf(self, k: npt.ArrayLike) -> Floats:
        k = _validate.counts(k=k)
        where = np.minimum(np.searchsorted(self._values, k), len(self._values) - 1)
        return like(np.where(self._values[where] == k, np.exp(self._logs)[where], 0.0), k)

    def pgf(self, x: npt.ArrayLike) -> Floats:
        return like(np.exp(log_polynomial(self._logs, self._values, at_x(x)[0])), x)

    def log_pgf_derivative(self, x: npt.ArrayLike) -> Floats:
        return like(self._log_derivative(at_x(x)[0]), x)

    def log_g(self, v: npt.ArrayLike) -> Floats:
        with np.errstate(divide="ignore"):
            return like(self._log_derivative(np.log1p(-_validate.fractions(v=v).ravel())), v)

    def _log_derivative(self, log_x: Floats) -> Floats:
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
        return {"law": self.name, "probabilities": {str(k): str(p) for k, p in self.probabilities}}

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> Pmf:
        return cls({int(k): Fraction(p) for k, p in description["probabilities"].items()})

    def __repr__(self) -> str:
        shown = [f"{k}: {float(p):.10g}" for k, p in self.probabilities]
        if len(shown) > 6:
            shown = [*shown[:3], "...", *shown[-2:]]
        return f"Pmf({{{', '.join(shown)}}})"


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


def from_dict(description: Mapping[str, Any]) -> Law:
    """The law that ``law.to_dict()`` describes: equal to it, number for number.

    >>> from dphypo.laws import Geometric
    >>> law = Geometric(mean=100)
    >>> from_dict(law.to_dict()) == law
    True
    """
    kinds = {kind.name: kind for kind in Law.__subclasses__()}
    name = description.get("law") if isinstance(description, Mapping) else None
    if not isinstance(name, str) or name not in kinds:
        known = ", ".join(sorted(kinds))
        raise _validate.fail("description", description, f'its "law" must be one of {known}')
    try:
        return kinds[name].of(description)
    except KeyError as missing:
        raise _validate.fail("description", description, f"a {name} law also needs {missing}") from None


def log_polynomial(log_coefficients: Floats, powers: Floats, log_x: Floats) -> Floats:
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


def at_x(x: npt.ArrayLike) -> tuple[Floats, Floats]:
    """(log x, 1 − x) of points in [0, 1], as one-dimensional arrays: both are accurate."""
    flat = _validate.fractions(x=x).ravel()
    with np.errstate(divide="ignore"):
        return np.log(flat), 1 - flat


def like(values: Floats, argument: npt.ArrayLike) -> Floats:
    """``values`` in the form of ``argument``: a number for a number, an array of its shape for an array."""
    return values.reshape(np.shape(argument))[()]


def log_sum_exp(terms: Floats) -> Floats:
    """log Σ exp along the last axis."""
    top = terms.max(axis=-1, keepdims=True)
    anchor = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", over="ignore"):  # next to an infinite term, others may overflow
        total = np.log(np.exp(terms - anchor).sum(axis=-1))
    return np.asarray(total + anchor[..., 0])


# Coefficients of 1/z, 1/z³, … in Stirling's series of log Γ; six reach 1e-18 from z = 16 on.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)


def stirling_error(z: Floats) -> Floats:
    """log Γ(z) − [(z − ½) log z − z + ½ log 2π] for z ≥ 16."""
    return np.polyval(_STIRLING[::-1], (1 / z) * (1 / z)) / z
