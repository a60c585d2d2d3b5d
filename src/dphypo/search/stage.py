"""A study as a part of a search: the best of T runs is released, and nothing else (Framework 1 of the paper)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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
from dphypo.band.problem import Rule
from dphypo.entropy import Entropy
from dphypo.journal.records import Record
from dphypo.laws import Law
from dphypo.mechanisms import Mechanism, capabilities, over_space
from dphypo.samplers import Sampler
from dphypo.search import progress
from dphypo.search.interruption import Lost
from dphypo.search.part import Decider, GroupSizes, Released, Setting, Watch
from dphypo.search.policy import Draw, Policy
from dphypo.search.prior_around import PriorAround, PriorRule, describe
from dphypo.search.release import Ending, Release
from dphypo.search.selection import Past
from dphypo.space import Space

FIRST, HISTORY_ONLY = "first from the prior", "history only"
"""In the journal: n₀ above 1, and the search rule if the guarantee counts on one that sees only the history."""


@dataclass(frozen=True)
class Stage:
    """One study of :class:`dphypo.Stages`.

    Args:
        mechanism: what one run is: the final mechanism, or a cheaper one (``mechanism.at(epochs=1)``).
        runs: the law of T of this stage.
        band, sampler, rule, candidates, grid, lost, policy, first_from_prior, lag: as for :class:`dphypo.Study`. The
            band is relative to the prior of the stage.
        prior: how this stage's release shapes the prior of the next: a :class:`dphypo.PriorAround` (the default), or a
            function of the release and the original space that returns a space. The last stage has none.
        release_score: whether the score is published with the hyperparameters; the guarantee covers both. Without, the
            function for the prior does not see it either.
    """

    mechanism: Mechanism
    runs: Law
    band: BandLike = Band(1, 1)  # noqa: RUF009 - a frozen value
    sampler: Sampler | None = None
    rule: Rule | str = Greedy()  # noqa: RUF009
    prior: PriorRule | None = None
    release_score: bool = False
    candidates: int = 8192
    grid: Mapping[str, int] | None = None
    lost: Lost | str | None = None
    policy: PolicyClass | str | None = None
    first_from_prior: int | None = None
    lag: int | None = None

    models: ClassVar[None] = None
    table: ClassVar[bool] = False

    def __post_init__(self) -> None:
        capabilities.check_is_mechanism(self.mechanism)
        given: object = self.prior
        if given is not None and not callable(given):
            raise _validate.fail("prior", given, "give a PriorAround, or a function of the release and the space")
        _validate.flag(release_score=self.release_score)
        if self.lag is not None:
            _validate.integer(at_least=0, lag=self.lag)
        object.__setattr__(self, "band", Band.of(self.band))
        _ = self.lost_runs, self.search_policy  # which check the other arguments

    def __str__(self) -> str:
        return f"{self.mechanism!r} with {self.runs!r} in {self.search_policy.band!r}"

    @cached_property
    def search_policy(self) -> Policy:
        """The search rule, held to the band."""
        return Policy.of(
            *(self.band, self.sampler, self.rule, self.candidates, self.grid, self.policy, self.first_from_prior)
        )

    @property
    def lost_runs(self) -> Lost:
        return Lost.read(self.lost, self.mechanism)

    @property
    def prior_rule(self) -> PriorRule:
        return PriorAround() if self.prior is None else self.prior

    def account(self, space: Space) -> Guarantee:
        """The guarantee of this stage alone, over the whole of the original space, whatever its prior will be."""
        return self._best_of(over_space.events(self.mechanism, space))

    def terms(self, space: Space, *, last: bool, alone: bool = False) -> tuple[Term, ...]:
        """Refuse now what would otherwise fail after an earlier stage was paid for; then account.

        Where a split sets records apart and one is added or removed, there are two terms: to records that train, runs
        are the training; to records that score, they are the scores. Else there is one, which reads all records.
        """
        self.search_policy.on(space)
        if last and (self.prior is not None or self.release_score):
            raise ValueError("the last stage has a prior= or release_score=: they say what an earlier stage hands on")
        if isinstance(self.prior_rule, PriorAround):
            self.prior_rule.check(space)
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
        """What determines the guarantee.

        The search rule is part of it only if the guarantee counts on one that sees nothing but the history: a rule
        that is chosen on the way may have been chosen by somebody who saw the journal.
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
        """The search rule, if the guarantee relies on it, with why it counts as history-only."""
        return self.search_policy.certified()

    def hands_on(self, *, last: bool) -> dict[str, Any]:
        if last:
            return {"releases": ["params", "model", "score"]}
        published = ["params", "score"] if self.release_score else ["params"]
        return {"releases": published, "next prior": describe(self.prior_rule)}

    def compute(self) -> str:
        return progress.compute(self.runs)

    def read(self, record: Record) -> Released:
        assert record.ending is not None
        if record.best is None:
            return Released(None, None, Ending[record.ending])
        score = record.results[record.best].score if self.release_score else None
        return Released(record.trials[record.best].params, score)

    def state(self, published: Released) -> dict[str, Any]:
        params = None if published.params is None else json.loads(json.dumps(dict(published.params)))
        return {"params": params, "score": published.score, "ending": str(published.ending)}

    def next_prior(self, published: Released, space: Space) -> Space | None:
        """What is made of the release; a stage without a result leaves the prior as it was."""
        return None if published.params is None else self.prior_rule(published, space)

    def begin(self, setting: Setting) -> Decider:
        return DrawnRuns(self.runs, self.search_policy.on(setting.prior), self.lag)

    def release(self, best: Release, record: Record, setting: Setting) -> Release:
        return best


@dataclass(frozen=True)
class DrawnRuns:
    """What decides the runs of a study: T is drawn from its law, and λ inside the band."""

    law: Law
    draw_params: Draw
    lag: int | None

    published: ClassVar[bool] = False

    @property
    def space(self) -> Space:
        return self.draw_params.space

    @property
    def in_order(self) -> bool:
        return self.draw_params.policy.history_only

    def draw_total(self, entropy: Entropy) -> int:
        return self.law.sample(entropy.child("T"))

    def possible(self, total: int) -> bool:
        return bool(self.law.pmf(total) > 0)

    def groups(self, workers: int) -> GroupSizes | None:
        return GroupSizes(workers, workers) if workers > 1 else None

    def usable(self, number: int, lag: int, groups: GroupSizes | None) -> int | None:
        return max(number - lag, 0) if self.in_order else None

    def draw(self, past: Past, record: Record, usable: int | None, entropy: Entropy) -> dict[str, Any]:
        adaptive = self.draw_params.policy.adaptive
        return self.draw_params(past.history(record, usable) if adaptive else None, entropy)

    def watch(self, record: Callable[[], Record], *, show: bool, ticking: bool, on_run: object) -> Watch:
        """A bar, which is erased at the end: how many runs it shows is secret."""
        return progress.bar(self.law, len(record().results), show=show, ticking=ticking)
