"""A noisy count of the records that fit the declaration, on each side, which ``tune`` buys before its first run.

Records that do not fit the declaration are left out, and nothing may depend on how many they are. So a mistake in the
declaration, such as a wrong shape, would leave out all of them and spend the whole ε in silence. A noisy count that is
paid for may be acted on. A search is refused if clearly fewer than half of the declared number of records fit: if the
count and five standard deviations stay below it. Where five deviations exceed that half, a count could say nothing,
and none is bought.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dp_accounting
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from dphypo import noise
from dphypo.accounting import Composition, RoundedDp, Term
from dphypo.accounting.composition import EVERYONE, account_published
from dphypo.accounting.profiles import round_epsilon
from dphypo.entropy import Entropy, below
from dphypo.errors import UnfitRecordsError
from dphypo.mechanisms import Mechanism
from dphypo.space import Space

SLIVER = 0.002
"""The share of the squared total, in units of a Gaussian mechanism, that a count costs: about 0.1 % more noise."""
LEAST_NOISE = 4.0
"""The smallest standard deviation: whatever the total, a sharper count would tell nothing more."""
DEVIATIONS = 5
TRAIN, SCORE = "train", "score"


@dataclass(frozen=True)
class FitCount:
    """A count of the records that fit, for each use of records that it can judge.

    Args:
        noise_multiplier: the standard deviation of each count.
        declared: the declared number of records, by their use.
        unit: what a record is, such as a person with all their rows.
    """

    noise_multiplier: float
    declared: Mapping[str, int]
    unit: str = "record"

    @classmethod
    def of(cls, mechanism: Mechanism, *, epsilon: float, delta: float) -> FitCount | None:
        """The counts for a total; None if the mechanism cannot count, or has too few records. No record is read."""
        if type(mechanism).fitting_records is Mechanism.fitting_records:
            return None
        sigma = max(LEAST_NOISE, float(f"{1 / (total_in_gaussians(epsilon, delta) * math.sqrt(SLIVER)):.3g}"))
        given = {TRAIN: mechanism.records, SCORE: mechanism.score_records}
        declared = {use: int(size) for use, size in given.items() if isinstance(size, int)}
        large = {use: size for use, size in declared.items() if DEVIATIONS * sigma <= size / 2}
        return cls(sigma, large, mechanism.unit) if large else None

    def terms(self, mechanism: Mechanism) -> tuple[Term, ...]:
        """What the counts cost: one record changes the count of its side by at most 1."""
        sides, sigma = mechanism.split, self.noise_multiplier
        event = RoundedDp(dp_accounting.GaussianDpEvent(sigma), noise.slack(1, sigma))
        count = account_published([event], 1, relation=mechanism.relation)
        of_use = {TRAIN: EVERYONE, SCORE: EVERYONE} if sides is None else {TRAIN: sides.training, SCORE: sides.scoring}
        return tuple(Term(count, of_use[use], counts=True) for use in self.declared)

    def to_dict(self) -> dict[str, Any]:
        return {"noise_multiplier": self.noise_multiplier, "declared": dict(self.declared)}

    def draw(self, mechanism: Mechanism, space: Space, entropy: Entropy) -> dict[str, int]:
        """The noisy counts. They are published: commit them before anything is done with them."""
        fitting = mechanism.fitting_records(space)
        words = noise.Words.of_seed(below(2**63, entropy.child("records that fit")))
        found = {}
        for use in self.declared:
            # Of several scores on the same records the first; of a score that counts no records, what is declared.
            known = [fit for name, (fit, _) in fitting.items() if name.startswith(use)]
            found[use] = noise.noisy_count([*known, self.declared[use]][0], self.noise_multiplier, words.stream(use))
        return found

    def check(self, counts: Mapping[str, int], mechanism: Mechanism, delta: float, stated: Mapping[str, Any]) -> None:
        """Refuse to continue if clearly fewer than half of the declared records of a side fit.

        ``stated`` is what every certificate of the search states.
        """
        if not (few := self._clearly_below(counts, 1 / 2)):
            return
        spent = Composition(self.terms(mechanism))
        public: dict[str, Any] = {"releases": [{"part": "count", "releases": ["counts"], **self.to_dict()}], **stated}
        cost = f"ε = {round_epsilon(spent.epsilon(delta)):g} at δ = {delta:g} (error.certificate)"
        raise UnfitRecordsError(
            f"{self.said(counts, few)} The search was refused before its first run: only the count was released, "
            f"{cost}. Correct the example, the shapes, the types or the labels that are declared, or how records are "
            "read (mechanism.fitting_records() counts exactly, for the curator alone); then start a new search with "
            "another journal, which pays again",
            spent.certificate(delta, **public),
        )

    def said(self, counts: Mapping[str, int], uses: Sequence[str] | None = None) -> str:
        """The noisy counts in a sentence that may be published."""
        sigma = self.noise_multiplier
        some = [
            f"about {max(counts[use], 0)} of {self.declared[use]} {self.unit}s to {use}"
            for use in uses or self.declared
        ]
        who = f"{self.unit.capitalize()}s"
        line = f"{who} that fit the declaration, by a noisy count (σ = {sigma:g}): {' and '.join(some)}."
        if uses is None and self._clearly_below(counts, 9 / 10):
            line += (
                " That is clearly fewer than were declared, and the others are left out. If you did not expect it, "
                "interrupt the search and check the declared shapes, types and labels: for example, a model needs an "
                "output for every class."
            )
        return line

    def _clearly_below(self, counts: Mapping[str, int], share: float) -> list[str]:
        """The uses of which clearly less than a share of the declared records fit."""
        room = DEVIATIONS * self.noise_multiplier
        return [use for use, size in self.declared.items() if counts[use] + room < share * size]


def total_in_gaussians(epsilon: float, delta: float) -> float:
    """The μ of the Gaussian mechanism that costs ε at δ: how large a total is, in one number."""

    def excess(mu: float) -> float:
        return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)) - delta)

    return float(brentq(excess, 1e-6, 1e6, xtol=1e-12)) if excess(1e6) > 0 else 1e6
