"""An explicit attack by a policy that sees only the history: a lower bound on ε, to hold against Theorem H.

Three groups of λ: *targets* of prior mass q, *killers* of mass q and the rest, q = min(p, 1 − p). All λ have the same
pair of laws. Targets have levels b = 1, …, B: the number of thresholds t₁ < t₂ < … that their loss exceeds. A target of
level b is outranked by a killer whose loss is at most s″_b, by any other λ whose loss is at most s_b, and by targets of
higher levels; s and s″ do not increase with b. So the more a target tells, the fewer runs outrank it: the v of Theorem
H is chosen by the loss of the winner. (One level is not enough: without a band it shows less than Theorem 4's attack.)
The attacker looks whether the winner is a target of any level. On a history whose losses add up to S, the policy puts C
on the targets, on the killers or on the rest (and c on the others as far as the band allows), whichever is best: S and
the rank of the best run decide, as the likelihood ratio of the history is e^S. With p_i = P[T = i], what it can still
gain of A(E) − e^ε A′(E) after i runs, the best of which has rank r, is

    W_i(r, S) = p_i [r is a target's] (1 − e^(ε−S)) + max over densities of E_P[W_{i+1}(max(r, rank), S + ℓ)].

It is computed on a coarse lattice of losses whose ratios are exact, so that it is what a real policy achieves on merged
outcomes; sums beyond the lattice are rounded against the attacker, and so are T that are too large to follow.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.accounting.lower_bound import Pair
from dphypo.accounting.profiles import Floats
from dphypo.band import Band
from dphypo.laws import Law

Mask = npt.NDArray[np.bool_]

_DEPTH = 24.0
_TAIL = 1e-10
_ROUNDING = 1e-11


def merged(pair: Pair, step: float) -> Pair:
    """Merge neighbouring outcomes so that every loss is a whole multiple of ``step``, exactly.

    An outcome at a border is shared out at random; merging and sharing are post-processing.
    """
    masses: dict[int, float] = {}
    on, off, target = 0.0, 0.0, None
    for p, q in zip(pair.masses.tolist(), _off(pair).tolist(), strict=True):
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
                masses[target] = on + share * p
                on, off, left, target = 0.0, 0.0, left - share, None
    first, last = min(masses), max(masses)
    return Pair(first, np.array([masses.get(index, 0.0) for index in range(first, last + 1)]), 0.0, step)


def _off(pair: Pair) -> Floats:
    """The masses on D′."""
    return np.asarray((pair.masses + pair.error) * np.exp(-pair.losses))


@dataclass(frozen=True)
class Thresholds:
    """Where the levels of the attack are, in units of loss, one number a level.

    Args:
        target: above which a target has the level, increasing.
        others: up to which the loss of any other λ outranks a target of the level, not increasing.
        killers: the same for killers.
    """

    target: tuple[float, ...]
    others: tuple[float, ...]
    killers: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(low < high for low, high in itertools.pairwise(self.target))
        falling = all(high >= low for line in (self.others, self.killers) for high, low in itertools.pairwise(line))
        if not rising or not falling or len({len(self.target), len(self.others), len(self.killers)}) > 1:
            raise _validate.fail("thresholds", self, "give targets that rise, and others and killers that do not")


@dataclass(frozen=True)
class HistoryAttack:
    """The attack on a search.

    Args:
        pair: one run, on a lattice (see :func:`merged`).
        runs: the law of T.
        band: the band (c, C).
        first_from_prior: how many of the first runs are drawn from the prior.
        levels: B.
    """

    pair: Pair
    runs: Law
    band: Band
    first_from_prior: int = 0
    levels: int = 6

    def delta(self, epsilon: float, at: Thresholds) -> float:
        """A δ that the search really has at ε."""
        losses, on, off = self.pair.losses, self.pair.masses, _off(self.pair)
        step, first = self.pair.grid, self.pair.first
        far = round(_DEPTH / step)
        sums = np.asarray(np.arange(-far, far + 1) * step, dtype=np.float64)
        pmf = np.asarray(self.runs.pmf(np.arange(self.runs.quantile(1 - _TAIL) + 1)), dtype=np.float64)
        side = min(self.band.p, 1.0 - self.band.p)
        prior = np.array([side, side, 1.0 - 2.0 * side])
        choices, ranks, top = self._densities(prior), _ranks(losses, at), 2 * len(at.target)
        payoff = -np.expm1(epsilon - sums)
        value = np.zeros((top + 1, len(sums)))  # by the rank of the best run; at the top nothing is left to gain
        for i in range(len(pmf) - 1, -1, -1):
            beyond = -math.exp(epsilon) * float(pmf[i + 1 :].sum())  # times e^(−S): what sums below the bottom may cost

            def after(rank: int, kept: Mask, value: Floats = value, beyond: float = beyond) -> Floats:
                return _expected(value[rank], on * kept, off * kept, first, far, sums, beyond)

            gains = np.zeros((len(ranks), top, len(sums)))
            for group, rank in enumerate(ranks):
                above = np.zeros(len(sums))  # what runs that outrank the best one lead to
                for best in range(top - 1, -1, -1):
                    gains[group, best] = above + after(best, rank <= best)
                    above = above + after(best, rank == best)
            here = choices if i >= self.first_from_prior else prior[None, :]
            value = np.zeros_like(value)
            value[:top] = np.max(np.einsum("cg,grs->crs", here, gains), axis=0)
            if i:
                value[1:top:2] += pmf[i] * payoff
        return float(value[0, far]) - math.exp(epsilon) * (_TAIL + _ROUNDING * self.runs.mean)

    def epsilon(self, delta: float, near: float) -> float:
        """The largest ε found at which the attack achieves more than δ; 0 if there is none below ``near``.

        The levels are evenly spaced, and what outranks them falls evenly. The six numbers that say so are improved one
        by one, at an ε that rises with what is found.
        """
        line, found = [0.4 * near, 0.3, 0.0, 1.2, 1.0, 1.2], 0.0
        for width in (0.8, 0.4, 0.2, 0.1):
            line = self._improved(max(found, 0.8 * near), line, width)
            low, high = found, near
            while high - low > 0.005:
                middle = (low + high) / 2
                low, high = (middle, high) if self.delta(middle, self._even(line)) > delta else (low, middle)
            found = max(found, low)
        return found

    def _improved(self, epsilon: float, line: list[float], width: float) -> list[float]:
        """Every number moved as far as it helps, in steps of ``width``, the distance of levels in smaller ones."""
        value = self.delta(epsilon, self._even(line))
        for place in (4, 0, 5, 1, 2, 3):
            for move in (width, -width):
                while True:
                    tried = list(line)
                    tried[place] += move / 8 if place == 1 else move
                    if abs(tried[place]) > _DEPTH / 2 or tried[1] <= 0 or min(tried[3], tried[5]) < 0:
                        break
                    if (found := self.delta(epsilon, self._even(tried))) <= value:
                        break
                    line, value = tried, found
        return line

    def _even(self, line: list[float]) -> Thresholds:
        """Levels from the first threshold on, evenly; what outranks the first level, and by how much less the last."""
        first, distance, others, others_fall, killers, killers_fall = line
        level = np.arange(self.levels)
        share = level / max(self.levels - 1, 1)
        return Thresholds(
            tuple((first + distance * level).tolist()),
            tuple((others - others_fall * share).tolist()),
            tuple((killers - killers_fall * share).tolist()),
        )

    def _densities(self, prior: Floats) -> Floats:
        """C on the targets, on the killers, or as much as there is on the rest; the others share what is left."""
        if self.band.c == self.band.C:
            return prior[None, :]
        rows = []
        for favoured in range(3):
            row = self.band.c * prior
            row[favoured] = 0.0
            row[favoured] = min(self.band.C * prior[favoured], 1.0 - row.sum())
            rest = [k for k in range(3) if k != favoured]
            row[rest] *= (1.0 - row[favoured]) / row[rest].sum()
            rows.append(row)
        return np.array(rows)


def _ranks(losses: Floats, at: Thresholds) -> list[npt.NDArray[np.intp]]:
    """The rank of every loss, for targets, killers and the rest: 2b − 1 is a target of level b, 2b what outranks it."""
    others, killers = (
        np.asarray(2 * np.sum([losses <= one for one in line], axis=0), dtype=np.intp)
        for line in (at.others, at.killers)
    )
    level = np.sum([losses > one for one in at.target], axis=0)
    return [np.asarray(np.where(level > 0, 2 * level - 1, others), dtype=np.intp), killers, others]


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
