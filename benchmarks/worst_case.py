"""The worst run that is ε-DP, searched by the worst policy in the band, as a search that can be run.

The records are one bit: D = 1 has the record, D′ = 0 does not. A run is randomised response: it tells the bit with
probability e^ε/(1 + e^ε). λ is one of three groups of prior mass q, q and 1−2q, q = min(p, 1−p). The policy knows the
bit and puts their densities at the edges of the band: (C, c), (c, C) and, for the rest, (c, c) or (C, C) on (D, D′), as
Lemma 2 has it. The release shows λ and the answer, so that the loss of a run is ±ε plus the logarithm of the ratio of
densities.

The attack is that of docs/theory/search.md, "Explicit attacks", with S = {loss ≤ s} and E = {loss > s and > t}:
δ ≥ A(E) − e^ε A′(E) for every s ≤ t. A study draws the λ of its first run from the prior. With P₁ the law of that run,
f(1 − P(S)) becomes p₀ + (1 − P₁(S)) (f(1 − P(S)) − p₀)/(1 − P(S)), p₀ = P[T = 0], and the others alike.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from dp_accounting import NeighboringRelation

from benchmarks.many_runs import audit
from dphypo import _validate
from dphypo.accounting import PureDp
from dphypo.audit import Audit, lower_bound
from dphypo.band import KL, Band
from dphypo.laws import Law
from dphypo.mechanisms import Outcome, mechanism
from dphypo.samplers import History
from dphypo.search import Study
from dphypo.space import Candidates, Grid, Space

Floats = npt.NDArray[np.float64]

_ROUNDING = 1e-12  # of a generating function, for each run
_TOP = 1e9  # the score of S: above every loss
GROUPS = ("here", "there", "rest")


class Cut(NamedTuple):
    """The losses s and t of an attack, and the probability of E on D and on D′, from below and from above."""

    s: float
    t: float
    on: float
    off: float


@dataclass(frozen=True)
class WorstCase:
    """The attacked search. :meth:`attack_epsilon` says what the attack achieves, :meth:`audit` runs it.

    Args:
        epsilon: ε of one run.
        runs: the law of T of the search that is attacked.
        band: its band.
        delta: the δ of the claim.
        repetitions: how often it will be run on each side: the cuts are those that this many runs show best.

    >>> from dphypo.laws import Geometric
    >>> worst = WorstCase(1.0, Geometric(mean=10), Band(0.75, 2), 1e-3)
    >>> round(worst.attack_epsilon(), 2), round(worst.attack_epsilon(first_from_prior=True), 2)
    (3.28, 2.87)
    """

    epsilon: float
    runs: Law
    band: Band
    delta: float
    repetitions: int = 2000

    def __post_init__(self) -> None:
        _validate.positive(epsilon=self.epsilon)
        _validate.delta(delta=self.delta)

    def attack_epsilon(self, *, first_from_prior: bool = False) -> float:
        """The largest ε at which the attack achieves more than δ: no valid ε of the search is below it."""
        ratios = [(cut.on - self.delta) / cut.off for cut in self._cuts(first_from_prior) if cut.on > self.delta]
        return max(0.0, math.log(max(ratios, default=1.0)))

    def attack_delta(self, epsilon: float, *, first_from_prior: bool = False) -> float:
        """A δ that the search really has at ε ≥ 0."""
        return max(0.0, *(cut.on - math.exp(epsilon) * cut.off for cut in self._cuts(first_from_prior)))

    @cached_property
    def cut(self) -> Cut:
        """The cut that the repetitions show best, in a study."""

        def shown(cut: Cut) -> float:
            hits, misses = round(cut.on * self.repetitions), round(cut.off * self.repetitions)
            return lower_bound(max(hits, 0), misses, self.repetitions, self.delta, 0.999)

        return max(self._cuts(first_from_prior=True), key=shown)

    def audit(self, confidence: float = 0.99, progress: Callable[[int], None] | None = None) -> Audit:
        """Run the attack: the lower bound that it proves, beside what the search claims."""
        return audit(
            self.study,
            1,
            0,
            self.repetitions,
            delta=self.delta,
            claimed=self.study(1).guarantee.epsilon(self.delta),
            observe=lambda release: release.model is not None and release.model["attacked"],
            event=bool,  # E is fixed by the cut, before any run
            confidence=confidence,
            progress=progress,
        )

    def study(self, bit: int) -> Study:
        """The attacked search on D (1) or D′ (0), in memory."""
        bit, masses, cut = int(bit), self._masses, self.cut

        @mechanism(event=PureDp(self.epsilon), relation=NeighboringRelation.ADD_OR_REMOVE_ONE, seeded=True)
        def respond(params: Mapping[str, Any], *, seed: int) -> Outcome:
            """One run: randomised response, and the score that ranks it."""
            truthful = np.random.default_rng(seed).random() < 1 / (1 + math.exp(-self.epsilon))
            loss = self.loss(params["group"], bit if truthful else 1 - bit)
            return Outcome({"attacked": loss > cut.s and loss > cut.t}, _TOP if loss <= cut.s else loss)

        return Study(
            Space({"group": (list(masses), list(masses.values()))}),
            respond,
            self.runs,
            self.band,
            sampler=_Edge(self.densities(bit)) if self.band.C > 1 else None,
            projection=KL(),
            delta=self.delta,
            journal=None,
        )

    @property
    def _masses(self) -> dict[str, float]:
        """The prior: three groups of λ with the masses of Lemma 2; with q = ½ nothing is left for the third."""
        share = self.band.q
        masses = zip(GROUPS, (share, share, 1 - 2 * share), strict=True)
        return {group: mass for group, mass in masses if mass > _ROUNDING}

    def densities(self, bit: int) -> dict[str, float]:
        """The density of each group against the prior, on D or on D′."""
        rest = self.band.c if self.band.p <= 0.5 else self.band.C
        first, second = (self.band.C, self.band.c) if bit else (self.band.c, self.band.C)
        return dict(zip(GROUPS, (first, second, rest), strict=True))

    def loss(self, group: str, told: int) -> float:
        """What an outcome tells."""
        ratio = self.densities(1)[group] / self.densities(0)[group]
        return (self.epsilon if told else -self.epsilon) + math.log(ratio)

    def _law(self, bit: int, *, prior: bool) -> Floats:
        """The probability of each group with each answer, in one run."""
        truth = 1 / (1 + math.exp(-self.epsilon))
        dense = dict.fromkeys(GROUPS, 1.0) if prior else self.densities(bit)
        told = np.array([truth, 1 - truth])[:: -1 if bit else 1]
        return np.concatenate([mass * dense[group] * told for group, mass in self._masses.items()])

    def _cuts(self, first_from_prior: bool) -> list[Cut]:
        """The attack for every choice of S and E: the probability that no run is in S and one is in E."""
        losses = np.array([self.loss(group, told) for group in self._masses for told in (0, 1)])
        laws = [(self._law(bit, prior=first_from_prior), self._law(bit, prior=False)) for bit in (1, 0)]
        levels, cuts, rounding = np.unique(losses), [], _ROUNDING * self.runs.mean
        edges = [-math.inf, *((levels[:-1] + levels[1:]) / 2).tolist()]
        for s, t in itertools.combinations_with_replacement(edges, 2):
            no_s, neither = losses > s, (losses > s) & (losses <= t)
            on, off = (_all_runs(self.runs, *law, no_s) - _all_runs(self.runs, *law, neither) for law in laws)
            cuts.append(Cut(s, t, on - rounding, off + rounding))
        return cuts


def _all_runs(runs: Law, of_first: Floats, of_later: Floats, kept: npt.NDArray[np.bool_]) -> float:
    """E over T of first · later^(T−1): the probability that the outcomes of all runs are among those kept."""
    first, later, none = float(of_first[kept].sum()), float(of_later[kept].sum()), float(runs.pmf(0))
    if later < 1e-3:  # the division would cost digits, and ten terms of the series are exact
        return none + first * sum(float(runs.pmf(t)) * later ** (t - 1) for t in range(1, 11))
    return none + first * (float(runs.pgf(min(later, 1.0))) - none) / later


@dataclass(frozen=True)
class _Edge:
    """A policy that knows the data, at the edges of the band: it puts this density on each group."""

    density: Mapping[str, float]

    def weights(self, candidates: Candidates | Grid, history: History) -> Floats:
        groups = [params["group"] for params in candidates.space.from_unit(candidates.unit)]
        return np.asarray(candidates.masses * np.array([self.density[group] for group in groups]))
