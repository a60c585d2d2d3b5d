"""An explicit attack by a policy that sees only the history: a lower bound on ε, to hold against Theorem H.

Three groups of λ: *targets* of prior mass q, *killers* of mass q and the rest, q = min(p, 1 − p). All λ have the same
pair of laws. A run is ranked on top if its loss is at most s₂ and its λ a killer, or at most s₁ and any other λ; next
come targets with a loss above t, by falling loss; then everything else. The attacker looks whether the winner is a
target with a loss above t. On a history whose losses add up to S, the policy puts C on the targets or C on the killers
(and c on the others as far as the band allows), whichever is better: S alone decides, as the likelihood ratio of the
history is e^S. With p_i = P[T = i], what it can still gain of A(E) − e^ε A′(E) after i runs, a target best, is

    W_i(S) = p_i (1 − e^(ε−S)) + max over the two densities of E_P[not outranked · W_{i+1}(S + ℓ)],

and likewise before the first such target. It is computed on a coarse lattice of losses whose ratios are exact, so that
it is what a real policy achieves on merged outcomes; sums beyond the lattice are rounded against the attacker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dphypo.accounting import Floats
from dphypo.audit.pair import Pair
from dphypo.band import Band
from dphypo.laws import Law

Mask = npt.NDArray[np.bool_]

_DEPTH = 30.0
_TAIL = 1e-9
_ROUNDING = 1e-11


def merged(pair: Pair, step: float) -> Pair:
    """Merge neighbouring outcomes so that every loss is a whole multiple of ``step``, exactly.

    An outcome at a border is shared out at random; merging and sharing are post-processing.
    """
    masses: dict[int, tuple[float, float]] = {}
    on, off, target = 0.0, 0.0, None
    for p, q in zip(pair.on.tolist(), pair.off.tolist(), strict=True):
        left = 1.0 if p > 0 and q > 0 else 0.0
        while left > 0:
            if target is None:
                target = math.ceil(math.log(p / q) / step + 0.25)
            ratio = math.exp(target * step)
            need, gain = ratio * off - on, left * (p - ratio * q)
            if gain <= need:  # the interval is still below its ratio
                on, off, left = on + left * p, off + left * q, 0.0
            else:
                share = max(need, 0.0) / (p - ratio * q)
                masses[target] = (on + share * p, off + share * q)
                on, off, left, target = 0.0, 0.0, left - share, None
    first, last = min(masses), max(masses)
    found = np.array([masses.get(index, (0.0, 0.0)) for index in range(first, last + 1)]).T
    return Pair(np.asarray(np.arange(first, last + 1) * step, dtype=np.float64), found[0], found[1])


@dataclass(frozen=True)
class HistoryAttack:
    """The attack with its thresholds, in steps of the lattice.

    Args:
        pair: one run, on a lattice (see :func:`merged`).
        runs: the law of T.
        band: the band (c, C).
        first_from_prior: how many of the first runs are drawn from the prior.
    """

    pair: Pair
    runs: Law
    band: Band
    first_from_prior: int = 0

    def delta(self, epsilon: float, target: float, others_kill: float, killers_kill: float) -> float:
        """A δ that the search really has at ε, for thresholds t, s₁ and s₂ on the loss."""
        losses, on, off = self.pair.losses, self.pair.on, self.pair.off
        step = float(losses[1] - losses[0])
        first = round(float(losses[0]) / step)
        far = round(_DEPTH / step)
        sums = np.asarray(np.arange(-far, far + 1) * step, dtype=np.float64)
        pmf = self.runs.pmf(np.arange(self.runs.quantile(1 - _TAIL) + 1))
        side = min(self.band.p, 1.0 - self.band.p)
        prior = np.array([side, side, 1.0 - 2.0 * side])
        choices = self._densities(prior)
        hits = losses > target
        others_live, killers_live = losses > others_kill, losses > killers_kill
        payoff = -np.expm1(epsilon - sums)
        better, before = np.zeros(len(sums)), np.zeros(len(sums))  # W with such a target best, and before the first
        for i in range(len(pmf) - 1, -1, -1):
            here = choices if i >= self.first_from_prior else prior[None, :]
            beyond = -math.exp(epsilon) * float(
                pmf[i + 1 :].sum()
            )  # times e^(−S): what a sum below the bottom may cost

            def after(value: Floats, kept: Mask, first: int = first, far: int = far, beyond: float = beyond) -> Floats:
                return _expected(value, on * kept, off * kept, first, far, sums, beyond)

            survive = np.array([after(better, others_live), after(better, killers_live), after(better, others_live)])
            wait = np.array(
                [
                    after(better, hits & others_live) + after(before, ~hits & others_live),
                    after(before, killers_live),
                    after(before, others_live),
                ]
            )
            better = float(pmf[i]) * payoff + np.max(here @ survive, axis=0) if i else better
            before = np.max(here @ wait, axis=0)
        return float(before[far]) - _ROUNDING * math.exp(epsilon) * self.runs.mean

    def epsilon(self, delta: float, near: float) -> float:
        """The largest ε found at which the attack achieves more than δ; 0 if there is none below ``near``.

        The thresholds are improved one by one at rising ε; then ε is found for these.
        """
        return max(
            self._climb(delta, near, start) for start in ((0.5 * near, -math.inf, math.inf), (0.3 * near, -0.4, 0.4))
        )

    def _climb(self, delta: float, near: float, start: tuple[float, ...]) -> float:
        best = start
        levels = np.arange(-0.8, 0.9, 0.2).tolist()
        candidates = (np.linspace(0.2, 0.8, 9) * near, (-math.inf, *levels), (math.inf, *levels))
        for share, place in ((0.7, 0), (0.7, 1), (0.85, 2), (0.85, 0)):
            value = self.delta(share * near, *best)
            for level in candidates[place]:
                tried = (*best[:place], float(level), *best[place + 1 :])
                found = self.delta(share * near, *tried)
                best, value = (tried, found) if found > value else (best, value)
        low, high = 0.0, near
        while high - low > 0.01:
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle, *best) > delta else (low, middle)
        return low

    def _densities(self, prior: Floats) -> Floats:
        """C on the targets, or on the killers; the others share what is left, in proportion."""
        if self.band.c == self.band.C:
            return prior[None, :]
        rows = []
        for favoured in (0, 1):
            row = self.band.c * prior
            row[favoured] = 0.0
            row[favoured] = min(self.band.C * prior[favoured], 1.0 - row.sum())
            rest = [k for k in range(3) if k != favoured]
            row[rest] *= (1.0 - row[favoured]) / row[rest].sum()
            rows.append(row)
        return np.array(rows)


def _expected(value: Floats, on: Floats, off: Floats, first: int, far: int, sums: Floats, beyond: float) -> Floats:
    """E_P[kept · value(S + ℓ)] at every S: above the lattice the top value, below it ``beyond`` · e^(−S−ℓ)."""
    last = first + len(on) - 1
    low, high = max(-first, 0), max(last, 0)
    wide = np.concatenate([np.zeros(low), value, np.full(high, value[-1])])
    offset = low + first  # where S + the first loss is, for the lowest S
    total = np.correlate(wide[offset : offset + len(value) + len(on) - 1], on, mode="valid")
    # At the S of index i, losses of index below −i − first fall out of the lattice.
    count = np.clip(-first - np.arange(len(value)), 0, len(on))
    out = np.where(count > 0, np.concatenate([[0.0], np.cumsum(off)])[count], 0.0)
    return np.asarray(total + beyond * np.exp(-np.maximum(sums, -600.0)) * out)
