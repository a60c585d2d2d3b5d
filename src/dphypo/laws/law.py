"""What a law of T, the secret number of runs, must offer; how T is drawn; and how a law is read from a document.

**Exact draws.** T, and its quantiles, are found by inverting its distribution function in ball arithmetic. U is uniform
in [0, 1) and never rounded: after b bits it is known to lie in [n, n+1)/2^b. T is the smallest k with P[T > k] ≤ U.
FLINT's balls enclose P[T > k] with certainty, so a comparison that is decided is right. One that is not decided reveals
more bits of U and computes with more of its own. Each value of T thus has its stated probability exactly, into the
farthest tail, where a walk along a float distribution function would stop at 1 − 2⁻⁵³.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from flint import arb, ctx

from dphypo import _validate
from dphypo import entropy as _entropy
from dphypo.entropy import Entropy

_FIRST_BITS = 128
_TIE = 1e-12  # probabilities this close, relatively, are equal: P[T ≤ 1] of the geometric law of mean 2 reaches 0.5


class _UndecidedError(Exception):
    """The balls overlap: more bits are needed."""


def draw(law: Drawable, entropy: _entropy.Entropy) -> int:
    """One T."""
    numerator, count = _entropy.bits(_FIRST_BITS, entropy), _FIRST_BITS
    while True:
        with ctx.workprec(2 * count):
            try:
                return _smallest(law, arb(numerator) / 2**count, arb(numerator + 1) / 2**count)
            except _UndecidedError:
                numerator, count = numerator << count | _entropy.bits(count, entropy), 2 * count


def quantile(law: Drawable, q: float) -> int:
    """The smallest k with P[T ≤ k] ≥ q: accurate for q = 1e-12 and for 1 − q = 1e-12 alike."""
    q = _validate.probability(q=q)
    if q == 1:
        raise _validate.fail("q", q, "this law has no largest value: give q below 1, or law.capped(limit)")
    precision = _FIRST_BITS
    while q > 0:
        with ctx.workprec(precision):
            tail = 1 - arb(q) + _TIE * arb(min(q, 1 - q))
            try:
                return _smallest(law, tail, tail)
            except _UndecidedError:
                precision *= 2
    return law.first


def _smallest(law: Drawable, low: arb, high: arb) -> int:
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


Array = npt.NDArray[np.float64]


@runtime_checkable
class Law(Protocol):
    """The law of T: f(x) = E[x^T], f′(x) = E[T x^(T−1)], g(v) = f′(1 − v), m = E[T] = f′(1).

    The accountant reads ``mean``, ``pgf`` and ``log_g``; the study draws from ``sample``. Both must describe one and
    the same law. Functions of x, v and k take a number or an array and answer in kind. A law of your own is a
    :class:`Pmf`: a certificate names its law, and anyone who verifies it must know the law.
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
        """A public description, fit for JSON, from which the law can be restored; ``"law"`` is its name."""


class Drawable(Law, Protocol):
    """A law of T that can be drawn exactly, and whose probabilities can be listed up to a cap."""

    @property
    def first(self) -> int:
        """The smallest value of T."""

    def survival(self, k: int) -> arb:
        """P[T > k] for k ≥ ``first``, as a ball at the working precision."""

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
