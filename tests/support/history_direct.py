"""Theorem H computed a second time, as the statement reads: the kill chosen case by case, sums with signs, no blocks.

It shares with the package only the pair (P, Q) on its lattice. It is slow, and its rounding is not certified.
"""

from __future__ import annotations

import numpy as np

from dphypo.accounting.profiles import Profile
from dphypo.accounting.theorems.theorem_h_history_only import LatticePair
from dphypo.band import Band


def tau(reverse: Profile, band: Band, v: np.ndarray) -> np.ndarray:
    """min(1, inf over r of r v + Δ[δ^rev](log r)) with Δ written out."""
    log_r = np.linspace(-30.0, 30.0, 12001)
    c, C, L = band.c, band.C, np.log(band.C / band.c)
    p = (1 - c) / (C - c)
    q, middle = min(p, 1 - p), c * (1 - 2 * p) if p <= 0.5 else C * (2 * p - 1)
    moved = C * q * reverse.delta(log_r - L) + middle * reverse.delta(log_r) + c * q * reverse.delta(log_r + L)
    return np.minimum(1.0, np.min(np.exp(log_r)[None, :] * v[:, None] + moved[None, :], axis=1))


def _tail(masses: np.ndarray, size: float) -> np.ndarray:
    """The lower tail of that mass, as the part of each atom that belongs to it."""
    below = np.concatenate([[0.0], np.cumsum(masses)[:-1]])
    return np.clip((size - below) / np.where(masses > 0, masses, 1.0), 0.0, 1.0) * (masses > 0)


def _edge(kill: np.ndarray) -> int:
    """The largest loss of which any is killed."""
    return int(np.flatnonzero(kill > 0)[-1]) if (kill > 0).any() else 0


class Kills:
    """𝒮_v on one cell [v, v″], with τ = τ(v″), for functions on the lattice from −far to far and at infinity."""

    def __init__(self, pair: LatticePair, far: int, v: float, above: float, reach: float) -> None:
        self.pair, self.v = pair, v
        self.low = _tail(pair.on, v)
        self.high = np.maximum(_tail(pair.off, reach), _tail(pair.on, above))
        at = np.arange(-far, far + 1)[:, None] + np.arange(pair.first, pair.last + 1)[None, :] + far
        self.at = np.where(at > 2 * far, 2 * far + 1, np.maximum(at, 0))

    def __call__(self, value: np.ndarray) -> np.ndarray:
        ahead = value[self.at]
        first = ahead[:, _edge(self.low)] >= 0
        last = ahead[:, _edge(self.high)] < 0
        kill = np.where(first[:, None], self.low, np.where(last[:, None], self.high, ahead < 0))
        found = ((1 - kill) * ahead) @ self.pair.on + self.pair.infinity * value[-1]
        return np.append(found, (1 - self.v) * value[-1])


def known(
    pair: LatticePair, pmf: np.ndarray, corners: list, n0: int, cells: np.ndarray, taus: np.ndarray, far: int
) -> tuple[np.ndarray, np.ndarray]:
    """H-K: ε on the lattice and δ there, without the terms for T = 0 and for the tail of T."""
    s = np.arange(-far, far + 1) * pair.step
    kills = [Kills(pair, far, *one) for one in zip(cells[:-1], cells[1:], taus[1:], strict=True)]
    r = [np.append(-np.expm1(-s), 1.0) for _ in kills]
    q = [[np.zeros(len(s) + 1) for _ in corners] for _ in kills]
    total = [[np.zeros(len(s) + 1) for _ in corners] for _ in kills]
    for k in range(1, len(pmf)):
        plus = np.maximum.accumulate(np.maximum(r, 0.0)[::-1], axis=0)[::-1]
        minus = np.minimum.accumulate(np.maximum(-np.array(r), 0.0), axis=0)
        for cell, kill in enumerate(kills):
            for j, (w, w_back, _) in enumerate(corners):
                rest = kill(q[cell][j])
                q[cell][j] = w * plus[cell] - w_back * minus[cell] + rest
                total[cell][j] += pmf[k] * (r[cell] + rest if n0 else q[cell][j])
            r[cell] = kill(r[cell])
    best = sum(
        mass * np.maximum(np.max([cell[j] for cell in total], axis=0), 0.0) for j, (*_, mass) in enumerate(corners)
    )
    index = np.arange(0, 2 * far)
    at = np.clip(np.arange(pair.first, pair.last + 1)[None, :] - index[:, None] + far, 0, None)
    at = np.where(at > 2 * far, 2 * far + 1, at)
    return index * pair.step, best[at] @ pair.on + pair.infinity * best[-1]
