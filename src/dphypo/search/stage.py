"""A study as a part of a search: the best of T runs is released, and nothing else (Framework 1 of the paper).

:func:`calibrate_stages` finds the noise with which several of them cost a total.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import dp_accounting

from dphypo import _validate
from dphypo.accounting import Composition, Guarantee, Term, account, solve_noise
from dphypo.accounting.events import event_to_dict
from dphypo.accounting.guarantee import PolicyClass
from dphypo.accounting.noise import Keep
from dphypo.accounting.sides import EVERYONE
from dphypo.band import Band, Greedy
from dphypo.band.band import BandLike
from dphypo.band.problem import Projection
from dphypo.errors import UnreachableError
from dphypo.executors.executor import Lost
from dphypo.journal.journal import keeping
from dphypo.journal.records import Record
from dphypo.journal.store import Store
from dphypo.laws import Law
from dphypo.mechanisms import Mechanism, capabilities, over_space
from dphypo.samplers import Sampler
from dphypo.search import progress as _progress
from dphypo.search.part import Part, PartSetting, PriorAround, PriorRule, Released, describe_rule
from dphypo.search.policy import DrawnRuns, Policy
from dphypo.search.release import Ending, Release
from dphypo.space import Space

FIRST, HISTORY_ONLY = "first from the prior", "history only"
"""In the journal: n₀ above 1, and the search rule if the guarantee counts on one that sees only the history."""


@dataclass(frozen=True)
class Stage:
    """One study of :class:`dphypo.Stages`.

    Args:
        mechanism: what one run is: the final mechanism, or a cheaper one (``mechanism.at(epochs=1)``).
        runs: the law of T of this stage.
        band, sampler, projection, candidates, grid, lost, policy, first_from_prior, lag: as for :class:`dphypo.Study`.
            The band is relative to the prior of the stage.
        prior: how this stage's release shapes the prior of the next: a :class:`dphypo.PriorAround` (the default), or a
            function of the release and the original space that returns a space. The last stage has none.
        release_score: whether the score is published with the hyperparameters; the guarantee covers both. Without, the
            function for the prior does not see it either.
    """

    mechanism: Mechanism
    runs: Law
    band: BandLike = Band(1, 1)  # noqa: RUF009 - a frozen value
    sampler: Sampler | None = None
    projection: Projection | str = Greedy()  # noqa: RUF009
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
        if self.prior is not None and not callable(self.prior):
            raise _validate.fail("prior", self.prior, "give a PriorAround, or a function of the release and the space")
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
        return Policy.of(self)

    @property
    def executed(self) -> Mechanism:
        return self.mechanism

    @property
    def lost_runs(self) -> Lost:
        return Lost.read(self.lost, self.mechanism)

    @property
    def prior_rule(self) -> PriorRule:
        return PriorAround() if self.prior is None else self.prior

    def account(self, space: Space) -> Guarantee:
        """The guarantee of this stage alone, over the whole of the original space."""
        return self._best_of(over_space.events(self.mechanism, space))

    def terms(self, space: Space, *, last: bool, alone: bool = False) -> tuple[Term, ...]:
        """One term; two, for training and scores, where a split sets records apart and one is added or removed."""
        self.search_policy.grid(space)  # which refuses cells that the space has not
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
        if last:
            scored = capabilities.scored_on(self.mechanism)
            return {"releases": ["params", "model", "score"], "score on": scored}
        published = ["params", "score"] if self.release_score else ["params"]
        return {"releases": published, "next prior": describe_rule(self.prior_rule)}

    def compute(self) -> str:
        return _progress.compute(self.runs)

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
        return None if published.params is None else self.prior_rule(published, space)

    def begin(self, setting: PartSetting) -> DrawnRuns:
        prior = setting.prior
        return DrawnRuns(self.runs, self.search_policy, prior, self.search_policy.grid(prior), self.lag)

    def release(self, best: Release, record: Record, setting: PartSetting) -> Release:
        return best


def several(stages: object, alone: str) -> Sequence[Any]:
    """A list of two or more parts. ``alone`` names what to use for a single one."""
    parts = stages if isinstance(stages, Sequence) and all(isinstance(stage, Part) for stage in stages) else ()
    if len(parts) > 1 or (parts and not isinstance(parts[0], Stage)):
        return parts
    remedy = f"give a list of two or more dphypo.Stage(mechanism, runs); for a single search use {alone}"
    raise _validate.fail("stages", stages, remedy)


def calibrate_stages(
    space: Space,
    stages: Sequence[Stage],
    *,
    epsilon: float,
    delta: float,
    share: float | Sequence[float] | None = None,
    journal: str | Path | Store | None = None,
    name: str = "stages",
    progress: bool = True,
) -> list[Stage]:
    """The stages with the noise of the last one such that all together cost ε at δ, to within 1e-3 and never more.

    A mechanism whose noise is to be found has a method ``at(noise_multiplier=...)`` that returns one that trains with
    that noise, and whose event says so, as :class:`dphypo.integrations.torch.DPSGD` does; more noise must not cost
    more.

    Args:
        space: the hyperparameters, as they will be given to :class:`dphypo.Stages`.
        stages: the stages. Without ``share`` all but the last keep the noise they have.
        epsilon, delta: what all stages may cost together.
        share: for each stage but the last (one number if there is one such stage) the share of ε that it may cost by
            itself; its noise is found too. Costs do not add up, they compose: the last stage gets more than the rest.
        journal, name: where noise is kept once it is found, usually those of :class:`dphypo.Stages`: a search that goes
            on then finds it at once. What is kept is accounted for afresh, and solved for anew where it does not fit.
        progress: show on a terminal that noise is being solved for, if that takes long.

    >>> import dp_accounting as dp
    >>> import dphypo
    >>> import numpy as np
    >>> relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    >>> def training(noise_multiplier):
    ...     def train(params, *, seed):  # a stand-in for training with this noise
    ...         return np.random.default_rng(seed).normal(0.0, noise_multiplier), params["lr"]
    ...     return Training(train, event=dp.GaussianDpEvent(noise_multiplier), relation=relation)
    >>> class Training(dphypo.mechanisms.Declared):
    ...     def at(self, noise_multiplier):
    ...         return training(noise_multiplier)
    >>> space = dphypo.Space({"lr": [0.1, 1.0]})
    >>> stages = [Stage(training(1.0), dphypo.Geometric(mean=mean)) for mean in (20, 5)]
    >>> found = calibrate_stages(space, stages, epsilon=2.0, delta=1e-6, share=0.3)
    >>> 1.999 <= dphypo.Stages(space, found, delta=1e-6, journal=None).guarantee.epsilon(1e-6) <= 2.0
    True
    """
    *earlier, last = several(stages, "dphypo.calibrate")
    epsilon, delta = _validate.positive(epsilon=epsilon), _validate.within(0.0, 1.0, delta=delta)
    with keeping(journal, name) as keep, _progress.solving(show=progress):
        if share is not None:
            shares = [share] if isinstance(share, (int, float)) else list(share)
            if len(shares) != len(earlier):
                remedy = f"give one share for each of the {len(earlier)} stages but the last"
                raise _validate.fail("share", share, remedy)
            pairs = zip(earlier, [_validate.within(0.0, 1.0, share=one) for one in shares], strict=True)
            earlier = [_alone(stage, space, one, epsilon, delta, keep) for stage, one in pairs]
        cheaper = "cheaper earlier stages (more noise, fewer runs, a smaller share), fewer runs last, or noisier scores"
        before = tuple(term for stage in earlier for term in stage.terms(space, last=False))
        if (spent := Composition(before).epsilon(delta)) > epsilon:
            raise UnreachableError(
                f"epsilon = {epsilon:g} at delta = {delta:g} cannot be reached: the earlier stages alone cost "
                f"{spent:.4g}. Remedy: {cheaper}; or allow a larger epsilon"
            )
        found = solve_noise(
            lambda noise: Composition((*before, *_with(last, noise).terms(space, last=True))),
            epsilon=epsilon,
            delta=delta,
            keep=keep,
            remedy=cheaper,
        )
        return [*earlier, _with(last, found.value)]


def _alone(stage: Stage, space: Space, share: float, epsilon: float, delta: float, keep: Keep | None) -> Stage:
    """An earlier stage with the noise at which it costs its share of ε by itself."""
    larger = f"a larger share (an earlier stage may cost share · epsilon = {share:g} · {epsilon:g} here)"
    advice = ["fewer runs (a smaller mean of T)", "sample less or take fewer steps", larger]
    if stage.search_policy.band.log_ratio > 0:
        advice.insert(1, "a narrower band")
    if stage.mechanism.score_event is not None:
        advice.insert(1, "more noise on the score")
    found = solve_noise(
        lambda noise: _with(stage, noise).account(space),
        epsilon=share * epsilon,
        delta=delta,
        keep=keep,
        remedy=", ".join(advice),
    )
    return _with(stage, found.value)


def _with(stage: Stage, noise: float) -> Stage:
    """The stage with noise, which is rounded: a resumed search, declared anew elsewhere, finds the same numbers."""
    return replace(stage, mechanism=capabilities.with_noise(stage.mechanism, noise))
