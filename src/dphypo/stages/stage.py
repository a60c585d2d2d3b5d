"""One stage of a search in stages: all that is public about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dphypo import _validate
from dphypo.accounting import Guarantee, account
from dphypo.band import Band, Greedy, Rule
from dphypo.journal import Trial
from dphypo.laws import Law
from dphypo.mechanisms import Mechanism, over_space
from dphypo.samplers import Sampler
from dphypo.space import Space
from dphypo.stages.prior_around import PriorAround, PriorRule, describe
from dphypo.study import next_params


@dataclass(frozen=True)
class Stage:
    """One search of :class:`dphypo.Stages`.

    Args:
        mechanism: what one run is: the final mechanism, or a cheaper one (``mechanism.at(epochs=1)``).
        runs: the law of T of this stage.
        band, sampler, rule, candidates, grid: as for :class:`dphypo.Study`. The band is relative to the stage's prior.
        prior: how this stage's release shapes the prior of the next: a :class:`dphypo.PriorAround` (the default), or a
            function of the release and the original space that returns a space. The last stage has none.
        release_score: whether the score is published with the hyperparameters; the guarantee covers both. Without, the
            rule for the prior does not see it either.
    """

    mechanism: Mechanism
    runs: Law
    band: Band = Band(1, 1)  # noqa: RUF009 - a frozen value
    sampler: Sampler | None = None
    rule: Rule = Greedy()  # noqa: RUF009
    prior: PriorRule | None = None
    release_score: bool = False
    candidates: int = 8192
    grid: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, Mechanism):
            raise _validate.fail("mechanism", self.mechanism, "declare the function with @dphypo.mechanism(event=...)")
        if self.sampler is not None and not isinstance(self.sampler, Sampler):
            raise _validate.fail("sampler", self.sampler, "give an object with weights(candidates, history)")
        given: object = self.prior
        if given is not None and not callable(given):
            raise _validate.fail("prior", given, "give a PriorAround, or a function of the release and the space")

    @property
    def next_prior(self) -> PriorRule:
        """The rule for the next prior."""
        return PriorAround() if self.prior is None else self.prior

    def account(self, space: Space) -> Guarantee:
        """The guarantee of this stage alone, over the whole of the original space, whatever its prior will be."""
        return account(over_space.events(self.mechanism, space), self.runs, self.band, relation=self.mechanism.relation)

    def check(self, space: Space, *, last: bool) -> None:
        """Refuse now what would otherwise fail after an earlier stage was paid for."""
        next_params.make(space, self.band, self.sampler, self.rule, self.candidates, self.grid)
        if last and (self.prior is not None or self.release_score):
            raise ValueError("the last stage has a prior= or release_score=: they say what an earlier stage hands on")
        if isinstance(self.next_prior, PriorAround):
            self.next_prior.check(space)

    def describe(self, *, last: bool) -> dict[str, Any]:
        """What this stage hands on, as JSON."""
        if last:
            return {"releases": ["params", "model", "score"]}
        published = ["params", "score"] if self.release_score else ["params"]
        return {"releases": published, "next prior": describe(self.next_prior)}


def several(stages: object, alone: str) -> Sequence[Stage]:
    """Two stages or more; ``alone`` is what does for one search."""
    if isinstance(stages, Sequence) and len(stages) > 1 and all(isinstance(stage, Stage) for stage in stages):
        return stages
    raise _validate.fail(
        "stages", stages, f"give a list of two or more dphypo.Stage(mechanism, runs); for a single search use {alone}"
    )


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
