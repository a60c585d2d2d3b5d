"""One stage of a search in stages: the part of a plan that is a study."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dphypo import _validate, errors
from dphypo.accounting import Certificate, Guarantee, PolicyClass, Term
from dphypo.band import Band, BandLike, Greedy, Rule
from dphypo.executors import Crew
from dphypo.journal import Journal, Trial
from dphypo.journal import params as _params
from dphypo.laws import Law
from dphypo.mechanisms import Mechanism, capabilities
from dphypo.samplers import Sampler, default_sampler, description
from dphypo.search import progress as _progress
from dphypo.search.accounted import accounted, described, terms_of_search
from dphypo.search.curator import Curator
from dphypo.search.declaration import Declaration
from dphypo.search.framework1 import dp_hypo
from dphypo.search.lost import Lost
from dphypo.search.part import Released, Running, Setting
from dphypo.search.policy import Policy, claimed, prior_runs, word
from dphypo.search.prior_around import PriorAround, PriorRule, describe
from dphypo.search.release import Ending, Release
from dphypo.search.runs import Search
from dphypo.space import Space


@dataclass(frozen=True)
class Stage:
    """One search of :class:`dphypo.Stages`.

    Args:
        mechanism: what one run is: the final mechanism, or a cheaper one (``mechanism.at(epochs=1)``).
        runs: the law of T of this stage.
        band, sampler, rule, candidates, grid, lost, policy, first_from_prior, lag: as for :class:`dphypo.Study`. The
            band is relative to the prior of the stage.
        prior: how this stage's release shapes the prior of the next: a :class:`dphypo.PriorAround` (the default), or a
            function of the release and the original space that returns a space. The last stage has none.
        release_score: whether the score is published with the hyperparameters; the guarantee covers both. Without, the
            rule for the prior does not see it either.
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

    def __post_init__(self) -> None:
        capabilities.check_is_mechanism(self.mechanism)
        if self.sampler is not None and not isinstance(self.sampler, Sampler):
            raise _validate.fail("sampler", self.sampler, "give an object with weights(candidates, history)")
        given: object = self.prior
        if given is not None and not callable(given):
            raise _validate.fail("prior", given, "give a PriorAround, or a function of the release and the space")
        _validate.flag(release_score=self.release_score)
        object.__setattr__(self, "band", Band.of(self.band))
        Lost.read(self.lost, self.mechanism)

    def __str__(self) -> str:
        return f"{self.mechanism!r} with {self.runs!r} in {self.held!r}"

    def conditions(self) -> list[str]:
        """What the guarantee assumes of the runs, besides their event."""
        return [Lost.read(self.lost, self.mechanism).condition]

    @property
    def held(self) -> Band:
        """The band, where two numbers may have been given for it."""
        return Band.of(self.band)

    @property
    def prior_rule(self) -> PriorRule:
        """The rule for the next prior."""
        return PriorAround() if self.prior is None else self.prior

    def account(self, space: Space) -> Guarantee:
        """The guarantee of this stage alone, over the whole of the original space, whatever its prior will be."""
        policy = claimed(self.policy, self.sampler, self.held, self.rule)
        return accounted(self.mechanism, space, self.runs, self.held, policy, self._first)

    def declare(self, space: Space, *, last: bool) -> tuple[Term, ...]:
        """Refuse now what would otherwise fail after an earlier stage was paid for; then account."""
        self._policy(space)
        if last and (self.prior is not None or self.release_score):
            raise ValueError("the last stage has a prior= or release_score=: they say what an earlier stage hands on")
        if isinstance(self.prior_rule, PriorAround):
            self.prior_rule.check(space)
        return self.terms(space)

    def terms(self, space: Space) -> tuple[Term, ...]:
        """What records of each side meet in this stage."""
        policy = claimed(self.policy, self.sampler, self.held, self.rule)
        return terms_of_search(self.mechanism, space, self.runs, self.held, policy, self._first)

    def describe(self, terms: tuple[Term, ...]) -> dict[str, Any]:
        """What determines the guarantee."""
        guarantee, *others = _guarantees(terms)
        lost = {"lost runs": Lost.read(self.lost, self.mechanism)}
        rule = self.search_rule()
        # The rule of a later stage is fixed too: one that is chosen on the way may have been chosen by the journal.
        seen = {} if rule is None else {"policy": guarantee.policy.value, "search rule": rule}
        return {**described(guarantee, *others), **lost, **seen}

    def search_rule(self) -> dict[str, Any] | None:
        """The rule with its settings and why it counts as history-only; None if the guarantee does not rely on it."""
        if self.held.C == 1 or claimed(self.policy, self.sampler, self.held, self.rule) is not PolicyClass.HISTORY:
            return None
        rule = default_sampler(self.held) if self.sampler is None else self.sampler
        why = word(rule, self.rule)
        assert why is not None  # ``claimed`` has asked
        cells = None if self.grid is None else dict(self.grid)
        settings = {"projection": repr(self.rule), "candidates": self.candidates, "grid": cells}
        return {**description(rule), **settings, "sees only the history by": why}

    def hands_on(self, *, last: bool) -> dict[str, Any]:
        """What this stage releases, and what becomes of it."""
        if last:
            return {"releases": ["params", "model", "score"]}
        published = ["params", "score"] if self.release_score else ["params"]
        return {"releases": published, "next prior": describe(self.prior_rule)}

    def compute(self) -> str:
        """How many runs the stage may take."""
        return _progress.compute(self.runs)

    def read(self, journal: Journal) -> Released | None:
        """What the stage has released, if it has: nothing else of its journal."""
        record = journal.record
        if record.ending is None:
            return None
        if record.shredded:
            raise errors.Shredded
        if record.best is None:
            return Released(None, None, Ending[record.ending])
        score = record.results[record.best].score if self.release_score else None
        return Released(record.trials[record.best].params, score)

    def listed(self, published: Released) -> dict[str, Any]:
        """What the stage has released, as JSON."""
        params = None if published.params is None else json.loads(_params.dumps(published.params))
        return {"params": params, "score": published.score, "ending": str(published.ending)}

    def next_prior(self, published: Released, space: Space) -> Space | None:
        """What the rule makes of the release; a stage without a result leaves the prior as it was."""
        return None if published.params is None else self.prior_rule(published, space)

    def open(self, setting: Setting) -> Running:
        """The study of this stage."""
        declaration = Declaration(
            self.mechanism,
            self.runs,
            self._policy(setting.prior),
            _guarantees(setting.terms)[0],
            setting.certificate.delta,
            setting.maximize,
            setting.entropy.private,
            Lost.read(self.lost, self.mechanism),
            whole=setting.whole,
        )
        search = Search(declaration, setting.journal, setting.entropy, lost=declaration.lost, stages=True, lag=self.lag)
        return _Study(declaration, search, setting.certificate)

    def _policy(self, prior: Space) -> Policy:
        return Policy.of(prior, self.held, self.sampler, self.rule, self.candidates, self.grid, self._first)

    @property
    def _first(self) -> int:
        return prior_runs(self.first_from_prior, self.sampler, self.held)


def _guarantees(terms: tuple[Term, ...]) -> list[Guarantee]:
    return [term.releases for term in terms if isinstance(term.releases, Guarantee)]


@dataclass(frozen=True, repr=False)
class _Study:
    """The study of a stage. It says neither its cost nor when it begins and ends: that would show its T."""

    declaration: Declaration
    search: Search
    certificate: Certificate

    @property
    def mechanism(self) -> Mechanism:
        return self.declaration.mechanism

    @property
    def complete(self) -> bool:
        return self.search.record().complete

    @property
    def finished(self) -> bool:
        return self.search.record().released

    def run(self, crew: Crew, *, progress: bool) -> None:
        self.search.side_by_side(crew.workers)
        with self.search.running(here=crew.here):
            dp_hypo(self.declaration, self.search, crew, self.certificate, progress=progress)

    def ask(self) -> Trial | None:
        return self.search.ask()

    def tell(self, trial: Trial, outcome: Any) -> None:
        self.search.tell(trial, outcome, self.declaration.mechanism.saver)

    def publish(self) -> None:
        self.search.publish(self.certificate)

    def release(self) -> Release:
        return self.search.published(self.declaration.mechanism.saver)

    def curator(self) -> Curator:
        return Curator(self.search)

    def close(self) -> None:
        self.search.close()


@dataclass(frozen=True, repr=False)
class StageTrial:
    """One run of a search in stages: train as ``mechanism`` does, with ``params`` and ``seed``, and tell the outcome.

    Args:
        stage: which stage it is a run of, counted from 1.
        mechanism: what one run of that stage is.
        trial: the run within its stage. Secret, as all of them are: the ``repr`` names the stage alone.
    """

    stage: int
    mechanism: Mechanism
    trial: Trial

    @property
    def params(self) -> dict[str, Any]:
        return self.trial.params

    @property
    def seed(self) -> int:
        return self.trial.seed

    def __repr__(self) -> str:
        return f"<trial of stage {self.stage}>"
