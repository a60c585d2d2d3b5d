"""A genuine pair (P, Q) on a lattice of losses that dominates a run: what the history-only bound is computed on.

Theorem H follows sums of losses. If every loss is a whole multiple of one step h, so is every sum, and nothing is
rounded on the way. The lower convex envelope of the points (e^ε, δ(ε)) at ε ∈ hℤ is the profile of a pair that
dominates the run; its losses are the kinks. A trace of "told the answer" is mixed in, and a pair is refused if the
profile of the floats as stored is not above the points. Proof: docs/theory.md, "The history-only bound".

Small losses and large ones need different coordinates: δ for ε ≥ 0, and for ε ≤ 0 the profile of the exchanged pair at
−ε, r = 1 − e^(−ε)(1 − δ). Near ε → −∞ every δ is almost 1, and only r tells how much is missing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dphypo.accounting.profiles import Floats, Profile, end

_NEGLIGIBLE = 1e-13  # δ at the ends of the window; what is beyond becomes infinite loss
_TRACES = (1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7)  # of "told the answer", the first that passes the check
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

    Q has mass ``on[i]`` e^(−ℓ) at ℓ. ``told`` is P[ℓ = ∞], rounded up; ``off`` are the masses of Q as floats, within
    1e-14 in proportion.
    """

    step: float
    first: int
    on: Floats
    losses: Floats = field(init=False, repr=False)
    off: Floats = field(init=False, repr=False)
    told: float = field(init=False)

    def __post_init__(self) -> None:
        losses = np.arange(self.first, self.first + len(self.on)) * self.step
        object.__setattr__(self, "losses", losses)
        object.__setattr__(self, "off", self.on * np.exp(-losses))
        object.__setattr__(self, "told", max(0.0, 1.0 - math.fsum(self.on)) * (1 + _SUMS) + 2.0**-53)

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
    told, withheld = 1.0 - math.fsum(pair.on) - 2.0**-53, 1.0 - math.fsum(pair.off) - _SUMS
    if pair.on.min() < 0 or pair.on[elsewhere].any() or told < 0 or withheld < 0:
        return False
    for k in kept:
        if pair.first + k >= 0:
            above = pair.on[k + 1 :] * -np.expm1(pair.losses[k] - pair.losses[k + 1 :])
            if (told + above.sum()) * (1 - _SUMS) < y[k]:
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
