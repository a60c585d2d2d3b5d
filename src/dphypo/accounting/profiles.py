"""Privacy profiles: δ as a function of ε, for an ordered pair of neighbours.

A profile is an upper bound on the hockey-stick divergence H_{e^ε}(M(D)‖M(D′)), for **every real ε**, negative ones
included. Each class rounds up: values between grid points, truncated tails and floating-point error all end on the
larger side. The theorems only ever evaluate profiles, so anything that has one can be accounted. An RDP curve is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal
from functools import cached_property
from typing import Protocol

import dp_accounting
import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.signal import lfilter
from scipy.special import log_ndtr, ndtr

from dphypo._validate import Floats as Floats

# A sum of n masses is off by at most n · 2⁻⁵³ of its value, a discounted one, with two products a step, by 3n · 2⁻⁵³.
_SUMMATION = 4 * 2.0**-53
_FINER = 25  # orders between the neighbours of one
_ROUNDS = 24  # of dropping points of a hull at once, before those that are left are scanned


class Profile(Protocol):
    """An upper bound on δ(ε) for every real ε."""

    @property
    def top(self) -> float:
        """A finite ε beyond which the profile is constant, or nearly so."""

    def delta(self, epsilon: npt.ArrayLike) -> Floats:
        """δ at every ε of an array: in [0, 1], not increasing."""


class RunProfile(Profile, Protocol):
    """The profile of one run."""

    @property
    def bottom(self) -> float:
        """A finite ε below which the profile holds nothing worth resolving."""


@dataclass(frozen=True, eq=False)
class Discrete:
    """The profile of a discrete privacy loss: P[ℓ = ``losses[i]``] = ``masses[i]``, P[ℓ = ∞] = ``infinity``.

    δ(ε) = P[ℓ = ∞] + Σ_i P[ℓ = ℓ_i] (1 − e^(ε − ℓ_i))₊. The losses are finite and strictly increasing. Masses may sum
    to a little more than one; a sum below one would lose probability, so what is missing counts as infinite loss.
    """

    losses: Floats
    masses: Floats
    infinity: float
    _above: Floats = field(init=False, repr=False)
    _discounted: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        missing = max(0.0, 1.0 - self.infinity - math.fsum(self.masses))
        object.__setattr__(self, "infinity", min(1.0, self.infinity + missing))
        object.__setattr__(self, "_above", np.append(np.cumsum(self.masses[::-1])[::-1], 0.0))
        object.__setattr__(self, "_discounted", np.append(_discounted_suffix_sums(self.losses, self.masses), 0.0))

    @property
    def bottom(self) -> float:
        return float(self.losses[0])

    @property
    def top(self) -> float:
        return float(self.losses[-1])

    def delta(self, epsilon: npt.ArrayLike) -> Floats:
        eps = np.asarray(epsilon, dtype=np.float64)
        first = np.searchsorted(self.losses, eps, side="right")  # the first loss above ε
        above = self._above[first]
        nearest = self.losses[np.minimum(first, len(self.losses) - 1)]
        exponent = np.minimum(eps - nearest, 0.0)
        rounding = 1 + _SUMMATION * (len(self.losses) + 8)
        value = self.infinity + above * rounding - np.exp(exponent) * self._discounted[first]
        return np.clip(value, self.infinity, 1.0)


def _discounted_suffix_sums(losses: Floats, masses: Floats) -> Floats:
    """W_k = Σ_{j≥k} masses_j e^(ℓ_k − ℓ_j), by W_k = masses_k + e^(ℓ_k − ℓ_{k+1}) W_{k+1}: no overflow at any loss."""
    gaps = np.diff(losses)
    if len(gaps) and np.allclose(gaps, gaps[0], rtol=1e-9, atol=0.0):
        # The decay uses the largest gap: W is subtracted from δ, so too small a W is the safe side.
        return np.asarray(lfilter([1.0], [1.0, -math.exp(-float(gaps.max()))], masses[::-1])[::-1], dtype=np.float64)
    sums = np.array(masses, dtype=np.float64)
    decay = np.exp(-gaps)
    for k in range(len(gaps) - 1, -1, -1):
        sums[k] += decay[k] * sums[k + 1]
    return sums


def gaussian_delta(epsilon: npt.ArrayLike, mu: float) -> Floats:
    """δ at ε of the Gaussian mechanism that shifts by μ: Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), μ > 0."""
    at = np.asarray(epsilon, dtype=np.float64) / mu
    return np.asarray(ndtr(mu / 2 - at) - np.exp(at * mu + log_ndtr(-mu / 2 - at)))


def randomised_response(epsilon: float, delta: float = 0.0) -> Discrete:
    """The pair that dominates every (ε, δ)-DP mechanism: randomised response, and infinite loss with probability δ."""
    if epsilon == 0:
        return Discrete(np.zeros(1), np.array([1.0 - delta]), delta)
    likely = (1.0 - delta) / (1.0 + math.exp(-epsilon))
    return Discrete(np.array([-epsilon, epsilon]), np.array([likely * math.exp(-epsilon), likely]), delta)


@dataclass(frozen=True, eq=False)
class Formula:
    """A profile computed from others: its two ends, and a function of an array of ε."""

    bottom: float
    top: float
    deltas: Callable[[Floats], Floats]

    def delta(self, epsilon: npt.ArrayLike) -> Floats:
        return np.asarray(self.deltas(np.asarray(epsilon, dtype=np.float64)))


def supremum(profiles: Iterable[RunProfile]) -> Formula:
    """The pointwise largest of several profiles: what bounds a run whose privacy depends on λ, at every λ."""
    return _pointwise(tuple(profiles), np.max)


def infimum(profiles: Iterable[RunProfile]) -> Formula:
    """The pointwise smallest of several profiles of the same run: each is an upper bound, so this is one."""
    return _pointwise(tuple(profiles), np.min)


def _pointwise(profiles: tuple[RunProfile, ...], choose: Callable[..., Floats]) -> Formula:
    low, high = min(one.bottom for one in profiles), max(one.top for one in profiles)
    return Formula(low, high, lambda eps: choose([one.delta(eps) for one in profiles], axis=0))


def epsilon_for(profile: Profile, delta: float) -> float:
    """The smallest ε ≥ 0 with δ(ε) ≤ ``delta``, rounded up; infinite if there is none."""
    return smallest(lambda eps: float(profile.delta(eps)), delta, top=profile.top)


def end(profile: Profile, negligible: float, most: float, room: float) -> float:
    """The smallest ε from 0 to ``most`` where δ is negligible, or at most 1 + ``room`` times its value at the end."""
    top = min(max(profile.top, 0.0), most)
    rest = max(negligible, float(profile.delta(top)) * (1 + room))
    return min(smallest(lambda eps: float(profile.delta(eps)), rest, top=top), top)


@dataclass(frozen=True, eq=False)
class Curve:
    """ε(α) at increasing orders α, infinite where nothing is known; ``at`` gives it at further orders, where it can.

    It is a profile. For every order α with ε(α) = r, and every real ε,
    δ(ε) ≤ exp((α−1)(r − ε + log(1 − 1/α))) / α (Canonne, Kamath and Steinke 2020, Proposition 12), and
    δ(ε) ≤ √(1 − e^(−r)) for ε ≥ 0 (Bretagnolle–Huber). Negative ε also go through the exchanged pair, whose curve is
    the same.
    """

    orders: Floats
    epsilons: Floats
    at: Callable[[Floats], Floats] | None = None

    def epsilon(self, delta: float) -> tuple[float, float]:
        """ε at δ, by dp_accounting's conversion, and the order that attains it."""
        usable = np.isfinite(self.epsilons)
        if not usable.any():
            return math.inf, math.nan
        found, order = dp_accounting.rdp.compute_epsilon(self.orders[usable], self.epsilons[usable], delta)
        return float(found), float(order)

    @property
    def usable(self) -> tuple[npt.NDArray[np.bool_], Floats, Floats]:
        """The orders above 1 with a finite ε, as a mask and as numbers, and their ε."""
        chosen = (self.orders > 1) & np.isfinite(self.epsilons)
        return chosen, self.orders[chosen], self.epsilons[chosen]

    @property
    def bottom(self) -> float:
        return -self.top

    @property
    def top(self) -> float:
        # Where the best order gives δ = 1e-30.
        _, alpha, r = self.usable
        return float(np.min(r + np.log1p(-1 / alpha) + (30 * math.log(10) - np.log(alpha)) / (alpha - 1)))

    def delta(self, epsilon: npt.ArrayLike) -> Floats:
        eps = np.asarray(epsilon, dtype=np.float64)
        forward = self._tail(eps)
        mirrored = -np.expm1(np.minimum(eps, 0.0)) + np.exp(np.minimum(eps, 0.0)) * self._tail(np.abs(eps))
        return np.where(eps < 0, np.minimum(forward, mirrored), forward)

    @cached_property
    def _lines(self) -> tuple[Floats, Floats, Floats]:
        """Slopes and intercepts of the lines in ε, one an order, whose minimum is log δ, and where each hands over.

        A line that rounding drops only makes the minimum larger.
        """
        _, alpha, r = self.usable
        slopes, intercepts = (alpha - 1)[::-1] * -1.0, ((alpha - 1) * (r + np.log1p(-1 / alpha)) - np.log(alpha))[::-1]
        # The flattest is the smallest at the left.
        return with_switches(slopes, intercepts, lower_hull(slopes, intercepts)[::-1])

    def _tail(self, eps: Floats) -> Floats:
        slopes, intercepts, meet = self._lines
        line = np.searchsorted(meet, eps)
        fall = slopes[line] * eps
        rounding = 1e-14 * np.minimum(np.abs(fall), 1e300)  # finite at infinite ε too
        best = np.minimum(fall + intercepts[line] + rounding, 0.0)
        half = np.sqrt(-np.expm1(-np.min(self.epsilons)))
        return np.asarray(np.where(eps >= 0, np.minimum(np.exp(best), half), np.exp(best)))

    def round_up(self, orders: Floats) -> Floats:
        """ε at other orders: the value at the next known order, which is no smaller, and infinity beyond the last."""
        return np.append(self.epsilons, np.inf)[np.searchsorted(self.orders, orders, side="left")]

    def around(self, *orders: float) -> Curve:
        """The curve with more orders between the neighbours of each given one; itself if ``at`` is not known."""
        if self.at is None:
            return self
        at, last = np.searchsorted(self.orders, orders), len(self.orders) - 1
        low, high = self.orders[np.maximum(at - 1, 0)], self.orders[np.minimum(at + 1, last)]
        extra = np.setdiff1d(np.linspace(low, high, _FINER), self.orders)
        alphas, values = np.append(self.orders, extra), np.append(self.epsilons, self.at(extra))
        rank = np.argsort(alphas)
        return Curve(alphas[rank], values[rank], self.at)


def not_decreasing(orders: Floats, bounds: Floats) -> Floats:
    """Bounds on Rényi divergences, with a smaller one at a larger order carried down: D_α does not decrease in α."""
    result = bounds.copy()
    rank = np.argsort(orders)
    result[rank] = np.minimum.accumulate(bounds[rank][::-1])[::-1]
    return result


def largest(curves: Sequence[Curve]) -> Curve:
    """A curve that is at least as large as each of several, at every order of any of them."""
    orders = np.unique(np.concatenate([curve.orders for curve in curves]))
    return Curve(orders, np.max([curve.round_up(orders) for curve in curves], axis=0))


def lower_hull(x: Floats, y: Floats) -> npt.NDArray[np.intp]:
    """Indices of the points on the lower convex hull, from left to right; ``x`` does not decrease.

    Slopes are compared, not areas: products of very small coordinates would underflow, and a slope has a small
    relative error whatever the size of the coordinates. Of points with equal ``x`` the lowest counts.

    >>> lower_hull(np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 0.0, 2.0, 1.0]))
    array([0, 1, 3])
    """
    kept, later = np.arange(len(x)), x[1:] > x[:-1]
    if not later.all():  # keep the lowest point at every x, and of equally low ones the last
        kept = np.lexsort((-kept, y, x))[np.append(True, later)]
    for _ in range(_ROUNDS):  # a point that is not below the line through its neighbours is not on the hull
        with np.errstate(all="ignore"):
            slopes = np.diff(y[kept]) / np.diff(x[kept])
        below = np.ones(len(kept), dtype=np.bool_)
        below[1:-1] = slopes[:-1] < slopes[1:]
        if below.all():
            return kept
        kept = kept[below]
    return kept[_scanned(x[kept].tolist(), y[kept].tolist())]


def _scanned(xs: list[float], ys: list[float]) -> list[int]:
    """The hull by one scan from left to right, for the points that are left; ``xs`` increase."""
    kept: list[int] = []
    slopes: list[float] = []  # from each kept point but the first back to the one before it
    for i in range(len(xs)):
        while kept:
            slope = (ys[i] - ys[kept[-1]]) / (xs[i] - xs[kept[-1]])
            if not slopes or slopes[-1] < slope:
                slopes.append(slope)
                break
            kept.pop()
            slopes.pop()
        kept.append(i)
    return kept


def with_switches(slopes: Floats, intercepts: Floats, lines: npt.NDArray[np.intp]) -> tuple[Floats, Floats, Floats]:
    """Slopes and intercepts of these lines of an envelope, in their order, and where each hands over to the next."""
    s, t = slopes[lines], intercepts[lines]
    return s, t, np.diff(t) / -np.diff(s)


def falling_part(x: Floats, y: Floats) -> npt.NDArray[np.intp]:
    """Indices of the hull from its left end to its lowest point."""
    hull = lower_hull(x, y)
    return hull[: int(np.argmin(y[hull])) + 1]


_PRECISION = 1e-6


def smallest(delta_at: Callable[[float], float], delta: float, *, top: float) -> float:
    """The smallest ε ≥ 0 at which a non-increasing function is at most ``delta``, rounded up by at most 2e-6.

    ``top`` ends the search: if the function is above ``delta`` even there, the answer is infinite. A value
    that is not a number counts as too large.
    """
    if delta_at(0.0) <= delta:
        return 0.0
    high = max(top, _PRECISION)
    if not delta_at(high) <= delta:
        return math.inf
    if delta == 0.0:  # it has no logarithm: the end of the support, from above
        low = 0.0
        while high - low > _PRECISION:
            middle = (low + high) / 2
            low, high = (low, middle) if delta_at(middle) <= 0 else (middle, high)
        return high
    least = math.ulp(0.0)  # δ can be zero, its logarithm cannot

    def excess(eps: float) -> float:
        return math.log(max(delta_at(eps), least)) - math.log(delta)

    root = brentq(excess, 0.0, high, xtol=_PRECISION / 4, maxiter=1000)
    step = _PRECISION / 2
    epsilon = min(float(root) + step, high)
    while not delta_at(epsilon) <= delta:
        step *= 2
        epsilon = min(epsilon + step, high)
    return epsilon


def round_up(value: float, decimals: int) -> float:
    """The next larger number with this many decimals; a number that has no more is left alone.

    >>> round_up(0.123401, 4), round_up(0.1234, 4)
    (0.1235, 0.1234)
    """
    if not math.isfinite(value):
        return value
    unit = Decimal(1).scaleb(-decimals)
    return float(_shortest(value).quantize(unit, ROUND_CEILING, Context(prec=400)))


def show_epsilon(epsilon: float, digits: int = 6) -> str:
    """ε rounded up to so many significant digits: what is printed is an upper bound too.

    >>> show_epsilon(6.83512, 4), show_epsilon(0.1), show_epsilon(12.34562), show_epsilon(math.inf)
    ('6.836', '0.1', '12.3457', 'inf')
    """
    up = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(_shortest(epsilon))
    return f"{float(up):.{digits}g}"


def show_delta(delta: float, digits: int = 6) -> str:
    """δ, or another probability that is an upper bound, rounded up.

    >>> show_delta(1e-5), show_delta(1 / 70_000), show_delta(2.14e-5, 2)
    ('1e-05', '1.42858e-05', '2.2e-05')
    """
    return show_epsilon(delta, digits)


def _shortest(value: float) -> Decimal:
    """A float as the shortest decimal that means it: the float 0.1 is slightly more than a tenth, and counts as one."""
    return Decimal(repr(float(value)))


def round_epsilon(epsilon: float) -> float:
    """ε as it is written into a certificate: rounded up to five decimals, with room for other machines' rounding.

    >>> round_epsilon(1.23456)
    1.23457
    """
    return round_up(epsilon + 2e-6, 5) if 0 < epsilon < 1e9 else epsilon
