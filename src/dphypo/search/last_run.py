"""The last run of a search: one full run at a λ that is a public function of what was published before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

from dphypo import _validate
from dphypo.accounting import Term
from dphypo.journal.records import Record
from dphypo.mechanisms import Mechanism, capabilities
from dphypo.search.lost import Lost
from dphypo.search.optimiser import Pick, PosteriorMean, middle, point_of
from dphypo.search.part import Decider, Released, Setting, Within
from dphypo.search.release import Ending, Release
from dphypo.search.survey import DeclaredRuns, describe_runs, terms_of_runs
from dphypo.search.table import Surveyed, done
from dphypo.space import Space


@runtime_checkable
class Stated(Protocol):
    """A function that can say what it is, in values that a certificate can hold."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class LastRun:
    """One run, at the λ that the latest published result says; its model is the release. The last part of a search.

    **Guarantee.** λ is a function of what was published, so the run is one more term of the composition. A mechanism
    that states no split may train on any record, also on those that score in the survey: it counts for every side.

    Args:
        mechanism: what the run is: usually a full one.
        pick: λ as a public function of the table of the latest survey that has a score; by default where the posterior
            mean of a Gaussian process is best. The best noisy score would often be a lucky one.
        fallback: λ if nothing published has a score; by default the middle of the prior.
        score: whether the score of this run is released. A score on private records is then paid for. Without, report
            the model's accuracy on records that were used for nothing else.
        within: which λ may be run, as for :class:`dphypo.Survey`.

    >>> import dp_accounting as dp
    >>> import dphypo
    >>> from scipy.stats import loguniform
    >>> def training(noise):
    ...     @dphypo.mechanism(event=dp.GaussianDpEvent(noise), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    ...     def train(params, *, seed):
    ...         return {"lr": params["lr"]}, -abs(params["lr"] - 0.1)  # a stand-in for training on private records
    ...     return train
    >>> search = dphypo.Stages(
    ...     dphypo.Space({"lr": loguniform(1e-3, 1)}),
    ...     [dphypo.Survey(training(40.0), 10), LastRun(training(4.0))], delta=1e-6, journal=None)
    >>> release = search.run(progress=False)
    >>> 0.05 < release.model["lr"] < 0.2, release.score, len(release.survey.rows)
    (True, None, 10)
    """

    mechanism: Mechanism
    pick: Pick | None = None
    fallback: Mapping[str, Any] | None = None
    score: bool = False
    within: Within | None = None

    models: ClassVar[None] = None
    table: ClassVar[bool] = False

    def __post_init__(self) -> None:
        capabilities.check_is_mechanism(self.mechanism)
        given: object = self.pick
        if given is not None and not callable(given):
            raise _validate.fail("pick", given, "give a function of the space and the published rows")

    def __str__(self) -> str:
        return f"one run of {self.mechanism!r}"

    @property
    def lost_runs(self) -> Lost:
        """What becomes of the run if its process dies."""
        return Lost.read(None, self.mechanism)

    def terms(self, space: Space, *, last: bool, alone: bool = False) -> tuple[Term, ...]:
        """One run, and its score where that is released and looks at private records."""
        if not last:
            raise ValueError("a LastRun is followed by another part: put it at the end of the list")
        if self.fallback is not None:
            point_of(space, self.fallback)
        return terms_of_runs(self.mechanism, space, 1, scored=self.score, within=self.within)

    def describe(self, terms: tuple[Term, ...]) -> dict[str, Any]:
        """What determines the guarantee."""
        return describe_runs(terms)

    def search_rule(self) -> None:
        """The guarantee holds for any way to pick λ."""

    def hands_on(self, *, last: bool) -> dict[str, Any]:
        """What the run publishes."""
        stated: dict[str, Any] = {"part": "last run", "releases": ["params", "model"]}
        if self.score:
            stated["releases"].append("score")
        return {**stated, "pick": self.pick.to_dict()} if isinstance(self.pick, Stated) else stated

    def compute(self) -> str:
        """One run."""
        return "Compute: 1 run."

    def read(self, record: Record) -> Released:
        """The λ of the run."""
        assert record.ending is not None
        return Released(record.trials[0].params, None, Ending[record.ending])

    def state(self, published: Released) -> dict[str, Any]:
        """The λ of the run, as JSON."""
        return {"params": json.loads(json.dumps(dict(published.params or {})))}

    def next_prior(self, published: Released, space: Space) -> None:
        """Nothing follows."""

    def begin(self, setting: Setting) -> Decider:
        """One run, at the λ that was picked."""
        prior = setting.prior
        return DeclaredRuns(1, prior, prior, lambda *_: self._choose(setting), 0, within=self.within, table=False)

    def release(self, best: Release, record: Record, setting: Setting) -> Release:
        """The score stays on the curator's side unless it was declared."""
        return replace(best, params=dict(record.trials[0].params), score=best.score if self.score else None)

    def _choose(self, setting: Setting) -> dict[str, Any]:
        pick = PosteriorMean() if self.pick is None else self.pick
        for value in reversed(setting.published):
            if isinstance(value, Surveyed) and done(value.rows):
                return pick(setting.prior, value.rows, maximize=setting.maximize)
            if isinstance(value, Released) and value.params is not None:
                return dict(value.params)
        return middle(setting.prior) if self.fallback is None else dict(self.fallback)
