"""Theorem H: the privacy profile of a search whose policy sees only the history, for any law of T.

Theorem 4 lets the policy know the data. Real search rules see the earlier (λ, score) and nothing else, so that what
they do on D and on D′ differs only as far as the histories do. Conditions, beyond those of Theorem 4:

* the law of λ_j is one and the same function, on D and on D′, of (λ₁, y₁, …, λ_{j−1}, y_{j−1}) and of randomness that
  depends neither on the data nor on T;
* y is all the policy sees of a run, and the dominating pair (P, Q) speaks of the whole of it;
* runs are ranked by (score, key) with a fresh uniform key; the mechanism is the same at every index;
* the first n₀ runs are drawn from the prior exactly.

With (w_j, w′_j) and n_j the pairs and masses of Lemma 2, p_i = P[T = i], 𝒮_v the operator, and for a family R_v:
F⁺_v = sup over v′ ≥ v of (R_v′)₊, F⁻_v = inf over v′ ≤ v of (−R_v′)₊.

**H-U**. R^{K+1} = Q^{K+1} = 0, and for i = K, …, 1

    R^i_v(s) = p_i (1 − e^(−s)) + 𝒮_v R^{i+1}_v(s),
    Q^i_v = w F^{i,+}_v − w′ F^{i,−}_v + 𝒮_v Q^{i+1}_v  for i > n₀,    R^i_v + 𝒮_v Q^{i+1}_v  for i ≤ n₀;
    δ_A(ε) ≤ p₀ (1 − e^ε)₊ + P[T > K] + E_{ℓ∼P} Σ_j n_j sup over v of (Q^{1,w_j,w′_j}_v(ℓ − ε))₊.

Symbols in the code: ``lattice.sums`` are the s, ``Payoff`` is one X = R or Q on all cells of v, ``corners`` are the
(w_j, w′_j, n_j); ``theorem_h_recursions.py`` has 𝒮_v and makes R, Q, F⁺ and F⁻. docs/theory.md has the proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dphypo.accounting.profiles import Floats, RunProfile, lower_hull
from dphypo.accounting.theorems.lattice_pair import LatticeError, LatticePair, lattice_pair
from dphypo.accounting.theorems.lemma2 import Tau, corners
from dphypo.accounting.theorems.theorem_h_recursions import SLACK, Lattice, Survivors, recursion
from dphypo.band import Band
from dphypo.laws import Law

_FIRST_CELLS = 16
_MOST_RUNS = 6000
_MOST_POINTS, _FEWEST_ATOMS = 1500, 8
_FEW = 4
_DEEPEST = 120.0  # rounding such an s changes e^s by 1.4e-14 in proportion: ROUNDING has room
_INTERESTING = (1e-9, 1e-3)  # the δ for which cells are made narrow


@dataclass(frozen=True)
class Effort:
    """How much work the bound is worth: more of anything only tightens it."""

    atoms: int = 320  # losses of the dominating pair
    coarse_atoms: int = 96  # the same while cells are looked for
    cells: int = 48  # of v
    depth: float = 14.0  # sums reach from −depth to depth; to twice as much, and so on, where δ would stay above 1e-9
    tail: float = 1e-10  # P[T > K] that is given up, and added to δ


@dataclass(frozen=True, eq=False)
class HistoryProfile:
    """δ_A(ε) of a search with a history-only policy, in one direction, D to D′: a profile, so that it composes.

    The first four arguments are those of Theorem 4, ``first_from_prior`` is n₀. Where floats cannot certify a pair
    there is a ``LatticeError``.
    """

    forward: RunProfile
    reverse: RunProfile
    runs: Law
    band: Band
    first_from_prior: int = 0
    effort: Effort = Effort()
    _pairs: dict[int, LatticePair] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def exists(self) -> bool:
        """Whether the bound can be had: the run has a certified pair on a lattice, and T is not too large to follow."""
        try:
            self._pair(self.effort.coarse_atoms)
            self._pair(self.effort.atoms)
        except LatticeError:
            return False
        return self._last <= _MOST_RUNS

    @property
    def top(self) -> float:
        return float(self._curve[0][-1])

    def delta(self, epsilon: npt.ArrayLike) -> Floats:
        eps = np.asarray(epsilon, dtype=np.float64)
        at, values = self._curve
        # Chords in e^ε: δ_A is convex in it, 1 at e^ε = 0, and not larger beyond the last point than there.
        right = np.clip(np.searchsorted(at, eps, side="left"), 0, len(at) - 1)
        left = np.maximum(right - 1, 0)
        width = np.expm1(np.minimum(at[left] - at[right], -1e-300))
        share = np.clip(np.expm1(np.minimum(eps - at[right], 0.0)) / np.where(right > 0, width, -1.0), 0.0, 1.0)
        start = np.where(right > 0, values[left], 1.0)
        chord = values[right] + share * np.maximum(start - values[right], 0.0)
        return np.asarray(np.minimum(chord * (1 + SLACK), 1.0))

    @cached_property
    def _law(self) -> tuple[Floats, float]:
        """P[T = k] for k ≤ K, and an upper bound on P[T > K]."""
        return np.asarray(self.runs.pmf(np.arange(self._last + 1)), dtype=np.float64), self.effort.tail * (1 + 1e-5)

    @property
    def _last(self) -> int:
        """K."""
        return max(1, self.runs.quantile(1.0 - self.effort.tail))

    @cached_property
    def _tau(self) -> Tau:
        return Tau(self.reverse, self.band)

    @cached_property
    def cells(self) -> Floats:
        """The ends of the cells of v, from 0 to 1: found on a coarse pair, narrow where the suprema are attained."""
        cells = _spread(self.runs, self._tau, _FIRST_CELLS)
        pair = self._pair(self.effort.coarse_atoms)
        while len(cells) <= self.effort.cells:
            lattice = self._lattice(pair)
            value = self._payoff(pair, lattice, cells)
            cells = _split(cells, self._weights(pair, lattice, value), self.effort.cells)
        return cells

    @cached_property
    def _curve(self) -> tuple[Floats, Floats]:
        """ε on the lattice, and δ there; where δ stays large because sums were cut off, of deeper lattices too.

        Every depth gives an upper bound at its points, and δ is convex in e^ε: their common hull is an upper bound.
        A deeper lattice has fewer atoms, so that it does not cost much more than the first.
        """
        level, (epsilon, delta, left) = self, self._to_depth
        while level._cut and delta[-1] > max(_INTERESTING[0], 2 * left) and 2 * level.effort.depth <= _DEEPEST:
            atoms = math.ceil(level.effort.atoms / math.sqrt(2))
            level = replace(level, effort=replace(level.effort, depth=2 * level.effort.depth, atoms=atoms))
            try:
                more_epsilon, more_delta, left = level._to_depth
            except LatticeError:  # what was found before is a bound without it
                break
            epsilon, delta = _corners(np.append(epsilon, more_epsilon), np.append(delta, more_delta))
        return epsilon, delta

    @property
    def _cut(self) -> bool:
        """Whether sums of losses may get further than the lattice."""
        return self._reach(self._pair(self.effort.coarse_atoms)) > self.effort.depth

    @cached_property
    def _to_depth(self) -> tuple[Floats, Floats, float]:
        """ε on a lattice of this depth, and δ there, at the corners of the hull; and what no depth takes off δ."""
        pair = self._pair(self.effort.coarse_atoms)
        if np.count_nonzero(pair.on) > _FEW:  # a pure run has two losses, which a coarse lattice holds exactly
            pair = self._pair(self.effort.atoms)
        lattice = self._lattice(pair)
        value = self._payoff(pair, lattice, self.cells)
        masses = np.array([mass for _, _, mass in corners(self.band)])
        best = masses @ np.max(value, axis=0)  # Σ_j n_j sup over v of (Q_v(s))₊, and the same at s = ∞
        index, at = _shifts(pair, lattice, best)
        gain = best[at] @ pair.on + pair.told * best[-1]
        epsilon = np.asarray(index * pair.step, dtype=np.float64)
        nothing = float(self.runs.pgf(0.0)) * -np.expm1(np.minimum(epsilon, 0.0))
        delta = np.minimum((gain + nothing + self._law[1]) * (1 + SLACK), 1.0)
        left = (pair.told * best[-1] + self._law[1]) * (1 + SLACK)
        return *_corners(epsilon, delta), float(left)

    def _pair(self, atoms: int) -> LatticePair:
        """A pair of this many losses; of fewer if the lattice of their sums would have too many points."""
        if atoms in self._pairs:
            return self._pairs[atoms]
        used, pair = atoms, lattice_pair(self.forward, self.reverse, atoms)
        while (count := self._lattice(pair).count) > _MOST_POINTS and used > _FEWEST_ATOMS:
            used = max(_FEWEST_ATOMS, math.floor(0.99 * used * _MOST_POINTS / count))
            pair = lattice_pair(self.forward, self.reverse, used)
        self._pairs[atoms] = pair
        return pair

    def _reach(self, pair: LatticePair) -> float:
        """How far sums of losses get, but for some of small probability."""
        runs = min(len(self._law[0]), 4 * math.ceil(self.runs.mean) + 10)
        drift = float(np.abs(pair.on @ pair.losses))
        spread = math.sqrt(float(pair.on @ pair.losses**2))
        return runs * drift + 12 * spread * math.sqrt(runs) + pair.step * max(pair.last, -pair.first)

    def _lattice(self, pair: LatticePair) -> Lattice:
        """Sums of losses as far as they reach, or to ±depth."""
        far = math.ceil(min(self.effort.depth, self._reach(pair)) / pair.step) + 1
        return Lattice(pair.step, -far, 2 * far + 1)

    def _payoff(self, pair: LatticePair, lattice: Lattice, cells: Floats) -> Floats:
        """(Q_v(s))₊ for every cell, corner and s."""
        low, high = cells[:-1], cells[1:]
        survivors = Survivors(pair, lattice, low, high, self._tau(high))
        return recursion(self._law[0], lattice, survivors, corners(self.band), self.first_from_prior)

    def _weights(self, pair: LatticePair, lattice: Lattice, value: Floats) -> Floats:
        """How much of δ each cell answers for: the largest share at any ε at which δ is of interest."""
        winner = np.argmax(value, axis=0)
        masses = np.array([mass for _, _, mass in corners(self.band)])
        best = masses[:, None] * np.max(value, axis=0)
        _, at = _shifts(pair, lattice, best.sum(axis=0))
        total = best.sum(axis=0)[at] @ pair.on
        weights = np.zeros(len(value))
        for row in np.flatnonzero((total > _INTERESTING[0]) & (total < _INTERESTING[1])):
            share = np.bincount(winner[:, at[row]].ravel(), (best[:, at[row]] * pair.on).ravel(), minlength=len(value))
            weights = np.maximum(weights, share / total[row])
        return weights


def _shifts(pair: LatticePair, lattice: Lattice, best: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The ε of the curve, in steps, and for each ε and loss ℓ the place of s = ℓ − ε on the lattice."""
    first = int(np.argmax(best > 0)) + lattice.first
    ends = max(pair.last - first + 1, 1)  # the first ε at which nothing is gained: below, the curve would stop too high
    index = np.arange(-ends, ends + 1)
    at = np.arange(pair.first, pair.last + 1)[None, :] - index[:, None] - lattice.first
    return index, np.where(at >= lattice.count, lattice.count, np.maximum(at, 0))


def _split(cells: Floats, weights: Floats, most: int) -> Floats:
    """Cut the cells that answer for most of δ, and their neighbours, so that none answers for much."""
    near = np.maximum(weights, 0.5 * np.maximum(np.append(weights[1:], 0.0), np.append(0.0, weights[:-1])))
    pieces = np.ones(len(weights), dtype=np.int64)
    room = min(most + 1 - len(weights), max(len(weights) // 2, 4))
    for _ in range(room):
        pieces[np.argmax(near / pieces**2)] += 1
    parts = [
        np.linspace(low, high, count, endpoint=False)
        for low, high, count in zip(cells[:-1], cells[1:], pieces, strict=True)
    ]
    return np.append(np.concatenate(parts), 1.0)


def _corners(epsilon: Floats, delta: Floats) -> tuple[Floats, Floats]:
    """The points that are corners of the convex envelope in e^ε, in order."""
    order = np.argsort(epsilon, kind="stable")
    epsilon, delta = epsilon[order], np.minimum.accumulate(delta[order])
    corner = lower_hull(np.append(0.0, np.exp(epsilon)), np.append(1.0, delta))[1:] - 1
    return epsilon[corner], delta[corner]


def _spread(runs: Law, tau: Tau, cells: int) -> Floats:
    """Ends of cells on which log g(v) + log g(τ(v)), g(v) = f′(1 − v), falls by about as much in each."""
    coarse = np.geomspace(1e-9, 1.0, 600)
    fall = -(runs.log_g(coarse) + runs.log_g(tau(coarse)))
    fall = np.minimum(fall, (fall[0] if np.isfinite(fall[0]) else 0.0) + 60.0)
    fall = fall + np.linspace(0.0, 1e-6, len(fall))
    even = np.interp(np.linspace(fall[0], fall[-1], cells), fall, np.log(coarse))
    return np.unique(np.concatenate([[0.0], np.exp(even[:-1]), [1.0]]))
