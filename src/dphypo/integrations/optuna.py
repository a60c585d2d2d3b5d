"""An Optuna study as the driver of a survey: objective, storage, sampler, pruner and dashboard stay yours.

All trials of a survey are published and paid for, so any of Optuna's machinery may look at them. What is declared is
how many trials there are and what one of them costs, and where scores come from: **a score that looks at private
records has an event of its own** (``score_event``); one on public records is declared so (``scores="public"``). Two
things follow from Optuna's storage. It keeps when every trial began and ended: whoever uses it declares that
**durations do not depend on the data**, and the certificate says so. And it must not hold secrets: seeds are not kept
in it, so that a trial that was killed counts as made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import dp_accounting

from dphypo import _validate, errors
from dphypo.accounting import Certificate, Composition, Term, solve_noise
from dphypo.accounting.composition import account_published
from dphypo.accounting.sides import EVERYONE, Sides, read_sides
from dphypo.integrations.optuna_claims import TrialClaims, keep_in_study
from dphypo.journal import Ledger
from dphypo.journal.ledger import make_reservation
from dphypo.mechanisms.transfer import COSTS
from dphypo.search.interrupts import refuse_in_worker_start
from dphypo.search.progress import solving
from dphypo.search.proposer import PosteriorMean
from dphypo.search.release import Row, SurveyTable
from dphypo.space import Space
from dphypo.space.parameter import check_name

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

Model = TypeVar("Model")
RESERVED = COSTS | {"rate"}
"""Names that an objective may not suggest: the event reads them, and they are declared."""


class RunCost(Protocol):
    """What one run costs, and the same run cut short or with other noise: a ``dphypo.mechanisms.SampledGaussian``."""

    @property
    def event(self) -> dp_accounting.DpEvent: ...
    @property
    def noise_multiplier(self) -> float: ...
    def at(self, *, noise_multiplier: float, fraction: float = 1.0, match: bool = False) -> Self: ...


Run = TypeVar("Run", bound=RunCost)


@dataclass(frozen=True)
class OptunaSurvey(Generic[Run]):
    """A survey that an Optuna study drives, then a last run: the two cost (ε, δ) together.

    **Guarantee.** The whole storage of the study, but for what the objective itself writes there (user attributes,
    artifacts), and the model of the last run are (ε, δ)-DP together, if a trial is at most ``survey.short.event``, the
    last run at most ``survey.full.event``, and durations do not depend on the data.

    Args:
        run: the full run, as its privacy sees it, such as ``dphypo.mechanisms.SampledGaussian.of(...)``; its noise is
            solved for.
        epsilon, delta: what all that is released may cost together.
        durations: "public", which declares that how long runs take does not depend on the data.
        scores: "public", which declares that scores look at public records alone; left out where ``score_event`` is.
        runs: how many trials.
        fraction: the part of the full run's steps that a trial makes, with noise over its square root.
        score_event: the event of one score, if it looks at private records.
        split: the rule by which records that score are set apart from those that train: ``train.split`` of a part of
            ``split_by_hash``, or a :class:`dphypo.Split`. Without one, scores and training compose.
        reports: how many intermediate scores a trial may report, where scores have an event.
        last_runs: how many full runs are paid for: more than one allows for one that is lost.
        relation: which data sets are neighbours.
        keep_in: an Optuna study that stores the solved noise, so that the next start is quick: the one that the
            survey drives, for example. Its cost is recomputed at every start and not trusted.
        progress: show on a terminal that noise is being solved for.
        ledger: a :class:`dphypo.Ledger`, or its file, where the whole cost is reserved before the first trial.

    >>> from dphypo.mechanisms import SampledGaussian
    >>> survey = OptunaSurvey(
    ...     SampledGaussian.of(records=60_000, batch_size=256, epochs=10, noise_multiplier=1.0),
    ...     epsilon=4.25, delta=1e-5, durations="public", scores="public")
    >>> survey.full.steps, round(survey.full.noise_multiplier, 2), survey.short.steps
    (2344, 0.63, 235)
    """

    run: Run
    epsilon: float
    delta: float
    durations: str = field(kw_only=True)
    scores: str | None = field(default=None, kw_only=True)
    runs: int = 20
    fraction: float = 0.1
    score_event: dp_accounting.DpEvent | None = None
    split: Sides | None = field(default=None, kw_only=True)
    reports: int = 0
    last_runs: int = 1
    relation: dp_accounting.NeighboringRelation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    keep_in: Study | None = field(default=None, repr=False, compare=False, kw_only=True)
    progress: bool = field(default=True, repr=False, compare=False, kw_only=True)
    ledger: Ledger | str | Path | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "split", read_sides(self.split))
        if self.durations != "public":
            remedy = (
                'Optuna keeps when trials begin and end: say "public" if that does not depend on the data; if it may, '
                "dphypo.tune(..., survey=dphypo.SurveyPlan(proposer=optuna.samplers...)) keeps no times"
            )
            raise _validate.fail("durations", self.durations, remedy)
        if (self.scores == "public") == (self.score_event is not None) or self.scores not in (None, "public"):
            remedy = (
                'if the objective scores on public records alone, say scores="public"; if it looks at private ones, '
                "give the event of one noisy score as score_event="
            )
            raise _validate.fail("scores", self.scores, remedy)
        _validate.positive(epsilon=self.epsilon)
        _validate.within(0.0, 1.0, delta=self.delta)
        _validate.integer(at_least=1, runs=self.runs)
        _validate.integer(at_least=0, reports=self.reports)
        _validate.integer(at_least=1, last_runs=self.last_runs)
        _validate.within(0.0, 1.0, closed="right", fraction=self.fraction)

    @cached_property
    def full(self) -> Run:
        """The full run, with its noise."""

        def at(noise: float) -> Composition:
            return self._guarantee(self.run.at(noise_multiplier=noise))

        keep = None if self.keep_in is None else partial(keep_in_study, self.keep_in)
        with solving(show=self.progress):
            found = solve_noise(at, epsilon=self.epsilon, delta=self.delta, keep=keep)
        return self.run.at(noise_multiplier=found.value)

    @property
    def short(self) -> Run:
        """What a trial makes: fewer steps, more noise."""
        return self._short(self.full)

    @cached_property
    def guarantee(self) -> Composition:
        """What everything together reveals."""
        found = self._guarantee(self.full)
        found.check_total(self.epsilon, self.delta)
        return found

    def optimize(self, study: Study, objective: Callable[[Trial], float], **options: Any) -> None:
        """``study.optimize(objective)`` for the trials that are left of those declared.

        An exception in the objective is a failed trial, without its message: that may quote a record.

        Args:
            study: a study without trials, or one that this survey has begun.
            objective: as for Optuna; it trains with ``survey.short``.
            options: of ``study.optimize`` but for ``n_trials``, which is declared, and ``catch``. ``timeout`` ends the
                call, and the next one makes the trials that are left: all are paid for in any case.
        """
        if "n_trials" in options:
            raise _validate.fail("n_trials", options["n_trials"], f"{self.runs} trials are declared")
        if options.pop("catch", None):
            raise _validate.fail("catch", "...", "every exception is a failed trial here: leave it out")
        from optuna import TrialPruned

        claims = self._begin(study)
        claims.refuse_late()

        def made(trial: Trial) -> float:
            if not claims.claim_run(trial.number):  # other processes have made the rest
                trial.study.stop()
                raise TrialPruned
            watched: Any = _Watched(trial, None if self.score_event is None else self.reports)
            try:
                return float(objective(watched))
            except (errors.Refusal, TrialPruned):
                raise
            except Exception:
                return math.nan  # a failed trial; the exception's own text would be kept in the storage

        study.optimize(made, n_trials=self.runs - len(claims.trials), **options)

    def table(self, study: Study) -> SurveyTable:
        """All trials of the survey that have ended: what is published."""
        trials = TrialClaims(study, self.runs).trials
        rows = tuple(Row(trial.params, _score(trial)) for trial in trials if trial.state.is_finished())
        return SurveyTable(rows, maximize=study.direction.name == "MAXIMIZE")

    def params(self, study: Study, fallback: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """λ of the last run: where the posterior mean of a Gaussian process on all trials is best.

        It is over the parameters that every trial with a score has; ``fallback`` is taken if there is none.
        """
        scored = [trial for trial in TrialClaims(study, self.runs).trials if _score(trial) is not None]
        if not scored:
            if fallback is None:
                raise _validate.fail("fallback", None, "every trial failed: give the parameters of the last run")
            return dict(fallback)
        common = set.intersection(*(set(trial.params) for trial in scored))
        if not common:
            return {}
        space = Space.from_optuna({name: kind for name, kind in scored[0].distributions.items() if name in common})
        rows = [Row({name: trial.params[name] for name in space.names}, _score(trial)) for trial in scored]
        return PosteriorMean()(space, rows, maximize=study.direction.name == "MAXIMIZE")

    def last_run(
        self, study: Study, train: Callable[..., Model], fallback: Mapping[str, Any] | None = None
    ) -> tuple[Model, dict[str, Any], Certificate]:
        """Train once with ``train(**params)`` at the λ that the trials recommend: model, λ and certificate.

        ``train`` makes the steps of ``survey.full`` with its noise. The run counts from when it begins: of all
        processes that share the study's storage, ``last_runs`` are let through, and the others are refused. It closes
        the survey: no trial is made any more.
        """
        claims = self._begin(study)
        self.params(study, fallback)  # an error now closes nothing
        claims.close()
        params = self.params(study, fallback)
        claims.claim_last_run(self.last_runs)
        return train(**params), params, self.certificate(study)

    def certificate(self, study: Study) -> Certificate:
        """The guarantee of the study and of the last run, with the hash of the published table, which is complete."""
        claims = TrialClaims(study, self.runs)
        claims.refuse_foreign()
        if not claims.closed:
            raise _validate.fail("study", study.study_name, "its table is not complete: make the last run first")
        releases = [{"part": "survey", "durations": "public", "by": "optuna"}, {"part": "last run"}]
        return self.guarantee.certificate(self.delta, releases=releases, released=[self.table(study).fingerprint()])

    def _begin(self, study: Study) -> TrialClaims:
        """Claim a new study; refuse one that was not begun so."""
        refuse_in_worker_start()
        claims, guarantee, entry = TrialClaims(study, self.runs), self.guarantee, None
        if self.ledger is not None:
            entry = make_reservation(self.ledger, guarantee, study.study_name, private=True, delta=self.delta)
        claims.begin(self._declared, entry)
        return claims

    @cached_property
    def _declared(self) -> dict[str, Any]:
        events = {"short": self.short.event, "full": self.full.event, "score": self.score_event, "split": self.split}
        counts = {"runs": self.runs, "reports": self.reports, "last runs": self.last_runs, "delta": self.delta}
        return {name: repr(value) for name, value in events.items()} | counts

    def _short(self, full: Run) -> Run:
        return full.at(noise_multiplier=full.noise_multiplier, fraction=self.fraction, match=True)

    def _guarantee(self, full: Run) -> Composition:
        account = partial(account_published, relation=self.relation)
        training, scoring = (EVERYONE, EVERYONE) if self.split is None else (self.split.training, self.split.scoring)
        terms = [Term(account(self._short(full).event, self.runs), training)]
        if self.score_event is not None:
            scores = account(self.score_event, self.runs * (1 + self.reports))
            terms.append(Term(scores, scoring, scores=True))
        return Composition((*terms, Term(account(full.event, self.last_runs), training)))


class _Watched:
    """A trial whose parameters and reports are held to what was declared."""

    def __init__(self, trial: Trial, reports: int | None) -> None:
        self._trial, self._left = trial, reports

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._trial, attribute)

        def suggest(name: str, *arguments: Any, **options: Any) -> Any:
            if name in RESERVED:
                raise errors.Refusal(_declared_parameter(name))
            try:
                check_name(name)
            except ValueError as error:
                unfit = "The objective suggests a parameter that the published table cannot show."
                raise errors.Refusal(f"{unfit} {error}") from None
            return found(name, *arguments, **options)

        return suggest if attribute.startswith("suggest_") else found

    def report(self, value: float, step: int) -> None:
        """An intermediate score, if it was declared or costs nothing."""
        if self._left is not None:
            if self._left == 0:
                raise errors.Refusal(
                    "The objective reports more intermediate scores than were declared. Each score on private records "
                    "is an event of its own: declare them with OptunaSurvey(reports=...)."
                )
            self._left -= 1
        self._trial.report(value, step)


def _declared_parameter(name: str) -> str:
    return (
        f"The objective suggests {name!r}, which the privacy event reads. The event is declared before the first trial "
        "and bounds every one of them, so the noise, batch size and steps are those of survey.short: use them. To "
        "tune them, use dphypo.tune, which solves for the noise of each setting."
    )


def _score(trial: FrozenTrial) -> float | None:
    return trial.value if trial.state.name == "COMPLETE" else None
