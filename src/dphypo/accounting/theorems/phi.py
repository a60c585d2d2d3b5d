"""φ(z) = max over v of (g(v) − z g(τ(v)))₊, certified: what the choice among T runs does to one run's losses.

g(v) = f′(1−v), where f is the probability generating function of T. A maximum over a grid of v would not be an upper
bound. On a *cell* [v_i, v_{i+1}] the line a_i − z b_i with a_i = g(v_i), b_i = g(τ(v_{i+1})) is one, because g
decreases and τ increases. So φ is bounded by the upper envelope of these lines, whatever the cells; cells whose lines
are on the envelope are split until they are narrow, the others are left alone. Why: docs/theory.md, "Selection".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dphypo.accounting.profiles import Floats
from dphypo.accounting.theorems.lemma2 import Tau
from dphypo.laws import Law

_WIDTH = 2e-3  # split a cell while a_i / a_{i+1} · b_{i−1} / b_i is above e^_WIDTH
_ROUNDS = 5
_FIRST_CELLS = (2000, 12_000)
_MOST_CELLS = 50_000
_MOST_PIECES = 64
_SLACK = 1e-11  # the relative accuracy asked of log_g, with room to spare
_TINY = 1e-280  # of E[T]: lines that start lower are bounded together, so that no product or quotient underflows


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


def phi(runs: Law, tau: Tau) -> Phi:
    """Bound φ for a law of T and a τ, from above."""
    v = _spread(runs, tau)
    for _ in range(_ROUNDS):
        log_a, log_b, width = _lines(runs, tau, v)
        envelope = _upper_envelope(*_relative(log_a, log_b))
        wide = envelope[width[envelope] > _WIDTH]
        if len(wide) == 0 or len(v) > _MOST_CELLS:
            break
        v = np.union1d(v, _split(v, width, wide))
    log_a, log_b, _ = _lines(runs, tau, v)
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


def _spread(runs: Law, tau: Tau) -> Floats:
    """A first grid of v, from 0 to 1, on which log g(v) + log g(τ(v)) falls by about as much in every cell."""
    coarse = np.geomspace(1e-18, 1.0, 400)
    fall = -(runs.log_g(coarse) + runs.log_g(tau(coarse)))
    # Beyond e^−750 both are zero. All of it may be beyond, if τ is 1 throughout and P[T = 1] = 0.
    fall = np.minimum(fall, (fall[0] if np.isfinite(fall[0]) else 0.0) + 1500.0)
    cells = int(np.clip((fall[-1] - fall[0]) / (2 * _WIDTH), *_FIRST_CELLS))
    even = np.interp(np.linspace(fall[0], fall[-1], cells), fall, np.log(coarse))
    return np.unique(np.concatenate([[0.0], coarse, np.minimum(np.exp(even), 1.0)]))


def _lines(runs: Law, tau: Tau, v: Floats) -> tuple[Floats, Floats, Floats]:
    """log a_i, log b_i of every cell, rounded up and down, and how much a cell gives away to its neighbours' ends."""
    log_g, log_g_tau = runs.log_g(v), runs.log_g(tau(v))
    log_a, log_b = log_g[:-1] + _SLACK, log_g_tau[1:] - _SLACK
    with np.errstate(invalid="ignore"):  # −∞ − (−∞) where both ends have underflowed
        width = (log_g[:-1] - log_g[1:]) + (log_g_tau[:-1] - log_g_tau[1:])
    return log_a, log_b, np.where(np.isnan(width), 0.0, width)


def _split(v: Floats, width: Floats, cells: npt.NDArray[np.intp]) -> Floats:
    """Points that cut each of the given cells, evenly in log v, into as many pieces as its width asks for."""
    pieces = np.clip(np.ceil(width[cells] / _WIDTH), 2, _MOST_PIECES).astype(np.intp)
    room = max(_MOST_CELLS - len(v), 2 * len(cells))
    pieces = np.maximum(pieces * min(1.0, room / pieces.sum()), 2).astype(np.intp)
    low, high = v[cells], v[cells + 1]
    low = np.where(low > 0, low, high * 1e-6)  # a cell that starts at 0 is cut far below its end
    owner = np.repeat(np.arange(len(cells)), pieces)
    share = (np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) / pieces[owner]
    return np.asarray(low[owner] * (high[owner] / low[owner]) ** share)


def _upper_envelope(a: Floats, b: Floats) -> npt.NDArray[np.intp]:
    """Indices of the lines a_i − z b_i (both decreasing) that attain the maximum with 0 for some z, if a_i ≥ _TINY."""
    kept: list[int] = []
    points_a, points_b = a.tolist(), b.tolist()
    for i in range(len(points_a)):
        if points_a[i] < _TINY:
            break
        while kept and points_b[kept[-1]] >= points_b[i] and points_a[kept[-1]] <= points_a[i]:
            kept.pop()
        if kept and points_b[kept[-1]] <= points_b[i]:
            continue  # neither larger at 0 nor flatter: never above the line before it
        while len(kept) > 1:
            p, q = kept[-2], kept[-1]
            left = (points_a[p] - points_a[q]) / (points_b[p] - points_b[q])  # where q rises above p
            right = (points_a[q] - points_a[i]) / (points_b[q] - points_b[i])
            if left >= right:
                kept.pop()
            else:
                break
        kept.append(i)
    while len(kept) > 1:  # the zero line (0, 0) ends the envelope
        p, q = kept[-2], kept[-1]
        if points_b[q] > 0 and (points_a[p] - points_a[q]) / (points_b[p] - points_b[q]) >= points_a[q] / points_b[q]:
            kept.pop()
        else:
            break
    return np.array(kept, dtype=np.intp)
