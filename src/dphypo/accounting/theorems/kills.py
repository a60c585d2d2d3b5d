"""The operator 𝒮_v of Theorem H: one more run that must rank below the winner, on a lattice of losses, cell by cell.

A run *kills* a winner that it outranks. Given the loss ω of the run, it does so with a probability k(ω), and whatever
the policy is, k belongs to 𝒞_v = {k: ∫k dP ≥ v, ∫k dQ ≤ τ(v)}, where v is the smallest probability on D, over the
densities of the band, of a rank as good as the winner's. So what remains of a payoff X is at most

    𝒮_v X(s) = sup over k ∈ 𝒞_v of E_P[(1 − k) X(s + ℓ)].

For X with X and e^s X increasing, the best k is a lower tail {ℓ small}: k_lo of P-mass v where X ≥ 0 at its edge, k_hi
of Q-mass τ(v) where X < 0 at its edge, all of {X < 0} in between. In one formula

    𝒮_v X = E_P[(1 − k_lo) X₊(s + ℓ)] − E_P[(1 − k_hi) X₋(s + ℓ)].

The right-hand side is monotone in X, so what is computed from an upper bound on X is an upper bound. It grows if k_lo
shrinks or k_hi grows: on a cell v ∈ [a, b] take k_lo at a, and k_hi at b. Both terms are sums of non-negative numbers,
so that rounding is a matter of proportion, if X₋ is held as Y = e^s X₋ and weighted with Q instead of P. Proof:
docs/theory.md, section "The history-only bound".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dphypo.accounting.profiles import Floats
from dphypo.accounting.theorems.lattice_pair import LatticePair

_BLOCK = 32
_SLACK = 1e-12  # relative, for cumulative sums of some hundred masses and for what is compared with them
ROUNDING = 2e-13  # relative, for one step: a sum of some hundred products, and two additions


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
        cells = len(value.plus)
        infinite = value.plus[..., -1:]
        up = self._correlate(value.plus, self._on, cells) + self.told * infinite
        beyond = np.zeros((*value.minus.shape[:-1], 1))  # above the top X ≥ 0, as far as we know
        down = self._correlate(np.concatenate([value.minus, beyond], axis=-1), self._off, cells)
        return np.concatenate([up, self.certain[:cells, None, None] * infinite], axis=-1), down

    def _correlate(self, values: Floats, matrices: Floats, cells: int) -> Floats:
        """Σ_a mass_a · value(s + a), in blocks, so that it is a few products of matrices for each cell."""
        payoffs = values.shape[1]
        wide = values[:, :, self._at].reshape(cells, payoffs, -1, _BLOCK)
        total = np.zeros((cells, payoffs * self._blocks, _BLOCK))
        for distance, matrix in enumerate(matrices):
            piece = wide[:, :, distance : distance + self._blocks].reshape(cells, payoffs * self._blocks, _BLOCK)
            total += np.matmul(piece, matrix[:cells])
        return total.reshape(cells, payoffs, -1)[:, :, : self._count]


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
