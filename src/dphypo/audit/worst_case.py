"""The accountant's explicit attacks as searches that can be run: the mechanism, the policy, and what to look at.

The records are one bit: D = 1 has the record, D′ = 0 does not. A run draws a loss from the pair's law for its bit. λ is
one of three groups, whose densities the policy, which knows the bit, puts at the edges of the band as Lemma 2 has it.
The score ranks a set S = {loss ≤ s} on top, then all other outcomes by falling loss; see ``dphypo.audit.attack``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dp_accounting
import numpy as np
import numpy.typing as npt

from dphypo.audit.attack import best_cuts
from dphypo.audit.empirical import Audit, audit, lower_bound
from dphypo.audit.pair import Pair
from dphypo.band import KL, Band
from dphypo.laws import Law
from dphypo.mechanisms import Outcome, Plain, Split
from dphypo.samplers import History
from dphypo.space import Candidates, Grid, Space
from dphypo.study import Study

Floats = npt.NDArray[np.float64]

_TOP = 1e9  # the score of S: above every loss
GROUPS = ("here", "there", "rest")


@dataclass(frozen=True)
class WorstCase:
    """A mechanism whose runs are as bad as their event allows. Call :meth:`study` to run the attack.

    Args:
        pair: the laws of the loss of one run, on D and on D′.
        event: what is claimed of one run; the pair must be one that the event allows.
        runs: the law of T of the search that is attacked.
        band: its band.
        delta: the δ of the claim.
        repetitions: how often it will be run on each side: the cuts are those that this many runs show best.
    """

    pair: Pair
    event: Any
    runs: Law
    band: Band
    delta: float
    repetitions: int = 2000

    @cached_property
    def cuts(self) -> tuple[float, float]:
        """The losses s and t of the attack."""

        def shown(on: Floats, off: Floats) -> Floats:
            counts = np.round(np.stack([on, off]) * self.repetitions).astype(int)
            return np.array([lower_bound(hit, miss, self.repetitions, self.delta, 0.999) for hit, miss in counts.T])

        return best_cuts(self.pair, self.runs, self.band, shown, first_from_prior=True)

    def audit(self, confidence: float = 0.99, progress: Callable[[int], None] | None = None) -> Audit:
        """Run the attack: the lower bound that it proves, beside what the search claims."""
        claimed = self.study(1).guarantee.epsilon(self.delta)
        return audit(
            self.study,
            1,
            0,
            self.repetitions,
            delta=self.delta,
            claimed=claimed,
            observe=attacked,
            event=bool,  # E is fixed by the cuts, before any run
            confidence=confidence,
            progress=progress,
        )

    def study(self, bit: int) -> Study:
        """The attacked search on D (1) or D′ (0), in memory."""
        run = _Run(self.pair, self.event, int(bit), *self.cuts, self.band)
        return Study(
            self.space(),
            run,
            self.runs,
            self.band,
            sampler=_Edge(int(bit), self.band) if self.band.C > 1 else None,
            rule=KL(),
            delta=self.delta,
            journal=None,
        )

    def space(self) -> Space:
        """Three groups of λ with the masses of Lemma 2; one group where there is no band."""
        if self.band.C == 1:
            return Space({"group": ["rest"]})
        share = min(self.band.p, 1 - self.band.p)
        return Space({"group": (list(GROUPS), [share, share, 1 - 2 * share])})


def ratios(bit: int, band: Band) -> dict[str, float]:
    """The density of each group against the prior, on D or on D′."""
    rest = band.c if band.p <= 0.5 else band.C
    first, second = (band.C, band.c) if bit else (band.c, band.C)
    return dict(zip(GROUPS, (first, second, rest), strict=True)) if band.C > 1 else {"rest": 1.0}


@dataclass(frozen=True)
class _Edge:
    """A policy that knows the data, at the edges of the band."""

    bit: int
    band: Band

    def weights(self, candidates: Candidates | Grid, history: History) -> Floats:
        density = ratios(self.bit, self.band)
        groups = [params["group"] for params in candidates.space.from_unit(candidates.unit)]
        return np.asarray(candidates.masses * np.array([density[group] for group in groups]))


@dataclass(frozen=True)
class _Run:
    """One run: a loss drawn from the pair, and the score that ranks it."""

    pair: Pair
    event: Any
    bit: int
    top: float
    above: float
    band: Band
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    score_event: Any = None
    split = Split.DISJOINT
    monotone: frozenset[str] = frozenset()
    saver = Plain()
    seeded = True

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Outcome:
        masses = self.pair.on if self.bit else self.pair.off
        u = np.random.default_rng(seed).random() * masses.sum()
        drawn = float(self.pair.losses[min(int(np.searchsorted(np.cumsum(masses), u)), len(masses) - 1)])
        group = params["group"]
        loss = drawn + float(np.log(ratios(1, self.band)[group] / ratios(0, self.band)[group]))
        score = _TOP if loss <= self.top else loss
        return Outcome({"attacked": bool(loss > self.top and loss > self.above)}, score)


def attacked(release: Any) -> bool:
    """What the attacker looks at: whether the winner is among the outcomes that tell D from D′."""
    return bool(release.model is not None and release.model["attacked"])
