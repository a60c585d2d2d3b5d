"""A study as a part of a search: the best of T runs is released, and nothing else (Framework 1 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import dp_accounting

from dphypo import _validate
from dphypo.accounting import Guarantee, Term, account
from dphypo.accounting.events import event_to_dict
from dphypo.accounting.guarantee import PolicyClass
from dphypo.accounting.sides import EVERYONE
from dphypo.band import Band, Greedy
from dphypo.band.band import BandLike
from dphypo.band.problem import Projection
from dphypo.executors.executor import Lost
from dphypo.journal.journal import Record
from dphypo.laws import Law
from dphypo.mechanisms import Mechanism, over_space
from dphypo.mechanisms.mechanism import check_is_mechanism
from dphypo.samplers import Sampler
from dphypo.search import progress as _progress
from dphypo.search.part import PartSetting
from dphypo.search.policy import DrawnRuns, Policy
from dphypo.search.release import Release
from dphypo.space import Space

FIRST, HISTORY_ONLY = "first from the prior", "history only"
"""In the journal: n₀ above 1, and the search rule if the guarantee counts on one that sees only the history."""


@dataclass(frozen=True)
class Stage:
    """A study, at the end of :class:`dphypo.Stages`: after surveys, its prior lies around what they found.

    Args:
        mechanism: what one run is: the final mechanism, or a cheaper one (``mechanism.at(epochs=1)``).
        runs: the law of T.
        band, sampler, projection, candidates, grid, lost, policy, first_from_prior, lag: as for :class:`dphypo.Study`.
            The band is relative to the prior that the surveys leave.
    """

    mechanism: Mechanism
    runs: Law
    band: BandLike = Band(1, 1)  # noqa: RUF009 - a frozen value
    sampler: Sampler | None = None
    projection: Projection | str = Greedy()  # noqa: RUF009
    candidates: int = 8192
    grid: Mapping[str, int] | None = None
    lost: Lost | str | None = None
    policy: PolicyClass | str | None = None
    first_from_prior: int | None = None
    lag: int | None = None

    models: ClassVar[None] = None
    table: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_is_mechanism(self.mechanism)
        if self.lag is not None:
            _validate.integer(at_least=0, lag=self.lag)
        object.__setattr__(self, "band", Band.of(self.band))
        _ = self.lost_runs, self.search_policy  # which check the other arguments

    def __str__(self) -> str:
        return f"{self.mechanism!r} with {self.runs!r} in {self.search_policy.band!r}"

    @cached_property
    def search_policy(self) -> Policy:
        """The search rule, held to the band."""
        return Policy.of(self)

    @property
    def executed(self) -> Mechanism:
        return self.mechanism

    @property
    def lost_runs(self) -> Lost:
        return Lost.read(self.lost, self.mechanism)

    def account(self, space: Space) -> Guarantee:
        """The guarantee of this study alone, over the whole of the original space."""
        return self._best_of(over_space.events(self.mechanism, space))

    def terms(self, space: Space, *, last: bool, alone: bool = False) -> tuple[Term, ...]:
        """One term; two, for training and scores, where a split sets records apart and one is added or removed."""
        self.search_policy.grid(space)  # which refuses cells that the space has not
        if not last:
            raise ValueError("a Stage is followed by another part: surveys come first, then one Stage or one LastRun")
        mechanism, sides = self.mechanism, self.mechanism.split
        if alone or sides is None or mechanism.relation is dp_accounting.NeighboringRelation.REPLACE_ONE:
            return (Term(self.account(space)),)
        trains, scores = over_space.by_side(mechanism, space)
        terms = [Term(self._best_of(trains), sides.training)]
        if scores:
            terms.append(Term(self._best_of(scores), sides.scoring, scores=True))
        return tuple(terms)

    def _best_of(self, events: list[Any]) -> Guarantee:
        return account(
            *(events, self.runs, self.search_policy.band),
            relation=self.mechanism.relation,
            policy=self.search_policy.policy,
            first_from_prior=self.search_policy.counted,
        )

    def describe(self, terms: tuple[Term, ...]) -> dict[str, Any]:
        """The search rule is part of it only if the guarantee counts on one that sees nothing but the history.

        A rule that is chosen on the way may have been chosen by somebody who saw the journal.
        """
        found = [term.releases for term in terms if isinstance(term.releases, Guarantee)]
        first = found[0]
        return {
            "law of T": first.runs.to_dict(),
            "band": [first.band.c, first.band.C],
            "event": [event_to_dict(event) for guarantee in found for event in guarantee.events],
            "relation": first.relation.name,
            **({FIRST: first.first_from_prior} if first.first_from_prior > 1 else {}),
            **({} if terms[0].side == EVERYONE else {"reads": [term.side.to_json() for term in terms]}),
            "lost runs": self.lost_runs,
            **({HISTORY_ONLY: self.search_policy.describe()} if self.search_policy.history_only else {}),
        }

    def search_rule(self) -> dict[str, Any] | None:
        return self.search_policy.certified()

    def hands_on(self, *, last: bool) -> dict[str, Any]:
        return {"releases": ["params", "model", "score"], "score on": self.mechanism.scored_on}

    def compute(self) -> str:
        return _progress.compute(self.runs)

    def read(self, *_: object) -> Any:
        """No part follows that would use what the study releases."""

    state = next_prior = read

    def begin(self, setting: PartSetting) -> DrawnRuns:
        prior = setting.prior
        return DrawnRuns(self.runs, self.search_policy, prior, self.search_policy.grid(prior), self.lag)

    def release(self, best: Release, record: Record, setting: PartSetting) -> Release:
        return best
