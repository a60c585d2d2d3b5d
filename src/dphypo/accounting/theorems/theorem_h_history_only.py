"""Theorem H: the privacy profile of a search whose policy sees only the history, for any law of T.

Theorem 4 allows the policy to know the data. Real search rules see the earlier (λ, score) and nothing else, so their
choices on D and on D′ differ only as far as the histories do. The conditions on the policy, which certificates list,
and the proof: docs/theory.md, "The history-only bound".

With (w_j, w′_j) and n_j the pairs and masses of Lemma 2, p_i = P[T = i], n₀ first runs from the prior, 𝒮_v the
operator, and for a family R_v: F⁺_v = sup over v′ ≥ v of (R_v′)₊, F⁻_v = inf over v′ ≤ v of (−R_v′)₊.

**H-U**. R^{K+1} = Q^{K+1} = 0, and for i = K, …, 1

    R^i_v(s) = p_i (1 − e^(−s)) + 𝒮_v R^{i+1}_v(s),
    Q^i_v = w F^{i,+}_v − w′ F^{i,−}_v + 𝒮_v Q^{i+1}_v  for i > n₀,    R^i_v + 𝒮_v Q^{i+1}_v  for i ≤ n₀;
    δ_A(ε) ≤ p₀ (1 − e^ε)₊ + P[T > K] + E_{ℓ∼P} Σ_j n_j sup over v of (Q^{1,w_j,w′_j}_v(ℓ − ε))₊.

Symbols in the code: ``lattice.sums`` are the s, ``Payoff`` is one X = R or Q on all cells of v, ``corners`` are the
(w_j, w′_j, n_j), :class:`Survivors` is 𝒮_v, and :func:`recursion` computes R, Q, F⁺ and F⁻ cell by cell.

**The operator 𝒮_v**: one more run, which must rank below the winner. The run outranks it with a probability k(ω) that
depends on the loss ω of the run, where ∫k dP ≥ v and ∫k dQ ≤ τ(v) whatever the policy is. With k_lo the lower tail of ℓ
of P-mass v, and k_hi that of Q-mass τ(v), for X with X and e^s X increasing

    𝒮_v X(s) = sup over k of E_P[(1 − k) X(s + ℓ)] = E_P[(1 − k_lo) X₊(s + ℓ)] − E_P[(1 − k_hi) X₋(s + ℓ)].

On a cell v ∈ [a, b] k_lo is taken at a and k_hi at b, which makes it larger. X₋ is held as Y = e^s X₋ and weighted with
Q instead of P: both terms are then sums of non-negative numbers, whose rounding errors are relative.

**The lattice.** If every loss is a whole multiple of one step h, so is every sum, and nothing is rounded on the way.
The lower convex envelope of the points (e^ε, δ(ε)) at ε ∈ hℤ is the profile of a pair that dominates the run; its
losses are the kinks. A small probability of an infinite loss is mixed in, and a pair is refused if the profile of the
floats as stored is not above the points. Small and large losses need different coordinates: δ for ε ≥ 0, and for ε ≤ 0
the profile of the exchanged pair at −ε, r = 1 − e^(−ε)(1 − δ), since near ε → −∞ every δ is almost 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from dphypo.accounting.profiles import Floats, Profile, RunProfile, end, lower_hull
from dphypo.accounting.theorems.lemma2 import Corner, Tau, corners
from dphypo.band import Band
from dphypo.laws import Law

_NEGLIGIBLE = 1e-13  # δ at the ends of the window; what is beyond becomes infinite loss
_TRACES = (1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7)  # of an infinite loss: the first that passes the check
_SUMS = 1e-14  # relative error of a sum of a few hundred products of floats, pairwise, with room to spare
_MIRROR = 1e-15  # absolute error of 1 − e^ε + e^ε δ, in units of e^ε
_LARGEST_WINDOW = 300.0
_SMALLEST_STEP = 1e-4
Steps = npt.NDArray[np.int64]


class LatticeError(ArithmeticError):
    """No pair on the lattice was found that dominates the run for certain; other bounds still apply."""


@dataclass(frozen=True, eq=False)
class LatticePair:
    """P[ℓ = (``first`` + i)·``step``] = ``on[i]``, exactly as stored; the rest of P is at ℓ = +∞, the rest of Q at −∞.

    Q has mass ``on[i]`` e^(−ℓ) at ℓ. ``infinity`` is P[ℓ = ∞], rounded up; ``off`` are the masses of Q as floats,
    within 1e-14 in proportion.
    """

    step: float
    first: int
    on: Floats
    losses: Floats = field(init=False, repr=False)
    off: Floats = field(init=False, repr=False)
    infinity: float = field(init=False)

    def __post_init__(self) -> None:
        losses = np.arange(self.first, self.first + len(self.on)) * self.step
        object.__setattr__(self, "losses", losses)
        object.__setattr__(self, "off", self.on * np.exp(-losses))
        object.__setattr__(self, "infinity", max(0.0, 1.0 - math.fsum(self.on)) * (1 + _SUMS) + 2.0**-53)

    @property
    def last(self) -> int:
        """The largest loss, in steps."""
        return self.first + len(self.on) - 1


def lattice_pair(forward: Profile, reverse: Profile, atoms: int = 256) -> LatticePair:
    """A pair on about ``atoms`` equally spaced losses that dominates a run; more of them come closer to the run.

    A ``LatticeError`` says that the run separates D from D′ so well that floats cannot certify a pair.

    >>> from dphypo.accounting.profiles import randomised_response
    >>> run = randomised_response(1.0)
    >>> pair = lattice_pair(run, run)
    >>> pair.losses[pair.on > 1e-6].round(5), pair.on[pair.on > 1e-6].round(4)
    (array([-1.,  1.]), array([0.2689, 0.7311]))
    """
    high, low = (end(profile, _NEGLIGIBLE, _LARGEST_WINDOW, room=1e-9) for profile in (forward, reverse))
    # The larger end is a whole number of steps from 0: a pure run has its mass exactly there.
    larger = max(high, low, _SMALLEST_STEP)
    step = max(larger / max(1, round(atoms * larger / (high + low + 1e-300))), _SMALLEST_STEP)
    # A step such as 0.1 is not exact in binary; larger/step may round to just below a whole number.
    index = np.arange(-math.ceil(low / step - 1e-6), math.ceil(high / step - 1e-6) + 1)
    y, r = _points(forward, reverse, index, step)
    kept = _envelope(y, r, index, step)
    masses = _masses(y, r, index, step, kept)
    for trace in _TRACES:
        pair = LatticePair(step, int(index[0]), masses * (1.0 - trace))
        if dominates(pair, y, r, kept):
            return pair
    raise LatticeError("no pair on a lattice could be shown to dominate this run")


def dominates(pair: LatticePair, y: Floats, r: Floats, kept: Sequence[int]) -> bool:
    """Whether the profile of a pair lies above the points ``kept``, rounding included.

    On the lattice of the pair, ``y`` bounds δ at ε = ℓ ≥ 0, and ``r`` the exchanged pair's δ at −ε, for ε ≤ 0. The pair
    must have no losses elsewhere than at ``kept``, so that both are straight between.
    """
    elsewhere = np.ones(len(pair.on), dtype=bool)
    elsewhere[list(kept)] = False
    infinity, withheld = 1.0 - math.fsum(pair.on) - 2.0**-53, 1.0 - math.fsum(pair.off) - _SUMS
    if pair.on.min() < 0 or pair.on[elsewhere].any() or infinity < 0 or withheld < 0:
        return False
    for k in kept:
        if pair.first + k >= 0:
            above = pair.on[k + 1 :] * -np.expm1(pair.losses[k] - pair.losses[k + 1 :])
            if (infinity + above.sum()) * (1 - _SUMS) < y[k]:
                return False
        if pair.first + k <= 0:
            below = pair.off[:k] * -np.expm1(pair.losses[:k] - pair.losses[k])
            if (withheld + below.sum()) * (1 - _SUMS) < r[k]:
                return False
    return True


def _points(forward: Profile, reverse: Profile, index: Steps, step: float) -> tuple[Floats, Floats]:
    """Upper bounds y on δ at ε ≥ 0 and r on the exchanged δ at −ε ≥ 0; elsewhere each follows from the other."""
    epsilon = index * step
    there, back = forward.delta(epsilon), reverse.delta(-epsilon)
    grow, fall = np.exp(epsilon), np.exp(-epsilon)
    y = np.minimum(there, -np.expm1(epsilon) + grow * back + _MIRROR * grow)
    r = np.minimum(back, -np.expm1(-epsilon) + fall * there + _MIRROR * fall)
    zero = int(np.flatnonzero(index == 0)[0])
    y[zero] = r[zero] = min(y[zero], r[zero])
    y[zero:] = np.minimum.accumulate(np.clip(y[zero:], 0.0, 1.0))
    r[: zero + 1] = np.minimum.accumulate(np.clip(r[zero::-1], 0.0, 1.0))[::-1]
    y[:zero] = -np.expm1(epsilon[:zero]) + grow[:zero] * r[:zero]
    r[zero + 1 :] = -np.expm1(-epsilon[zero + 1 :]) + fall[zero + 1 :] * y[zero + 1 :]
    return y, r


def _envelope(y: Floats, r: Floats, index: Steps, step: float) -> list[int]:
    """The points of the lower convex envelope. Any points would do for an upper bound: this choice is the lowest."""
    x_there, x_back = np.exp(index * step).tolist(), np.exp(-index * step).tolist()
    there, back, positive = y.tolist(), r.tolist(), (index > 0).tolist()
    kept: list[int] = []
    for k in range(len(there)):
        x, z = (x_there, there) if positive[k] else (x_back, back)
        while len(kept) > 1:
            i, j = kept[-2], kept[-1]
            chord = z[i] + (z[k] - z[i]) * ((x[j] - x[i]) / (x[k] - x[i]))
            if z[j] >= chord:
                kept.pop()
            else:
                break
        kept.append(k)
    return kept


def _masses(y: Floats, r: Floats, index: Steps, step: float, kept: Sequence[int]) -> Floats:
    """P's masses: the jumps of slope at the kinks, where δ continues as a constant beyond both ends.

    With kinks at x = e^ℓ, the jump of dδ/dx is Q's mass and e^ℓ times as much P's; in the exchanged coordinates the
    jump of dr/dx′ is P's mass.
    """
    at = np.array(kept)
    x_there, x_back = np.exp(index[at] * step), np.exp(-index[at] * step)
    there = np.concatenate([[0.0], np.diff(y[at]) / np.diff(x_there), [0.0]])
    there[0] = (y[at[0]] - 1.0) / x_there[0]  # the chord from (0, 1)
    back = np.concatenate([[0.0], np.diff(r[at]) / np.diff(x_back), [0.0]])
    back[-1] = (r[at[-1]] - 1.0) / x_back[-1]
    masses = np.zeros(len(y))
    jumps = np.where(index[at] > 0, np.diff(there) * x_there, -np.diff(back))
    masses[at] = np.maximum(jumps, 0.0)
    return masses


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
        self.infinity = pair.infinity
        self.certain = np.maximum(1.0 - low * (1 - _SLACK), pair.infinity)  # P's mass that is left of s = ∞
        self._blocks = -(-lattice.count // _BLOCK)
        self._on, self._off = _toeplitz(self.left_on), _toeplitz(left_off)
        reach = np.arange((self._blocks + len(self._on)) * _BLOCK) + pair.first
        self._at = np.where(reach >= lattice.count, lattice.count, np.maximum(reach, 0))
        self._count = lattice.count

    def __call__(self, value: Payoff) -> tuple[Floats, Floats]:
        """E_P[(1 − k_lo) X₊(s + ℓ)], s = ∞ included, and Σ_Q (1 − k_hi) Y(s + ℓ), for the first cells."""
        infinite = value.plus[..., -1:]
        up = self._correlate(value.plus, self._on) + self.infinity * infinite
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


_FIRST_CELLS = 16
_MOST_RUNS = 6000
_MOST_POINTS, _FEW_POINTS, _FEWEST_ATOMS = 480, 240, 8
_FEW = 4
_DEEPEST = 120.0  # rounding such an s changes e^s by 1.4e-14 in proportion: ROUNDING has room
_UNSEEN = 1e-13  # a probability or a payoff that is not worth points of the lattice
_HIGHEST = 10.0  # of s: beyond, a payoff is within e^(−10) of that at ∞
_INTERESTING = (1e-9, 1e-3)  # the δ for which cells are made narrow


@dataclass(frozen=True)
class Effort:
    """How much work to spend on the bound. More of anything only tightens it."""

    atoms: int = 320  # losses of the dominating pair
    coarse_atoms: int = 96  # the same while cells are looked for
    cells: int = 48  # of v
    depth: float = 14.0  # sums reach down to −depth; to twice as much, and so on, where δ would stay above 1e-9
    tail: float = 1e-10  # P[T > K], which is added to δ


@dataclass(frozen=True, eq=False)
class HistoryProfile:
    """δ_A(ε) of a search with a history-only policy, in one direction, D to D′: a profile, so that it composes.

    The first four arguments are those of Theorem 4, and ``first_from_prior`` is n₀. If floats cannot certify a pair,
    a ``LatticeError`` is raised.
    """

    forward: RunProfile
    reverse: RunProfile
    runs: Law
    band: Band
    first_from_prior: int = 0
    effort: Effort = Effort()

    @cached_property
    def exists(self) -> bool:
        """Whether the bound can be computed: the run has a certified pair, and T is not too large to follow."""
        if self._last > _MOST_RUNS:
            return False
        try:
            return bool(self._pair.step)
        except LatticeError:
            return False

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
        cells, lattice, value = self._trial
        while (
            len(cells := _split(cells, self._weights(self._coarse, lattice, value), self.effort.cells))
            <= self.effort.cells
        ):
            lattice = self._lattice(self._coarse, self._bottom)
            value = self._payoff(self._coarse, lattice, cells)
        return cells

    @cached_property
    def _trial(self) -> tuple[Floats, Lattice, Floats]:
        """A first look at few cells on the coarse pair: the cells, the lattice, and (Q_v(s))₊."""
        cells, lattice = _spread(self.runs, self._tau, _FIRST_CELLS), self._lattice(self._coarse, self._depth)
        return cells, lattice, self._payoff(self._coarse, lattice, cells)

    @cached_property
    def _bottom(self) -> float:
        """How far below 0 the lattice must reach: as far as the trial finds payoffs, plus the largest loss for Y."""
        _, lattice, value = self._trial
        seen = lattice.first + int(np.argmax(np.max(value[..., :-1], axis=(0, 1)) > _UNSEEN))
        return min(self._depth, (self._coarse.last + 2 - seen) * lattice.step)

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
            except LatticeError:  # the shallower lattices are bounds without it
                break
            epsilon, delta = _corners(np.append(epsilon, more_epsilon), np.append(delta, more_delta))
        return epsilon, delta

    @property
    def _cut(self) -> bool:
        """Whether sums of losses may reach beyond the lattice."""
        return self._reach[0] > self.effort.depth

    @cached_property
    def _to_depth(self) -> tuple[Floats, Floats, float]:
        """ε on a lattice of this depth, and δ there, at the corners of the hull; and the part of δ that depth cannot
        reduce.
        """
        pair = self._coarse
        if np.count_nonzero(pair.on) > _FEW:  # a pure run has two losses, which a coarse lattice holds exactly
            pair = self._pair
        lattice = self._lattice(pair, self._bottom)
        value = self._payoff(pair, lattice, self.cells)
        masses = np.array([mass for _, _, mass in corners(self.band)])
        best = masses @ np.max(value, axis=0)  # Σ_j n_j sup over v of (Q_v(s))₊, and the same at s = ∞
        index, at = _shifts(pair, lattice, best)
        gain = best[at] @ pair.on + pair.infinity * best[-1]
        epsilon = np.asarray(index * pair.step, dtype=np.float64)
        nothing = float(self.runs.pgf(0.0)) * -np.expm1(np.minimum(epsilon, 0.0))
        delta = np.minimum((gain + nothing + self._law[1]) * (1 + SLACK), 1.0)
        left = (pair.infinity * best[-1] + self._law[1]) * (1 + SLACK)
        return *_corners(epsilon, delta), float(left)

    @cached_property
    def _pair(self) -> LatticePair:
        return self._with_atoms(self.effort.atoms, _MOST_POINTS, self._bottom)

    @cached_property
    def _coarse(self) -> LatticePair:
        return self._with_atoms(self.effort.coarse_atoms, _FEW_POINTS, self._depth)

    def _with_atoms(self, atoms: int, most: int, bottom: float) -> LatticePair:
        """A pair of this many losses; of fewer if the lattice of their sums would have more than ``most`` points."""
        pair = lattice_pair(self.forward, self.reverse, atoms)
        while (count := self._lattice(pair, bottom).count) > most and atoms > _FEWEST_ATOMS:
            atoms = max(_FEWEST_ATOMS, math.floor(0.99 * atoms * most / count))
            pair = lattice_pair(self.forward, self.reverse, atoms)
        return pair

    @cached_property
    def _reach(self) -> tuple[float, float]:
        """How far sums S of T losses reach, by Chernoff: until P[S > s], and until e^(−s) P[S > s], is negligible.

        Payoffs below minus the first are negligible; above the second they are nearly those at s = ∞.
        """
        pair, (pmf, _) = lattice_pair(self.forward, self.reverse, self.effort.coarse_atoms), self._law
        theta = np.geomspace(0.1, 1000.0, 60) / max(pair.step * pair.last, 1.0)
        one = logsumexp(theta[:, None] * pair.losses, b=pair.on, axis=1)
        all_runs = logsumexp(one[:, None] * np.arange(len(pmf)), b=pmf, axis=1) - math.log(_UNSEEN)
        return float(np.min(all_runs / theta)), float(np.min(all_runs / (1 + theta)))

    @property
    def _depth(self) -> float:
        return min(self.effort.depth, self._reach[0])

    def _lattice(self, pair: LatticePair, bottom: float) -> Lattice:
        """Sums of losses from −``bottom`` to as far up as they matter."""
        below, above = (math.ceil(far / pair.step) + 1 for far in (bottom, min(_HIGHEST, self._reach[1])))
        return Lattice(pair.step, -below, below + above + 1)

    def _payoff(self, pair: LatticePair, lattice: Lattice, cells: Floats) -> Floats:
        """(Q_v(s))₊ for every cell, corner and s."""
        low, high = cells[:-1], cells[1:]
        survivors = Survivors(pair, lattice, low, high, self._tau(high))
        return recursion(self._law[0], lattice, survivors, corners(self.band), self.first_from_prior)

    def _weights(self, pair: LatticePair, lattice: Lattice, value: Floats) -> Floats:
        """The share of δ that each cell contributes: the largest at any ε at which δ is of interest."""
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
    """Cut the cells that contribute most to δ, and their neighbours, so that no cell contributes much."""
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
    """Ends of cells in each of which log g(v) + log g(τ(v)), g(v) = f′(1 − v), falls by about the same amount."""
    coarse = np.geomspace(1e-9, 1.0, 600)
    fall = -(runs.log_g(coarse) + runs.log_g(tau(coarse)))
    fall = np.minimum(fall, (fall[0] if np.isfinite(fall[0]) else 0.0) + 60.0)
    fall = fall + np.linspace(0.0, 1e-6, len(fall))
    even = np.interp(np.linspace(fall[0], fall[-1], cells), fall, np.log(coarse))
    return np.unique(np.concatenate([[0.0], np.exp(even[:-1]), [1.0]]))
