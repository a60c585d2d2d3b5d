"""φ(z) = max over v of (g(v) − z g(τ(v)))₊, certified: how selecting the best of T runs changes the losses of one run.

g(v) = f′(1−v), where f is the probability generating function of T. A maximum over a grid of v would not be an upper
bound. On a *cell* [v_i, v_{i+1}] the line a_i − z b_i with a_i = g(v_i), b_i = g(τ(v_{i+1})) is an upper bound, because
g decreases and τ increases. So the upper envelope of these lines bounds φ, whatever the cells are. Cells whose lines
are on the envelope are split until they are narrow. Proof: docs/theory.md, section "Selection".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dphypo.accounting.profiles import Floats, falling_part
from dphypo.accounting.theorems.lemma2 import Tau
from dphypo.laws import Law

_WIDTH = 2e-3  # split a cell while a_i / a_{i+1} · b_{i−1} / b_i is above e^_WIDTH
_ROUNDS = 5
_FIRST_CELLS = (2000, 12_000)
_MOST_CELLS = 50_000
_MOST_PIECES = 64
_SLACK = 1e-11  # the relative accuracy asked of log_g, with room to spare
_FAR = 40.0  # of the first points: v and 1 − v of 2e-18
_FIRST_CUT = 14.0
_TINY = 1e-40  # of E[T]: lines that start lower are bounded together, far below any δ, and need no cells


@dataclass(frozen=True, eq=False)
class Phi:
    """φ as a mixture of hockey sticks: φ(z) = Σ_j ``weights[j]`` (1 − z e^(−``shifts[j]``))₊.

    Being convex, decreasing and piecewise linear, φ is such a mixture: the kink at z_j with slope jump w_j carries
    weight w_j z_j and shift log z_j. Then E[φ(e^(ε−ℓ))] = Σ_j weight_j δ₀(ε − shift_j) for a privacy loss ℓ with
    profile δ₀, so a profile is all that Theorem 4 needs of a run. The weights sum to φ(0) = E[T].

    ``cells`` holds (log a_i, log b_i) for the suprema of Theorem 3.
    """

    weights: Floats
    shifts: Floats
    cells: tuple[Floats, Floats]

    @property
    def largest_shift(self) -> float:
        """log of the largest z with φ(z) > 0: the maximum of log(g(v)/g(τ(v)))."""
        return float(self.shifts.max())


class Decreasing(Protocol):
    """A decreasing function g of v, as every law of T has one: f′(1 − v)."""

    def log_g(self, v: npt.ArrayLike) -> Floats:
        """log g(v), accurate for small v."""

    def log_pgf_derivative(self, x: npt.ArrayLike) -> Floats:
        """log g(1 − x), accurate for small x."""


def phi(runs: Law, tau: Tau) -> Phi:
    """Bound φ for a law of T and a τ, from above."""
    return phi_between(runs, runs, tau)


def phi_between(first: Decreasing, second: Decreasing, tau: Tau) -> Phi:
    """Bound max over v of (a(v) − z b(τ(v)))₊ from above, for two decreasing functions a and b."""
    points = _spread(first, second, tau)
    for _ in range(_ROUNDS):
        log_a, log_b, width = _lines(first, second, tau, points)
        envelope = _upper_envelope(*_relative(log_a, log_b))
        wide = envelope[width[envelope] > _WIDTH]
        if len(wide) == 0 or len(points) > _MOST_CELLS:
            break
        points = np.union1d(points, _split(points, width, wide))
    log_a, log_b, _ = _lines(first, second, tau, points)
    a, b = _relative(log_a, log_b)
    envelope = _upper_envelope(a, b)
    a_kept, b_kept = np.append(a[envelope], 0.0), np.append(b[envelope], 0.0)  # the zero of (·)₊ is a line too
    weights, slopes = -np.diff(a_kept), -np.diff(b_kept)
    used = weights > 0
    with np.errstate(divide="ignore"):  # a slope of zero has an infinite shift: the safe side
        shifts = np.log(weights[used]) - np.log(slopes[used])
    weights = weights[used]
    low = (a < _TINY) & np.isfinite(log_a)
    if low.any():  # a_i − z b_i ≤ _TINY (1 − z e^(−s))₊ for all of these, with s the largest log(a_i/b_i)
        weights, shifts = np.append(weights, _TINY), np.append(shifts, np.max(log_a[low] - log_b[low]))
    return Phi(weights * np.exp(log_a[0]), shifts, (log_a, log_b))


def _relative(log_a: Floats, log_b: Floats) -> tuple[Floats, Floats]:
    """a_i and b_i in units of a_0 = E[T]. A b_i that is not a normal float becomes zero, which rounds φ up."""
    a, b = np.exp(log_a - log_a[0]), np.exp(log_b - log_a[0])
    return a, np.where(b < 1e-300, 0.0, b)


def _spread(first: Decreasing, second: Decreasing, tau: Tau) -> Floats:
    """Points from v = 0 to v = 1 such that log g(v) + log g(τ(v)) falls by about the same amount in each cell.

    A point s means v = e^s/2 if s ≤ 0, and 1 − v = e^(−s)/2 if s ≥ 0: both ends are accurate.
    """
    coarse = np.linspace(-_FAR, _FAR, 801)
    log_g, log_g_tau = _log_g(first, second, tau, coarse)
    fall = -(log_g + log_g_tau)
    # Where it falls further, one line bounds all cells. All of g(τ) is zero if τ is 1 throughout and P[T = 1] = 0.
    fall = np.minimum(fall, (fall[0] if np.isfinite(fall[0]) else 0.0) - 2.5 * math.log(_TINY))
    cells = int(np.clip((fall[-1] - fall[0]) / (2 * _WIDTH), *_FIRST_CELLS))
    even = np.interp(np.linspace(fall[0], fall[-1], cells), np.maximum.accumulate(fall), coarse)
    return np.unique(np.concatenate([[-np.inf], coarse, even, [np.inf]]))


def _log_g(first: Decreasing, second: Decreasing, tau: Tau, points: Floats) -> tuple[Floats, Floats]:
    """log g(v), and a lower bound on log g(P′⁺): the larger of those by τ(v) and by the complement."""
    v, x = 0.5 * np.exp(np.minimum(points, 0.0)), 0.5 * np.exp(-np.maximum(points, 0.0))
    v, x = np.where(points > 0, 1.0 - x, v), np.where(points < 0, 1.0 - v, x)
    log_g = np.where(points > 0, first.log_pgf_derivative(x), first.log_g(v))
    log_g_tau = np.maximum(second.log_g(tau(v)), second.log_pgf_derivative(tau.complement(x)))
    # Both decrease; where rounding says otherwise, it is corrected on the safe side.
    return np.maximum.accumulate(log_g[::-1])[::-1], np.minimum.accumulate(log_g_tau)


def _lines(first: Decreasing, second: Decreasing, tau: Tau, points: Floats) -> tuple[Floats, Floats, Floats]:
    """log a_i and log b_i of every cell, rounded up and down; and its width, by how much both logarithms fall in it."""
    log_g, log_g_tau = _log_g(first, second, tau, points)
    log_a, log_b = log_g[:-1] + _SLACK, log_g_tau[1:] - _SLACK
    with np.errstate(invalid="ignore"):  # −∞ − (−∞) where both ends have underflowed
        width = (log_g[:-1] - log_g[1:]) + (log_g_tau[:-1] - log_g_tau[1:])
    return log_a, log_b, np.where(np.isnan(width), 0.0, width)


def _split(points: Floats, width: Floats, cells: npt.NDArray[np.intp]) -> Floats:
    """Points that cut each of the given cells into as many equal pieces as its width asks for."""
    pieces = np.clip(np.ceil(width[cells] / _WIDTH), 2, _MOST_PIECES).astype(np.intp)
    room = max(_MOST_CELLS - len(points), 2 * len(cells))
    pieces = np.maximum(pieces * min(1.0, room / pieces.sum()), 2).astype(np.intp)
    low, high = points[cells], points[cells + 1]
    low = np.where(np.isfinite(low), low, high - _FIRST_CUT)  # an end cell is cut far from its finite end
    high = np.where(np.isfinite(high), high, low + _FIRST_CUT)
    owner = np.repeat(np.arange(len(cells)), pieces)
    share = (np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) / pieces[owner]
    return np.asarray(low[owner] + share * (high[owner] - low[owner]))


def _upper_envelope(a: Floats, b: Floats) -> npt.NDArray[np.intp]:
    """Indices of the lines a_i − z b_i (both decreasing) that attain the maximum with 0 for some z, if a_i ≥ _TINY."""
    usable = np.flatnonzero(a >= _TINY)[::-1]  # by increasing b; the zero line (0, 0) comes first
    points_b, points_a = np.append(0.0, b[usable]), np.append(0.0, a[usable])
    kept = falling_part(points_b, -points_a)[::-1]
    return np.asarray(usable[kept[kept > 0] - 1])
