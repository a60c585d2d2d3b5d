"""The guarantee of a plan whose records are on two sides: those that train, and those that score.

Each record is on one side by a rule that looks at that record alone, the same in all runs. A *term* of a plan is a
mechanism (a search, or published runs) together with the sides whose records it reads.

**Lemma (sides).** Let neighbours differ by one record that is added, removed, or blanked. That record is on one side,
s, and every other record stays where it was. A term that does not read side s has the same law on both data sets, given
what was published before it: its privacy loss is zero. So the whole is dominated by the product of the pairs of the
terms that read s, and the plan costs the **maximum over the sides of the composition of that side's terms**. If the
record is replaced by another, it may leave one side and enter the other: every term may change, and **all compose**.

Published runs that train on one side and score on the other are two terms. To a record that trains, the score is
post-processing of the model and of records that do not change; to a record that scores, the model is given. Where a
record is added, removed or blanked, a search is two terms as well: Theorem 4 is about one ordered pair of neighbours,
and for a pair that differs on side s one run is dominated by the profile of its part on that side alone. Where a record
is **replaced**, a search is **one** term, whose event composes training and scoring: two searches, one for each part,
can cost less than the search that has both (tests/docs/test_counterexamples.py). That a score of one side selects a
model of the other is covered: the theorem is about whole outcomes, model and score together.

Proofs: docs/theory.md, section "Surveys". Under replacement they need of every event that it also holds when a record
enters or leaves the side that it reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import dp_accounting
import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.accounting import dp_library
from dphypo.accounting.guarantee import Guarantee
from dphypo.accounting.profiles import Discrete, Floats, epsilon_for
from dphypo.accounting.published import Published
from dphypo.accounting.theorems import theorem1_2_paper

if TYPE_CHECKING:
    from dphypo.accounting.certificate import Certificate

Releases: TypeAlias = Guarantee | Published
"""What a term can be: a search that releases its best run, or runs that are all published."""


class Side(StrEnum):
    """Which records a mechanism reads."""

    TRAINING = "training"
    SCORING = "scoring"


BOTH = frozenset(Side)


@dataclass(frozen=True, eq=False)
class Term:
    """A mechanism of a plan, and the sides whose records it reads."""

    releases: Releases
    sides: frozenset[Side] = BOTH

    def __post_init__(self) -> None:
        object.__setattr__(self, "sides", frozenset(Side(side) for side in self.sides))
        if not self.sides:
            raise _validate.fail("sides", self.sides, "a term reads the records of at least one side")


@dataclass(frozen=True, eq=False)
class PlanGuarantee:
    """The guarantee of all that a plan releases. Every number is an upper bound, known before anything runs.

    >>> from dp_accounting import GaussianDpEvent
    >>> from dphypo.accounting.published import published
    >>> survey, last = published(GaussianDpEvent(40.0), 20), published(GaussianDpEvent(4.0), 1)
    >>> scores = published(GaussianDpEvent(20.0), 20)
    >>> training, scoring = frozenset({Side.TRAINING}), frozenset({Side.SCORING})
    >>> plan = PlanGuarantee((Term(survey, training), Term(scores, scoring), Term(last, training)))
    >>> round(plan.epsilon(1e-6), 2), {side.value: round(cost, 2) for side, cost in plan.costs(1e-6).items()}
    (1.17, {'training': 1.17, 'scoring': 0.94})
    """

    terms: tuple[Term, ...]

    def __post_init__(self) -> None:
        if not self.terms:
            raise _validate.fail("terms", self.terms, "a plan releases something")
        relations = {term.releases.relation for term in self.terms}
        if len(relations) != 1:
            names = ", ".join(sorted(relation.name for relation in relations))
            raise ValueError(f"parts under different neighbouring relations ({names}) do not compose: state all alike")
        if len({term.releases.grid for term in self.terms}) != 1:
            raise ValueError("parts accounted on different grids do not compose: give one grid for all")
        if self.relation is dp_accounting.NeighboringRelation.REPLACE_ONE and any(
            isinstance(term.releases, Guarantee) and term.sides != BOTH for term in self.terms
        ):
            raise ValueError(
                "under REPLACE_ONE a search reads both sides: a record may leave training and enter scoring of a "
                "run, so give one search whose event composes both, as a term that reads both sides"
            )

    @property
    def relation(self) -> dp_accounting.NeighboringRelation:
        """Which data sets are neighbours."""
        return self.terms[0].releases.relation

    def epsilon(self, delta: float) -> float:
        """ε of all that is released together at this δ."""
        return max(self.costs(delta).values())

    def delta(self, epsilon: float) -> float:
        """δ of all that is released together at this ε ≥ 0."""
        epsilon = _validate.non_negative(epsilon=epsilon)
        return max(
            0.0 if epsilon >= self._pure[side] else max(float(profile.delta(epsilon)) for profile in profiles)
            for side, profiles in self._by_side.items()
        )

    def costs(self, delta: float) -> dict[Side, float]:
        """ε at δ for a record of each side that is read; under replacement they are all the same."""
        delta = _validate.delta(delta=delta)
        return {
            side: min(max(epsilon_for(profile, delta) for profile in profiles), self._pure[side])
            for side, profiles in self._by_side.items()
        }

    def bound(self, delta: float) -> str:
        """The name of the bound: there is one."""
        return "composition"

    def bounds(self, delta: float) -> dict[str, float]:
        """ε at δ by every bound that applies."""
        return {"composition": self.epsilon(delta)}

    def one_run(self, delta: float) -> dict[str, float]:
        """ε of one run of the last part alone: what is usually reported."""
        trained = [term for term in self.terms if Side.TRAINING in term.sides]
        return (trained or list(self.terms))[-1].releases.one_run(delta)

    def rdp(self, alpha: npt.ArrayLike) -> Floats:
        """ε(α) of the plan: the largest, over the sides, of the sum of that side's terms."""
        sums = [np.sum([one.rdp(alpha) for one in met], axis=0) for met in self.met.values()]
        return np.asarray(np.max(sums, axis=0))

    def profile(self, points: int = 200) -> tuple[Floats, Floats]:
        """A curve for plotting: ε from 0 to where δ has fallen to 1e-11 or falls no further, and δ at each."""
        last = max(min(epsilon_for(profile, 1e-11), profile.top) for profile in self._profiles)
        epsilons = np.linspace(0.0, last, points)
        return epsilons, np.max([profile.delta(epsilons) for profile in self._profiles], axis=0)

    def certificate(self, delta: float, **public: object) -> Certificate:
        """A document of public values from which anyone can recompute ε at δ."""
        from dphypo.accounting.certificate import issue

        return issue(self, delta, public)

    @cached_property
    def met(self) -> dict[Side, list[Releases]]:
        """For every side that is read, what a record of that side meets."""
        read = [side for side in Side if any(side in term.sides for term in self.terms)]
        if self.relation is dp_accounting.NeighboringRelation.REPLACE_ONE:
            return {side: [term.releases for term in self.terms] for side in read}
        return {side: [term.releases for term in self.terms if side in term.sides] for side in read}

    @property
    def _profiles(self) -> list[Discrete]:
        return list(dict.fromkeys(profile for profiles in self._by_side.values() for profile in profiles))

    @cached_property
    def _pure(self) -> dict[Side, float]:
        """The sum of the ε of pure DP for each side; infinite where a term has none. Grids leave a trace of δ."""
        return {side: _pure(terms) for side, terms in self.met.items()}

    @cached_property
    def _by_side(self) -> Mapping[Side, tuple[Discrete, ...]]:
        found: dict[Side, tuple[Discrete, ...]] = {}
        known: dict[tuple[int, ...], tuple[Discrete, ...]] = {}  # sides that meet the same terms
        for side, terms in self.met.items():
            key = tuple(map(id, terms))
            if key not in known:
                known[key] = _composed(terms)
            found[side] = known[key]
        return found


def _composed(releases: list[Releases]) -> tuple[Discrete, ...]:
    """The profiles of both directions of all together; one if they are the same."""
    convolutions = sum(one.convolutions if isinstance(one, Published) else 1 for one in releases)
    pld = dp_library.composed(one.to_pld() for one in releases)
    return tuple(dict.fromkeys(dp_library.directions(pld, convolutions)))


def _pure(releases: list[Releases]) -> float:
    found = [
        one.count * one.run.pure
        if isinstance(one, Published)
        else theorem1_2_paper.pure_epsilon(one.run, one.runs, one.band)
        for one in releases
    ]
    total = math.fsum(math.inf if epsilon is None else epsilon for epsilon in found)
    return math.nextafter(total, math.inf) if 0 < total < math.inf else total
