"""Published runs: a survey, whose results are all published, and the last run of a search.

The runs, their number and their scores are public. Seeds are not, nor why a run failed, nor how long runs take: λ of a
run may depend on results, but not on when they arrived. With w runs at a time, λ of run j is proposed from the results
of runs 0 to j − w, whichever ended first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

from dphypo import _validate
from dphypo.accounting import Term
from dphypo.accounting.composition import EVERYONE, Sides, account_published
from dphypo.entropy import Entropy
from dphypo.executors.executor import GroupSizes
from dphypo.journal.journal import Record
from dphypo.mechanisms import Mechanism, over_space
from dphypo.mechanisms.mechanism import check_is_mechanism
from dphypo.samplers import History
from dphypo.search import progress
from dphypo.search.declaration import Display, FitCount, Part, PartSetting, Past, PriorAround, Runs
from dphypo.search.proposer import (
    Pick,
    Within,
    middle,
    moved_into,
    nearest,
    point_of,
    posterior_mean,
    read_proposer,
)
from dphypo.search.release import Ending, OnRun, Release, SurveyTable, done, table_of
from dphypo.space import Space

RUNS, FRACTION = 20, 0.1
"""How many short runs a survey has by default, and the fraction of a full run's steps that each takes."""


_LARGEST_GROUP = 64


@dataclass(frozen=True)
class DeclaredRuns(Runs):
    """What decides published runs, those of a survey or the last one."""

    runs: int
    space: Space  # the prior: what is proposed must lie in it
    propose: Callable[[History, Sequence[Mapping[str, Any]], Entropy], dict[str, Any]]  # the λ are of pending runs
    lag: int | None = None
    arriving: bool = False  # whether results are used as they arrive
    within: Within | None = None
    table: bool = True  # whether rows are shown as runs end

    @classmethod
    def once(
        cls, prior: Space, params: Callable[[], dict[str, Any]], *, within: Within | None = None, table: bool = False
    ) -> DeclaredRuns:
        """One run, at λ that was published or follows from public values."""
        return cls(1, prior, lambda *_: params(), 0, within=within, table=table)

    @property
    def single(self) -> bool:
        return self.runs == 1

    def draw_total(self, entropy: Entropy) -> int:
        return self.runs

    def possible(self, total: int) -> bool:
        return total == self.runs

    def groups(self, workers: int) -> GroupSizes | None:
        """Half of the runs at once, then a fifth at a time (``benchmarks/groups.py`` measures what that costs)."""
        if self.runs < 2 or self.lag is not None:
            return None
        return GroupSizes(min(self.runs // 2, _LARGEST_GROUP), min(max(self.runs // 5, 1), _LARGEST_GROUP))

    def usable(self, number: int, lag: int, groups: GroupSizes | None) -> int | None:
        if self.arriving:
            return None
        return max(number - lag, 0) if groups is None else groups.start(number)

    def draw(self, past: Past, record: Record, usable: int | None, entropy: Entropy) -> dict[str, Any]:
        proposed = self.propose(past.history(record, usable), past.pending(record, usable), entropy)
        point = point_of(self.space, proposed)
        return point if self.within is None else nearest(self.space, point, self.within, entropy)

    def display(self, record: Callable[[], Record], *, show: bool, on_run: OnRun | None) -> Display:
        told, show = on_run if self.table else None, show and self.table
        return progress.rows(record, self.runs, self.space.to_dict(), told, show=show, public=self.arriving)


def terms_of_runs(
    mechanism: Mechanism, space: Space, count: int, sides: Sides | None, within: Within | None = None
) -> tuple[Term, ...]:
    """``count`` published runs of a mechanism, each at any λ of the space for which ``within`` is true.

    ``sides`` are those of the records that train and those that score; without them a run may use any record.
    """
    trains, scores = over_space.by_side(mechanism, space, within)
    if not trains:
        raise _validate.fail("within", within, "it excludes every point of the space")
    side = EVERYONE if sides is None else sides.training
    terms = [Term(account_published(trains, count, relation=mechanism.relation), side)]
    if scores and sides is not None:
        terms.append(Term(account_published(scores, count, relation=mechanism.relation), sides.scoring, scores=True))
    return tuple(terms)


@dataclass(frozen=True)
class Survey(Part):
    """k runs whose results are all published, paid for by composition: a part of :class:`dphypo.Stages`.

    **Guarantee.** Every run may be at any λ of the space, chosen from all that was published before, by any proposer.
    The k events, each bounded by its supremum over the space, compose. Nothing is secret but the data, the seeds, why a
    run failed and how long runs take; so progress, counts, plots and dashboards are allowed.

    Args:
        mechanism: what one run is: usually a short one, ``mechanism.at(fraction=0.1, match=True)``.
        runs: how many. All are paid for, including those that fail. If the first five fail, the survey stops.
        proposer: what proposes λ: one of ``dphypo.samplers``, a sampler of Optuna, or a
            :class:`dphypo.search.proposer.Proposer`; by default a Gaussian process.
        pick: which λ the survey recommends to the parts after it; by default where a posterior mean is best.
        prior: a :class:`dphypo.PriorAround` puts the prior of the next part around that λ; by default the prior is
            unchanged.
        models: whether the model of every run is published: ``release.survey.model(0)`` is that of the first. They are
            paid for, and the journal keeps them.
        durations: "public" declares that how long runs take does not depend on the data. Runs executed side by
            side then use results as they arrive; otherwise run j uses those of the runs up to j − workers.
        within: a public function of λ; λ for which it is false are neither run nor accounted for. If one is proposed,
            the nearest allowed λ takes its place.
        lag: how many of the latest runs λ of the next one does not depend on, so that lag + 1 runs can be executed
            at a time. By default one less than there are workers, and 0 with ``ask`` and ``tell``.
        counts: a noisy count of the records that fit, which is paid for with the survey and taken before its first run;
            the search is refused where few fit. :func:`dphypo.tune` buys it.

    >>> import dp_accounting as dp
    >>> import dphypo
    >>> from scipy.stats import loguniform
    >>> @dphypo.mechanism(event=dp.GaussianDpEvent(40.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    ... def train(params, *, seed):
    ...     return {"lr": params["lr"]}, -abs(params["lr"] - 0.1)  # a stand-in for a training run
    >>> space, parts = dphypo.Space({"lr": loguniform(1e-3, 1)}), [Survey(train, 10), dphypo.LastRun(train)]
    >>> search = dphypo.Stages(space, parts, delta=1e-6, journal=None)
    >>> round(search.guarantee.epsilon(1e-6), 2)
    0.32
    >>> release = search.run(progress=False)
    >>> len(release.survey.rows), 0.05 < release.model["lr"] < 0.2, release.score
    (10, True, None)
    """

    mechanism: Mechanism
    runs: int
    proposer: Any = None
    pick: Pick | None = None
    prior: PriorAround | None = None
    models: bool = False
    durations: str = "secret"
    within: Within | None = None
    lag: int | None = None
    counts: FitCount | None = None

    table: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_is_mechanism(self.mechanism)
        _validate.integer(at_least=1, runs=self.runs)
        read_proposer(self.proposer)
        _validate.flag(models=self.models)
        if self.lag is not None:
            _validate.integer(at_least=0, lag=self.lag)
        if not isinstance(self.durations, str) or self.durations not in ("secret", "public"):
            raise _validate.fail("durations", self.durations, "give 'secret' or 'public'")
        if self.prior is not None and not isinstance(self.prior, PriorAround):
            raise _validate.fail("prior", self.prior, "give a dphypo.PriorAround, or None to leave the prior as it is")
        for name in ("pick", "within"):
            if (given := getattr(self, name)) is not None:
                _validate.function(**{name: given})

    def __str__(self) -> str:
        return f"a survey of {self.runs} runs of {self.mechanism!r}"

    def terms(self, space: Space, *, last: bool, alone: bool = False) -> tuple[Term, ...]:
        if last and self.prior is not None:
            raise ValueError("the last part has a prior=: it sets the prior of a part that follows")
        if self.prior is not None:
            self.prior.check(space)
        return terms_of_runs(self.mechanism, space, self.runs, self.mechanism.split, self.within)

    def publishes(self) -> dict[str, Any]:
        metrics, transfer = self.mechanism.metrics, self.mechanism.transfer
        models = ("model",) if self.models else ()
        return {
            "part": "survey",
            "releases": ["params", "score", "status", *metrics, *models],
            "score on": self.mechanism.scored_on,
            **({"durations": "public"} if self.durations == "public" else {}),
            **({} if transfer is None else {"transfer": transfer}),
            **({} if self.prior is None else {"next prior": self.prior.to_dict()}),
        }

    def compute(self) -> str:
        return f"Compute: {self.runs} {'run' if self.runs == 1 else 'runs'}, all published."

    read = staticmethod(table_of)

    def state(self, published: SurveyTable) -> dict[str, Any]:
        return published.fingerprint()

    def next_prior(self, published: SurveyTable, space: Space) -> Space | None:
        """The next prior, from the recommended λ; None if none was asked for or no run has a score."""
        if self.prior is None or not done(published.rows):
            return None
        return self.prior(_recommended(self.pick, published, space), space)

    def begin(self, setting: PartSetting) -> DeclaredRuns:
        propose = partial(read_proposer(self.proposer, self.runs).propose, setting.prior)
        return DeclaredRuns(self.runs, setting.prior, propose, self.lag, self.durations == "public", self.within)

    def release(self, best: Release, record: Record, setting: PartSetting) -> Release:
        """Of a search that ends with a survey: no model, but the table and what it recommends."""
        table = table_of(record)
        params = _recommended(self.pick, table, setting.prior) if done(table.rows) else None
        ending = Ending.ALL_FAILED if params is None else Ending.SURVEYED
        return Release(params, None, None, best.certificate, ending, best.saver, (table,))


@dataclass(frozen=True)
class LastRun(Part):
    """The last part of a search: one run, at the λ that the latest result recommends; its model is the release.

    **Guarantee.** λ is a function of what was published, so the run is one more term of the composition. A mechanism
    that states no split may train on any record, including those that score in the survey, so it counts for every side.

    Args:
        mechanism: what the run is: usually a full one.
        pick: λ as a public function of the table of the latest survey that has a score; by default where the posterior
            mean of a Gaussian process is best. The best noisy score would often be a lucky one. If nothing published
            has a score, λ is the middle of the prior.
        score: whether the score of this run is released. A score on private records is then paid for, and the
            mechanism must state the ``split`` that sets them apart: no score is taken on records that trained the
            model. If False, a mechanism that can leave out its private score (``without_score``, as in ``DPSGD``) does
            so; any other computes the score and pays for it, since a score decides whether a run fails.
        within, counts: as for :class:`dphypo.Survey`; the count is taken here if nothing comes before this run.
        searched: whether λ was searched. If not, the certificate says that it follows from public values, and from the
            scale of the inputs if that was bought.
    """

    mechanism: Mechanism
    pick: Pick | None = None
    score: bool = False
    within: Within | None = None
    counts: FitCount | None = None
    searched: bool = True

    def __post_init__(self) -> None:
        check_is_mechanism(self.mechanism)
        if self.pick is not None:
            _validate.function(pick=self.pick)
        if _validate.flag(score=self.score) and self.mechanism.score_event is not None and self.mechanism.split is None:
            remedy = "the mechanism states no split, so the model may have trained on the records that score it: state "
            remedy += "split=dphypo.Split(...) with the rule that sets them apart, or leave score out"
            raise _validate.fail("score", self.score, remedy)

    def __str__(self) -> str:
        return f"one run of {self.mechanism!r}"

    @cached_property
    def executed(self) -> Mechanism:
        """Without ``score``, the same training without its private score, if the mechanism can leave it out."""
        return self.mechanism if self.score else self.mechanism.without_score()

    def terms(self, space: Space, *, last: bool, alone: bool = False) -> tuple[Term, ...]:
        if not last:
            raise ValueError("a LastRun is followed by another part: put it at the end of the list")
        if self.executed is not self.mechanism and self.executed.score_event is not None:
            raise ValueError("without_score() of the mechanism returns one that still has a score_event: leave it out")
        return terms_of_runs(self.executed, space, 1, self.mechanism.split, self.within)

    def publishes(self) -> dict[str, Any]:
        scored = {"score on": self.mechanism.scored_on} if self.score else {}
        return {
            "part": "last run",
            "releases": ["params", "model", *(["score"] if self.score else [])],
            **scored,
            **({} if self.searched else {"search": "none"}),
        }

    def compute(self) -> str:
        return "Compute: 1 run."

    def begin(self, setting: PartSetting) -> DeclaredRuns:
        def chosen() -> dict[str, Any]:
            return moved_into(setting.prior, setting.declared, self._choose(setting))

        return DeclaredRuns.once(setting.prior, chosen, within=self.within)

    def release(self, best: Release, record: Record, setting: PartSetting) -> Release:
        return replace(best, params=dict(record.trials[0].params), score=best.score if self.score else None)

    def _choose(self, setting: PartSetting) -> dict[str, Any]:
        for value in reversed(setting.published):
            if isinstance(value, SurveyTable) and done(value.rows):
                return _recommended(self.pick, value, setting.declared)
        return middle(setting.prior)


def _recommended(pick: Pick | None, table: SurveyTable, space: Space) -> dict[str, Any]:
    """The λ that a table recommends; by default where the posterior mean of a Gaussian process is best."""
    return (posterior_mean if pick is None else pick)(space, table.rows, maximize=table.maximize)


@dataclass(frozen=True)
class SurveyPlan:
    """The settings of a survey and of the run after it; settings left out are planned.

    Args:
        runs: how many short runs; with 0 nothing is searched, and one run uses the λ that follows from public values.
        fraction: the fraction of a full run's steps that a short run has; its noise is that of the full run divided by
            the square root of this fraction.
        proposer, models, durations: of the survey, as for :class:`dphypo.Survey`.
        pick, score: of the last run, as for :class:`dphypo.LastRun`.
        short: returns the short run for a full one, for a mechanism without ``at(fraction=..., match=True)``.
        last: returns the last run for the full one, if it is to differ. A mechanism that set records apart itself
            (``DPSGD(score="accuracy")``) trains it on all records if that is better and ``score`` is not asked for;
            ``last=lambda full: full`` trains it only on the records that the survey trains on. With a split of your
            own, give ``last=lambda full: full.at(data=..., records=...)``: on records that are not one side of the
            split it counts for both.

    >>> SurveyPlan(runs=10, fraction=0.05).compute
    1.5
    """

    runs: int | None = None
    fraction: float | None = None
    proposer: Any = None
    pick: Pick | None = None
    short: Callable[[Mechanism], Mechanism] | None = None
    last: Callable[[Mechanism], Mechanism] | None = None
    score: bool = False
    models: bool = False
    durations: str = "secret"

    def __post_init__(self) -> None:
        if self.runs is not None:
            _validate.integer(at_least=0, runs=self.runs)
        if self.fraction is not None:
            _validate.within(0.0, 1.0, closed="right", fraction=self.fraction)
        read_proposer(self.proposer)
        _validate.flag(score=self.score)

    @property
    def compute(self) -> float:
        """Compute of the survey and the last run, in full runs."""
        return 1 + (RUNS if self.runs is None else self.runs) * (self.fraction or FRACTION)

    def parts(
        self, full: Mechanism, *, within: Within | None = None, counts: FitCount | None = None
    ) -> tuple[Survey, LastRun] | tuple[LastRun]:
        """The survey and the last run around a full run; ``counts`` come before the first run."""
        if self.runs == 0:
            alone = full if self.score else full.without_score()
            return (LastRun(alone, self.pick, self.score, within, counts, searched=False),)
        short = full.shorten(self.fraction or FRACTION) if self.short is None else self.short(full)
        last = full if self.last is None else self.last(full)
        same = full.split is not None and last.split == full.split
        if same and last.data is not full.data:
            remedy = "it states the survey's split, and trains on other records than the survey: if those that score "
            remedy += "may be among them, state none (split=None), and it counts for both sides"
            raise _validate.fail("last", last, remedy)
        declared: dict[str, Any] = {"models": self.models, "durations": self.durations, "within": within}
        survey = Survey(short, self.runs or RUNS, self.proposer, counts=counts, **declared)
        return survey, LastRun(last, self.pick, self.score, within)
