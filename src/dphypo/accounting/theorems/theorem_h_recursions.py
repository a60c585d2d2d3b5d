"""The recursion of Theorem H over the runs of a search, on a lattice of losses, cell by cell.

Statement and symbols: ``theorem_h_history_only.py``.

**The operator 𝒮_v**: one more run that must rank below the winner.

A run *kills* a winner that it outranks. Given the loss ω of the run, it does so with a probability k(ω), and whatever
the policy is, k belongs to 𝒞_v = {k: ∫k dP ≥ v, ∫k dQ ≤ τ(v)}, where v is the smallest probability on D, over the
densities of the band, of a rank as good as the winner's. So what remains of a payoff X is at most

    𝒮_v X(s) = sup over k ∈ 𝒞_v of E_P[(1 − k) X(s + ℓ)].

With k_lo the lower tail of ℓ of P-mass v, and k_hi that of Q-mass τ(v), for X with X and e^s X increasing

    𝒮_v X = E_P[(1 − k_lo) X₊(s + ℓ)] − E_P[(1 − k_hi) X₋(s + ℓ)].

On a cell v ∈ [a, b] k_lo is taken at a and k_hi at b, which makes it larger. X₋ is held as Y = e^s X₋ and weighted with
Q instead of P: both terms are then sums of non-negative numbers, whose rounding is a matter of proportion. Proof:
docs/theory.md, "The history-only bound", section "Closed form of the kill operator".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dphypo.accounting.profiles import Floats
from dphypo.accounting.theorems.lattice_pair import LatticePair
from dphypo.accounting.theorems.lemma2 import Corner

_BLOCK = 32
_GROUP = 8  # cells
_SLACK = 1e-12  # relative, for cumulative sums of some hundred masses and for what is compared with them
ROUNDING = 2e-13  # relative, for one step: a sum of some hundred products, and two additions
SLACK = 1e-11  # the relative accuracy asked of P[T = k], with room to spare
_LATE = 1e-12  # of δ: what a cell of large v may give away by "D known" for the last runs


@dataclass(frozen=True)
class Lattice:
    """The sums of losses s = (``first`` + i)·``step``, i = 0 … ``count``−1, on which payoffs are held."""

    step: float
    first: int
    count: int

    @property
    def sums(self) -> Floats:
        """The s."""
        return np.asarray(np.arange(self.first, self.first + self.count) * self.step, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Payoff:
    """Upper bounds X = X₊ − e^(−s) Y on payoffs, for each cell (first axis) and several payoffs (second).

    ``plus`` is X₊ ≥ 0 at every s of the lattice, and in its last entry at s = ∞, which bounds all s beyond the top.
    ``minus`` is Y ≥ 0 at every s. Below the bottom, X(s) ≤ X₊(bottom) − e^(−s) Y(bottom), as both X and e^s X increase.
    """

    plus: Floats
    minus: Floats


def payoff(lattice: Lattice, up: Floats, down: Floats) -> Payoff:
    """X ≤ ``up`` − e^(−s) ``down``, its two parts rounded towards a larger X; ``up`` includes s = ∞."""
    s = lattice.sums
    up = up * (1 + ROUNDING)
    down = down * (1 - ROUNDING)
    finite = up[..., :-1]
    plus = np.maximum(finite * (1 + ROUNDING) - np.exp(-s) * (1 - ROUNDING) * down, 0.0)
    minus = np.maximum(down - np.exp(s) * (1 + ROUNDING) * finite, 0.0)
    # A difference of two floats is exact to 2⁻⁵³ of the larger, which the factors above exceed.
    return Payoff(np.concatenate([plus, up[..., -1:]], axis=-1), minus)


class Survivors:
    """𝒮_v for every cell: P's mass that is left after k_lo, and Q's after k_hi.

    ``low`` and ``high`` are the ends of the cells, increasing, and ``tau_high`` is τ at the upper ones.
    """

    def __init__(self, pair: LatticePair, lattice: Lattice, low: Floats, high: Floats, tau_high: Floats) -> None:
        self.left_on, left_off = _left(pair, low, high, tau_high)
        self.told = pair.told
        self.certain = np.maximum(1.0 - low * (1 - _SLACK), pair.told)  # P's mass that is left of s = ∞
        self._blocks = -(-lattice.count // _BLOCK)
        self._on, self._off = _toeplitz(self.left_on), _toeplitz(left_off)
        reach = np.arange((self._blocks + len(self._on)) * _BLOCK) + pair.first
        self._at = np.where(reach >= lattice.count, lattice.count, np.maximum(reach, 0))
        self._count = lattice.count

    def __call__(self, value: Payoff) -> tuple[Floats, Floats]:
        """E_P[(1 − k_lo) X₊(s + ℓ)], s = ∞ included, and Σ_Q (1 − k_hi) Y(s + ℓ), for the first cells."""
        infinite = value.plus[..., -1:]
        up = self._correlate(value.plus, self._on) + self.told * infinite
        beyond = np.zeros((*value.minus.shape[:-1], 1))  # above the top X ≥ 0, as far as we know
        down = self._correlate(np.concatenate([value.minus, beyond], axis=-1), self._off)
        return np.concatenate([up, self.certain[: len(up), None, None] * infinite], axis=-1), down

    def _correlate(self, values: Floats, matrices: Floats) -> Floats:
        """Σ_a mass_a · value(s + a), in blocks, so that it is a few products of matrices for each cell.

        X₊ is 0 below some s and Y above some s: blocks of zeros, which are about half of them, are left out. Cells are
        taken in groups, since those that joined late are not 0 anywhere.
        """
        cells, payoffs = values.shape[:2]
        total = np.zeros((cells, self._blocks, payoffs, _BLOCK))
        for start in range(0, cells, _GROUP):
            group = slice(start, min(start + _GROUP, cells))
            wide = np.moveaxis(
                values[group][:, :, self._at].reshape(-1, payoffs, len(self._at) // _BLOCK, _BLOCK), 1, 2
            )
            used = np.flatnonzero(wide.any(axis=(0, 2, 3)))
            if not len(used):
                continue
            first, last = max(0, int(used[0]) - len(matrices) + 1), min(self._blocks, int(used[-1]) + 1)
            wide = np.ascontiguousarray(wide[:, first : last + len(matrices)])
            for distance, matrix in enumerate(matrices):
                piece = wide[:, distance : distance + last - first]
                added = np.matmul(piece.reshape(len(wide), -1, _BLOCK), matrix[group])
                total[group, first:last] += added.reshape(piece.shape)
        return np.moveaxis(total, 2, 1).reshape(cells, payoffs, -1)[:, :, : self._count]


def _left(pair: LatticePair, low: Floats, high: Floats, tau_high: Floats) -> tuple[Floats, Floats]:
    """P's masses after k_lo, rounded up, and Q's after k_hi, rounded down: an array of cells by losses each."""
    on_below, off_below = np.cumsum(pair.on), np.cumsum(pair.off)
    on = np.clip(on_below * (1 + _SLACK) - low[:, None] * (1 - _SLACK), 0.0, pair.on)
    off = np.clip(off_below * (1 - _SLACK) - tau_high[:, None] * (1 + _SLACK), 0.0, pair.off)
    # k_hi is at least k_lo: the pair may be a little easier to tell apart than the run from which τ is computed.
    share = np.clip(on_below * (1 - _SLACK) - high[:, None] * (1 + _SLACK), 0.0, pair.on)
    with np.errstate(invalid="ignore"):
        share = np.where(pair.on > 0, share / pair.on, 0.0)
    return on, np.minimum(off, share * pair.off) * (1 - _SLACK)


def _toeplitz(masses: Floats) -> Floats:
    """Matrices T_d, with T_d[j, k] = masses[d·block + j − k]: what block m + d of the values adds to block m."""
    cells, atoms = masses.shape
    distances = -(-(atoms - 1) // _BLOCK) + 1
    place: npt.NDArray[np.intp] = np.arange(_BLOCK)[:, None] - np.arange(_BLOCK)[None, :]
    offsets = np.arange(distances)[:, None, None] * _BLOCK + place
    padded = np.concatenate([masses, np.zeros((cells, 1))], axis=1)
    inside = (offsets >= 0) & (offsets < atoms)
    gathered: Floats = padded[:, np.where(inside, offsets, atoms)]
    return np.ascontiguousarray(np.moveaxis(gathered, 1, 0))


def _hull(value: Payoff, beyond: Floats | None = None) -> tuple[Floats, Floats]:
    """F⁺ and e^s F⁻ of R: the largest X₊ among this cell and those of larger v, the smallest Y among smaller v."""
    plus, minus = value.plus[:, 0], value.minus[:, 0]
    if beyond is not None:
        plus = np.concatenate([plus, np.broadcast_to(beyond, (1, plus.shape[1]))])
    upper = np.maximum.accumulate(plus[::-1], axis=0)[::-1][: len(minus)]
    return upper, np.minimum.accumulate(minus, axis=0)


def recursion(pmf: Floats, lattice: Lattice, survivors: Survivors, corners: list[Corner], from_prior: int) -> Floats:
    """(Q¹_v)₊ for each cell and corner: Theorem H-U.

    A cell of large v outlives few runs, so that it joins late: until then it is bounded by its value at s = ∞.
    """
    cells, count = len(survivors.certain), lattice.count
    w, w_back = np.array([corner[0] for corner in corners]), np.array([corner[1] for corner in corners])
    certain = np.zeros((cells, 1 + len(corners)))  # R and the Q at s = ∞, for all cells
    value = Payoff(np.zeros((0, certain.shape[1], count + 1)), np.zeros((0, certain.shape[1], count)))
    for i in range(len(pmf) - 1, 0, -1):
        certain, before = _certain(certain, pmf[i] * (1 + SLACK), survivors, w if i > from_prior else 1.0), certain
        weight = np.max(certain[:, 1:], axis=1) * survivors.certain ** (i - 1)
        active = max(len(value.plus), int(np.count_nonzero(weight > _LATE)), 1)
        value = _join(value, before, active, count)
        up, down = survivors(value)
        up[:, 0] += pmf[i] * (1 + SLACK)
        down[:, 0] += pmf[i] * (1 - SLACK)
        one = payoff(lattice, up[:, :1], down[:, :1])
        if i > from_prior:
            upper, lower = _hull(one, certain[active, 0] if active < cells else None)
            up[:, 1:] += w[None, :, None] * upper[:, None, :]
            down[:, 1:] += w_back[None, :, None] * lower[:, None, :]
        else:
            up[:, 1:] += one.plus
            down[:, 1:] += one.minus
        rest = payoff(lattice, up[:, 1:], down[:, 1:])
        value = Payoff(np.concatenate([one.plus, rest.plus], axis=1), np.concatenate([one.minus, rest.minus], axis=1))
    return _join(value, certain, cells, count).plus[:, 1:]


def _certain(certain: Floats, mass: float, survivors: Survivors, w: Floats | float) -> Floats:
    """One step back at s = ∞, where D is known: R ← p_i + (1 − v) R, Q ← w F⁺ + (1 − v) Q."""
    left = survivors.certain[:, None] * certain
    r = left[:, 0] + mass
    upper = np.maximum.accumulate(r[::-1])[::-1]
    return np.column_stack([r, left[:, 1:] + w * upper[:, None]]) * (1 + SLACK * 1e-2)


def _join(value: Payoff, certain: Floats, active: int, count: int) -> Payoff:
    """Add cells that start from their value at s = ∞."""
    new = certain[len(value.plus) : active, :, None]
    if len(new) == 0:
        return value
    plus = np.broadcast_to(new, (*new.shape[:2], count + 1))
    minus = np.zeros((*new.shape[:2], count))
    return replace(value, plus=np.concatenate([value.plus, plus]), minus=np.concatenate([value.minus, minus]))
