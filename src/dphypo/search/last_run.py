"""The last run of a plan: one full run at a λ that is a public function of what was published before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dphypo import _validate, errors
from dphypo.accounting import Term
from dphypo.entropy import Entropy
from dphypo.journal import Journal, Record
from dphypo.mechanisms import Mechanism, capabilities
from dphypo.search.lost import Lost
from dphypo.search.part import Released, Running, Setting
from dphypo.search.pick import Pick, PosteriorMean, checked, middle
from dphypo.search.published_runs import PublishedRules, PublishedRuns, described
from dphypo.search.release import Ending, Release
from dphypo.search.table import Row, Surveyed, done
from dphypo.search.terms import Within, terms_of
from dphypo.space import Space


@dataclass(frozen=True)
class LastRun:
    """One run, at the λ that the latest published result says; its model is the release. The last part of a plan.

    **Guarantee.** λ is a function of what was published, so the run is one more term of the composition.

    Args:
        mechanism: what the run is: usually a full one.
        pick: λ as a public function of the table of the latest survey that has a score; by default where the posterior
            mean of a Gaussian process is best. The best noisy score would often be a lucky one.
        fallback: λ if nothing published has a score; by default the middle of the prior.
        both_sides: whether the mechanism trains on the records that score in the survey, too. It then counts for both.
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
    >>> plan = dphypo.Stages(
    ...     dphypo.Space({"lr": loguniform(1e-3, 1)}),
    ...     [dphypo.Survey(training(40.0), 10), LastRun(training(4.0))], delta=1e-6, journal=None)
    >>> release = plan.run(progress=False)
    >>> 0.05 < release.model["lr"] < 0.2, release.score, len(release.survey.rows)
    (True, None, 10)
    """

    mechanism: Mechanism
    pick: Pick | None = None
    fallback: Mapping[str, Any] | None = None
    both_sides: bool = False
    score: bool = False
    within: Within | None = None

    def __post_init__(self) -> None:
        capabilities.check_is_mechanism(self.mechanism)
        given: object = self.pick
        if given is not None and not callable(given):
            raise _validate.fail("pick", given, "give a function of the space and the published rows")

    def __str__(self) -> str:
        return f"one run of {self.mechanism!r}"

    def declare(self, space: Space, *, last: bool) -> tuple[Term, ...]:
        """One run, and its score where that is released and looks at private records."""
        if not last:
            raise ValueError("a LastRun is followed by another part: put it at the end of the list")
        if self.fallback is not None:
            checked(space, self.fallback)
        return terms_of(self.mechanism, space, 1, both_sides=self.both_sides, scored=self.score, within=self.within)

    def describe(self, terms: tuple[Term, ...]) -> dict[str, Any]:
        """What determines the guarantee."""
        return described(terms)

    def hands_on(self, *, last: bool) -> dict[str, Any]:
        """What the run publishes."""
        stated: dict[str, Any] = {
            "part": "last run",
            "releases": ["params", "model", *(["score"] if self.score else [])],
        }
        rule: Any = getattr(self.pick, "to_dict", None)
        return stated if rule is None else {**stated, "pick": rule()}

    def conditions(self) -> list[str]:
        """What the guarantee assumes of the runs, besides their event."""
        return [Lost.read(None, self.mechanism).condition]

    def compute(self) -> str:
        """One run."""
        return "Compute: 1 run."

    def read(self, journal: Journal) -> Released | None:
        """The λ of the run, if it is over."""
        record = journal.record
        if record.ending is None:
            return None
        if record.shredded:
            raise errors.Shredded
        return Released(record.trials[0].params, None, Ending[record.ending])

    def listed(self, published: Released) -> dict[str, Any]:
        """The λ of the run."""
        return {"params": dict(published.params or {})}

    def next_prior(self, published: Released, space: Space) -> Space | None:
        """Nothing follows."""
        return None

    def open(self, setting: Setting) -> Running:
        """The run."""
        rules = PublishedRules(setting, 1, partial(self._choose, setting), arriving=False, within=self.within)
        return PublishedRuns(self.mechanism, rules, setting, self._release, survey=False)

    def _release(self, made: Release, record: Record) -> Release:
        """The score stays on the curator's side unless it was declared."""
        return replace(made, params=dict(record.trials[0].params), score=made.score if self.score else None)

    def _choose(
        self, setting: Setting, rows: Sequence[Row], pending: Sequence[Mapping[str, Any]], entropy: Entropy
    ) -> dict[str, Any]:
        pick = PosteriorMean() if self.pick is None else self.pick
        for value in reversed(setting.published):
            if isinstance(value, Surveyed) and done(value.rows):
                return pick(setting.prior, value.rows, maximize=setting.maximize)
            if isinstance(value, Released) and value.params is not None:
                return dict(value.params)
        return middle(setting.prior) if self.fallback is None else dict(self.fallback)
