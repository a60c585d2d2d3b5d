"""An Optuna study that drives a survey: objective, storage, sampler, pruner and dashboard stay yours.

All trials of a survey are published and paid for, so Optuna's samplers and pruners may read them. You declare how many
trials there are, what one costs, and where its numbers come from. **Every number that an objective gives to Optuna**
(its value, reports, constraints, user attributes) can steer a sampler. It looks at public records alone
(``scores="public"``), or has an event (``score_event``) and is counted.

Two things follow from Optuna's storage. It keeps the times at which trials begin and end, so you declare that
**durations do not depend on the data**, and the certificate says so. It must not hold secrets, so seeds are not kept in
it and a trial that was killed counts as executed.

**Claims.** Processes on several machines may share a storage, and Optuna offers no lock. But it creates trials one
after the other, each whole, and numbers them in that order. So a claim is a trial of a second study, named after the
one that is driven: "tuned (dphypo)". The first claim of a kind wins:

* ``begin``: the declaration, and the key in the ledger. The first one holds.
* ``run``: a trial is about to be executed. As many as were declared count, if nobody has closed before.
* ``close``: no further trial is executed.
* ``last``: a last run is about to be executed. As many as were declared count.

A study that was copied (``optuna.copy_study``) has no claims, so it cannot continue. One that was deleted and created
again has claims of other trials and is refused: the study has a mark that its ``begin`` names. Of two copies of a whole
database, or where the claims were deleted too, the ledger lets one continue.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import dp_accounting

from dphypo import _validate, errors
from dphypo.accounting import Certificate, Composition, Term, solve_noise
from dphypo.accounting.certificate import UNITS
from dphypo.accounting.composition import EVERYONE, Sides, account_published, read_sides
from dphypo.entropy import SYSTEM, below
from dphypo.journal import Ledger
from dphypo.journal.ledger import Reservation
from dphypo.mechanisms import Plain, SampledGaussian, Saver
from dphypo.mechanisms.over_space import refuse_rows_of_persons
from dphypo.mechanisms.sampled_gaussian import COSTS, OwnRun
from dphypo.search import Release, load_release
from dphypo.search.progress import solving
from dphypo.search.proposer import posterior_mean
from dphypo.search.release import Row, SurveyTable
from dphypo.search.runner import refuse_in_worker_start
from dphypo.search.tune import FEWEST_STEPS
from dphypo.space import Space
from dphypo.space.dimension import check_name

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

Model = TypeVar("Model")
RESERVED = COSTS | {"rate"}
"""Names that an objective may not suggest, because the event reads them."""

_READABLE = frozenset(
    {
        "constraints",
        "datetime_start",
        "distributions",
        "number",
        "params",
        "relative_params",
        "should_prune",
        "user_attrs",
    }
)
"""The attributes of its trial that an objective may read. It writes by ``suggest_...``, ``report`` and two setters."""


@dataclass(frozen=True)
class OptunaSurvey:
    """A survey that an Optuna study drives, then a last run: the two cost (ε, δ) together.

    **Guarantee.** The storage of the study and the model of the last run are (ε, δ)-DP together, if the objective
    writes to the study through its trial alone, a trial costs at most ``survey.short.event``, the last run at most
    ``survey.full.event``, and durations do not depend on the data.

    Args:
        run: the privacy of the full run, ``dphypo.mechanisms.SampledGaussian.of(...)``; its noise is solved for.
        epsilon, delta: the total cost of everything that is released.
        durations: "public" declares that the duration of a run does not depend on the data.
        scores: "public" declares that all numbers that the objective gives to Optuna (its value, reports, constraints,
            user attributes) look at public records alone. Leave it out if you give ``score_event``.
        runs: the number of trials.
        fraction: the part of the full run's steps that a trial makes, with noise over its square root.
        score_event: the event of one number, if they look at private records.
        split: the rule that separates records that score from those that train: ``train.split`` of a part of
            ``split_by_hash``, or a :class:`dphypo.Split`. Without one, scores and training compose.
        reports: with ``score_event``, how many more numbers than its value a trial may give to Optuna.
        last_runs: the number of full runs that are paid for; more than one allows for a lost run.
        keep_in: an Optuna study that stores the solved noise, so that the next start is quick: the one that the
            survey drives, for example. Its cost is recomputed at every start and not trusted.
        progress: show on a terminal that noise is being solved for.
        ledger: a :class:`dphypo.Ledger`, or its file, where the whole cost is reserved before the first trial.
        unit: who is protected: "person" if the objective samples persons, as a ``DPSGD`` with ``person=`` does.

    >>> from dphypo.mechanisms import Plain, SampledGaussian, Saver
    >>> survey = OptunaSurvey(
    ...     SampledGaussian.of(records=60_000, batch_size=256, epochs=10, noise_multiplier=1.0),
    ...     epsilon=4.25, delta=1e-5, durations="public", scores="public")
    >>> survey.full.steps, round(survey.full.noise_multiplier, 2), survey.short.steps
    (2344, 0.63, 235)
    """

    run: SampledGaussian
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
    keep_in: Study | None = field(default=None, repr=False, compare=False, kw_only=True)
    progress: bool = field(default=True, repr=False, compare=False, kw_only=True)
    ledger: Ledger | str | Path | None = field(default=None, kw_only=True)
    unit: str = field(default="record", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "split", read_sides(self.split))
        if self.durations != "public":
            remedy = (
                'Optuna keeps when trials begin and end: give "public" if that does not depend on the data; if it may, '
                "dphypo.tune(..., survey=dphypo.SurveyPlan(proposer=optuna.samplers...)) keeps no times"
            )
            raise _validate.fail("durations", self.durations, remedy)
        if (self.scores == "public") == (self.score_event is not None) or self.scores not in (None, "public"):
            remedy = (
                "if all numbers that the objective gives to Optuna look at public records alone, write "
                'scores="public"; if they look at private ones, give the event of one noisy score as score_event='
            )
            raise _validate.fail("scores", self.scores, remedy)
        if self.unit not in UNITS:
            raise _validate.fail("unit", self.unit, f"it is one of {', '.join(UNITS)}")
        refuse_rows_of_persons(self.split, self.unit)
        _validate.positive(epsilon=self.epsilon)
        _validate.positive_delta(delta=self.delta)
        _validate.integer(at_least=1, runs=self.runs)
        _validate.integer(at_least=0, reports=self.reports)
        _validate.integer(at_least=1, last_runs=self.last_runs)
        _validate.within(0.0, 1.0, closed="right", fraction=self.fraction)
        if (steps := math.ceil(self.run.steps * self.fraction)) < min(FEWEST_STEPS, self.run.steps):
            _validate.warn(
                f"fraction = {self.fraction:g}: a trial has {steps} steps, and with fewer than about {FEWEST_STEPS} "
                f"it says little about the full run. Give fraction={min(1.0, FEWEST_STEPS / self.run.steps):.2g}, or "
                "a full run with a smaller batch or more epochs"
            )

    @property
    def full(self) -> OwnRun:
        """The full run, with its noise; ``survey.full.make_private(...)`` keeps a loop of Opacus to it."""
        return _own(self._full)

    @cached_property
    def _full(self) -> SampledGaussian:

        def at(noise: float) -> Composition:
            return self._guarantee(self.run.at(noise_multiplier=noise))

        keep = None if self.keep_in is None else partial(keep_in_study, self.keep_in)
        with solving(show=self.progress):
            found = solve_noise(at, epsilon=self.epsilon, delta=self.delta, keep=keep)
        return self.run.at(noise_multiplier=found.value)

    @property
    def short(self) -> OwnRun:
        """The run of a trial: fewer steps, more noise; ``survey.short.make_private(...)`` in each trial."""
        return _own(self._short(self._full))

    @cached_property
    def guarantee(self) -> Composition:
        """The guarantee of everything together."""
        found = self._guarantee(self._full)
        found.check_total(self.epsilon, self.delta)
        return found

    def optimize(self, study: Study, objective: Callable[[Trial], float], **options: Any) -> None:
        """``study.optimize(objective)`` for the declared trials that remain.

        An exception in the objective is a failed trial. Its message is not kept, because it may quote a record. If no
        trial remains, a warning says so, and a finished script continues with its :meth:`last_run`.

        Args:
            study: a study without trials, or one that this survey has begun.
            objective: as for Optuna; it trains with ``survey.short``.
            options: of ``study.optimize``, except ``n_trials``, which is declared, and ``catch``. ``timeout`` ends the
                call, and the next call executes the remaining trials: all are paid for in any case.
        """
        if "n_trials" in options:
            raise _validate.fail("n_trials", options["n_trials"], f"{self.runs} trials are declared")
        if options.pop("catch", None):
            raise _validate.fail("catch", "...", "every exception is a failed trial here: leave it out")
        from optuna import TrialPruned

        _refuse_other_arguments("objective", objective, "a trial")
        claims = self._begin(study)
        if claims.used_up:
            _validate.warn(_TOO_MANY)
            return

        def made(trial: Trial) -> float:
            if not claims.claim_run(trial.number):  # other processes have executed the rest
                trial.study.stop()
                raise TrialPruned
            paid: Any = PaidTrial(trial, None if self.score_event is None else self.reports)
            try:
                return float(objective(paid))
            except (errors.Refusal, TrialPruned):
                raise
            except Exception:
                return math.nan  # a failed trial; the exception's own text would be kept in the storage

        study.optimize(made, n_trials=self.runs - len(claims.trials), **options)

    def table(self, study: Study) -> SurveyTable:
        """The published table: all trials of the survey that have ended."""
        trials = TrialClaims(study, self.runs).trials
        rows = tuple(Row(trial.params, _score(trial)) for trial in trials if trial.state.is_finished())
        return SurveyTable(rows, maximize=study.direction.name == "MAXIMIZE")

    def params(self, study: Study, fallback: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """λ of the last run: the best posterior mean of a Gaussian process fitted to all trials.

        It uses the parameters that every trial with a score has; ``fallback`` is used if no trial has one.
        """
        scored = [trial for trial in TrialClaims(study, self.runs).trials if _score(trial) is not None]
        if not scored:
            if fallback is None:
                tried = TrialClaims(study, self.runs).trials
                failed = "every trial failed, and exceptions are not kept: try the objective on made-up records"
                why = failed if tried else "no trial was executed: call optimize first"
                raise _validate.fail("fallback", None, f"{why}; or give the parameters of the last run")
            return dict(fallback)
        common = set.intersection(*(set(trial.params) for trial in scored))
        if not common:
            return {}
        space = Space.from_optuna({name: kind for name, kind in scored[0].distributions.items() if name in common})
        rows = [Row({name: trial.params[name] for name in space.names}, _score(trial)) for trial in scored]
        return posterior_mean(space, rows, maximize=study.direction.name == "MAXIMIZE")

    def last_run(
        self,
        study: Study,
        train: Callable[..., Model],
        fallback: Mapping[str, Any] | None = None,
        *,
        folder: str | Path | None = None,
        saver: Saver | None = None,
    ) -> tuple[Model, dict[str, Any], Certificate]:
        """Train once with ``train(**params)`` at the λ that the trials recommend: model, λ and certificate.

        ``train`` returns the model, and makes the steps of ``survey.full`` with its noise. The run counts from its
        start: of all processes that share the study's storage, ``last_runs`` may execute one, and the others are
        refused. It closes the survey: no further trial is executed.

        With ``folder``, the release is saved there (:func:`dphypo.load_release`), and a finished script that is started
        again gets it back from there. ``saver`` says how, ``Safetensors(net)`` for a model of PyTorch; by default
        arrays and plain values are saved.
        """
        claims = self._begin(study)
        kept = None if folder is None else _validate.path(folder=folder)
        how = Plain() if saver is None else saver
        if kept is not None and kept.is_dir() and any(kept.iterdir()):
            found = load_release(kept, how)
            if not claims.closed or found.surveys != (self.table(study),):
                remedy = "it holds the release of another survey: give a new folder, or open that survey's study"
                raise _validate.fail("folder", str(folder), remedy)
            return found.model, dict(found.params or {}), found.certificate
        _refuse_other_arguments("train", train, **self.params(study, fallback))  # an error now closes nothing
        claims.close()
        params = self.params(study, fallback)
        claims.claim_last_run(self.last_runs)
        model, certificate = train(**params), self.certificate(study)
        if kept is not None:
            release = Release(params, model, None, certificate, saver=how, surveys=(self.table(study),))
            try:
                release.save(kept)
            except Exception as error:  # the model is paid for: return it in any case
                alone = "; let the function return the model alone" if isinstance(model, tuple) else ""
                text = f"folder = {str(folder)!r}: the release was not saved, so save the model now ({error}{alone})"
                _validate.warn(text)
        return model, params, certificate

    def certificate(self, study: Study) -> Certificate:
        """The guarantee of the study and of the last run, with the hash of the published table, which is complete."""
        claims = TrialClaims(study, self.runs)
        claims.refuse_foreign()
        self._refuse_unpaid(claims)
        if not claims.closed:
            raise _validate.fail("study", study.study_name, "its table is not complete: execute the last run first")
        releases = [{"part": "survey", "durations": "public", "by": "optuna"}, {"part": "last run"}]
        released = [self.table(study).fingerprint()]
        public: dict[str, Any] = {"releases": releases, "released": released, "unit": self.unit}
        if self.ledger is not None:
            total = self._reservation(study).total
            public["ledger"] = dict(zip(("epsilon", "delta"), total, strict=True))
        return self.guarantee.certificate(self.delta, **public)

    def _reservation(self, study: Study) -> Reservation:
        assert self.ledger is not None
        stated: dict[str, Any] = {"private": True, "delta": self.delta, "unit": self.unit}
        return Reservation(self.ledger, self.guarantee, study.study_name, **stated)

    def _begin(self, study: Study) -> TrialClaims:
        """Claim a new study; refuse one that this survey did not begin."""
        refuse_in_worker_start()
        if not hasattr(study, "directions"):
            raise _validate.fail("study", study, "give the study of Optuna first, and then the function")
        if len(study.directions) > 1:
            remedy = "it has several objectives: a survey has one. Give the others as trial.set_user_attr(...)"
            raise _validate.fail("study", study.study_name, remedy)
        claims = TrialClaims(study, self.runs)
        claims.begin(self._declared, None if self.ledger is None else self._reservation(study))
        self._refuse_unpaid(claims)
        return claims

    def _refuse_unpaid(self, claims: TrialClaims) -> None:
        """Refuse a study with a trial that holds more numbers than were declared, however they got there."""
        if self.score_event is None:
            return
        for trial in claims.trials:
            constraints = [key for key in trial.system_attrs if key.startswith("constraints:")]
            if len(trial.intermediate_values) + len(trial.user_attrs) + len(constraints) > self.reports:
                raise errors.Refusal(_UNPAID)

    @cached_property
    def _declared(self) -> dict[str, Any]:
        events = {"short": self.short.event, "full": self.full.event, "score": self.score_event, "split": self.split}
        counts = {"runs": self.runs, "reports": self.reports, "last runs": self.last_runs, "delta": self.delta}
        unit = {} if self.unit == "record" else {"unit": self.unit}
        return {name: repr(value) for name, value in events.items()} | counts | unit

    def _short(self, full: SampledGaussian) -> SampledGaussian:
        return full.at(noise_multiplier=full.noise_multiplier, fraction=self.fraction, match=True)

    def _guarantee(self, full: SampledGaussian) -> Composition:
        training, scoring = (EVERYONE, EVERYONE) if self.split is None else (self.split.training, self.split.scoring)
        terms = [Term(account_published(self._short(full).event, self.runs), training)]
        if self.score_event is not None:
            scores = account_published(self.score_event, self.runs * (1 + self.reports))
            terms.append(Term(scores, scoring, scores=True))
        return Composition((*terms, Term(account_published(full.event, self.last_runs), training)))


def _refuse_other_arguments(name: str, function: object, *values: object, **named: object) -> None:
    """Refuse a function that cannot be called like this: its first call would be paid for and fail."""
    shown = ", ".join([*map(str, values), *(f"{one}=..." for one in named)])
    if not callable(function):
        raise _validate.fail(name, function, f"give a function, called as {name}({shown})")
    with contextlib.suppress(ValueError):  # of built-in functions that state no arguments
        arguments = inspect.signature(function)
        try:
            arguments.bind(*values, **named)
        except TypeError as error:
            raise TypeError(f"{name} is called as {name}({shown}), and takes {arguments}: {error}") from None


def _own(run: SampledGaussian) -> OwnRun:
    """A run with its own seed; a run of a user's class is returned as it is."""
    return OwnRun(**vars(run), seed=below(2**63, SYSTEM)) if type(run) is SampledGaussian else cast(OwnRun, run)


class PaidTrial:
    """A trial that gives Optuna nothing but parameters, and numbers that were declared.

    A sampler reads all that a trial holds, so what an objective can write is a closed list.
    """

    def __init__(self, trial: Trial, reports: int | None) -> None:
        self._trial, self._left = trial, reports

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._trial, attribute)
        if attribute.startswith("suggest_"):
            return partial(self._suggest, found)
        if attribute not in _READABLE:
            raise errors.Refusal(
                f"The objective uses trial.{attribute}, by which it could give a sampler numbers that are not paid "
                "for. Use suggest_..., report, should_prune, set_constraint and set_user_attr of the trial."
            )
        return found

    def _suggest(self, suggest: Callable[..., Any], name: str, *arguments: Any, **options: Any) -> Any:
        if name in RESERVED:
            raise errors.Refusal(_declared_parameter(name))
        try:
            check_name(name)
        except ValueError as error:
            unfit = "The objective suggests a parameter that the published table cannot show."
            raise errors.Refusal(f"{unfit} {error}") from None
        return suggest(name, *arguments, **options)

    def report(self, value: float, step: int) -> None:
        """An intermediate score."""
        if self._left is not None and type(step) is not int:
            raise errors.Refusal("The objective reports a step that is not a whole number: give 0, 1, 2, ...")
        self._trial.report(self._paid(float(value)), step)

    def set_constraint(self, key: str, value: float) -> None:
        """A constraint, which samplers of Optuna 5 read."""
        self._trial.set_constraint(key, self._paid(float(value)))

    def set_user_attr(self, key: str, value: Any) -> None:
        """An attribute, which a sampler's ``constraints_func`` reads."""
        self._trial.set_user_attr(key, self._paid(value))

    def _paid(self, value: Any) -> Any:
        """The value to store: one that is paid for as a float, since an integer may have any number of digits."""
        if self._left is None:  # public numbers cost nothing
            return value
        if not isinstance(value, Real):
            raise errors.Refusal(
                f"The objective gives Optuna a {type(value).__name__}, but each number is paid for, and this could "
                "hold many. Give one noisy number, or keep the value elsewhere."
            )
        if self._left == 0:
            raise errors.Refusal(_UNPAID)
        self._left -= 1
        return float(value)


def _declared_parameter(name: str) -> str:
    return (
        f"The objective suggests {name!r}, which the privacy event reads. The event is declared before the first trial "
        "and bounds every one of them, so the noise, batch size and steps are those of survey.short: use them. To "
        "tune them, use dphypo.tune, which solves for the noise of each setting."
    )


def _score(trial: FrozenTrial) -> float | None:
    return trial.value if trial.state.name == "COMPLETE" else None


_MARK = "dphypo survey"  # the study attribute that its claims name
_UNPAID = (
    "A trial gives Optuna more numbers (reports, constraints, user attributes) than were declared. Each number that "
    "looks at private records is a separate event and can steer a sampler: declare them with "
    "OptunaSurvey(reports=...)."
)
_NOT_THIS_STUDY = (
    "This Optuna study was not started by this survey: it has other trials, or another declaration. Every trial of a "
    "survey is paid for, and their number and cost are declared before the first. Create a new study (another "
    "study_name), or open it with the same OptunaSurvey as before."
)
_REMADE_STUDY = (
    "An Optuna study of this name was started by a survey and deleted. Its trials were executed and count: the claims "
    'kept next to it, in the study whose name ends in "(dphypo)", are used up, so trials of this study would not be '
    "paid for. Create a study with another study_name: it is a new survey, and the two compose."
)
_TOO_MANY = (
    "No trial is left: all that were declared have been executed, or the last run has closed the survey. One more "
    "would not be paid for, and a number of runs chosen from the results is not covered. Execute the last run, or "
    "start a new survey on a new study: the two compose."
)
_AGAIN = (
    "The last run was started before, and one more would not be paid for. What it returned is the release: "
    "last_run(..., folder=...) saves it, and returns it when called again. last_runs=2 would have allowed for one that "
    "is lost. Or start a new survey on a new study: the two compose."
)


class TrialClaims:
    """The claims of an Optuna study that is driven, with this many declared trials."""

    def __init__(self, study: Study, runs: int) -> None:
        self._study, self._runs = study, runs
        self._name = f"{study.study_name} (dphypo)"
        self._reservation: Reservation | None = None

    def begin(self, declared: Mapping[str, Any], reservation: Reservation | None) -> None:
        """Claim the study for a declaration, and reserve in the ledger; refused if it was begun in another way."""
        made = any(trial.state.name != "WAITING" for trial in self._study.trials)  # read before the claims
        if not self._all("begin"):
            if made:
                raise errors.Refusal(_NOT_THIS_STUDY)
            entry = {} if reservation is None else reservation.begun({})
            self._claim("begin", {"declared": dict(declared), "study": secrets.token_hex(16), **entry})
        first: dict[str, Any] = self._all("begin")[0]
        if first["declared"] != json.loads(json.dumps(declared)):
            raise errors.Refusal(_NOT_THIS_STUDY)
        self.refuse_foreign()
        if reservation is not None:
            reservation.enter(first)
        elif "ledger" in first:
            raise errors.LedgerError("this survey was begun with a ledger: pass the same ledger= to resume it")
        self._study.set_user_attr(_MARK, first["study"])
        self._reservation = reservation

    def refuse_foreign(self) -> None:
        """Refuse a study with trials that were not claimed: they were executed outside the survey and not paid for.

        A study whose claims are those of a deleted one is refused too.
        """
        claims = self._read()  # read before the mark, which is set before the first trial is claimed
        marks = [claim["study"] for kind, claim in claims if kind == "begin"]
        used = any(kind != "begin" for kind, _ in claims)
        if used and [self._study.user_attrs.get(_MARK)] != marks[:1]:
            raise errors.Refusal(_REMADE_STUDY)
        trials = self._study.trials  # read before the claims: what has a value by now was claimed by now
        claimed = {claim["trial"] for claim in self._all("run")}
        for trial in trials:
            made = trial.state.is_finished() and (trial.params or trial.values or trial.intermediate_values)
            if made and trial.number not in claimed:
                raise errors.Refusal(_NOT_THIS_STUDY)

    @property
    def closed(self) -> bool:
        """Whether no further trial is executed."""
        return bool(self._all("close"))

    @property
    def trials(self) -> list[FrozenTrial]:
        """The trials of the survey that count, in order, including those that were killed."""
        counted = set(self._counted())
        return [trial for trial in self._study.trials if trial.number in counted]

    def _counted(self) -> list[int]:
        """The numbers of the trials that count, in the order in which they were claimed."""
        order: list[int] = []
        for kind, claim in self._read():
            if kind == "close" or len(order) == self._runs:
                break
            if kind == "run" and claim["trial"] not in order:
                order.append(claim["trial"])
        return order

    @property
    def used_up(self) -> bool:
        """Whether no trial is left."""
        return self.closed or len(self._counted()) >= self._runs

    def claim_run(self, number: int) -> bool:
        """Claim a trial before it is executed; False if it is surplus."""
        mine = {"trial": number, "token": secrets.token_hex(16)}
        self._claim("run", mine)
        if next(claim for claim in self._all("run") if claim["trial"] == number) != mine:  # it was executed before
            raise errors.Refusal(_REMADE_STUDY)
        order = self._counted()
        if number in order:
            self._pay(f"trial {order.index(number)}")
        return number in order

    def close(self) -> None:
        """Close the survey. Trials that were begun before must have ended."""
        self._refuse_running()
        if not self.closed:
            self._claim("close", {})
        self._refuse_running()  # one may have begun in between; from now on none can

    def _refuse_running(self) -> None:
        for trial in self.trials:
            if not trial.state.is_finished():
                remedy = f"trial {trial.number} is still running: wait for it, or tell it with study.tell(...)"
                raise _validate.fail("study", self._study.study_name, remedy)

    def claim_last_run(self, allowed: int) -> None:
        """Claim a last run; refused if ``allowed`` of them were begun before, by whatever process."""
        if len(self._all("last")) >= allowed:
            raise errors.Refusal(_AGAIN)
        mine = {"token": secrets.token_hex(16)}
        self._claim("last", mine)
        place = self._all("last").index(mine)
        if place >= allowed:  # another process was faster
            raise errors.Refusal(_AGAIN)
        self._pay(f"last run {place}")

    def _pay(self, part: str) -> None:
        """Take a part of the entry in the ledger: of two copies of a storage, one gets it."""
        if self._reservation is not None:
            self._reservation.claim(part)

    def _claim(self, kind: str, content: Mapping[str, Any]) -> None:
        from optuna import create_study
        from optuna.trial import create_trial

        beside = self._beside()
        if beside is None:
            beside = create_study(storage=self._study._storage, study_name=self._name, load_if_exists=True)
        beside.add_trial(create_trial(value=0.0, user_attrs={"kind": kind, "claim": dict(content)}))

    def _all(self, kind: str) -> list[dict[str, Any]]:
        return [claim for found, claim in self._read() if found == kind]

    def _read(self) -> list[tuple[str, dict[str, Any]]]:
        beside = self._beside()
        found = [] if beside is None else sorted(beside.get_trials(deepcopy=False), key=lambda trial: trial.number)
        return [(trial.user_attrs["kind"], trial.user_attrs["claim"]) for trial in found]

    def _beside(self) -> Study | None:
        from optuna import load_study

        try:
            return load_study(study_name=self._name, storage=self._study._storage)
        except KeyError:
            return None


def keep_in_study(study: Study, question: Mapping[str, Any], solve: Callable[[], float]) -> float:
    """Keep a public number that takes long to find in an Optuna study (a ``dphypo.accounting.calibrate.Keep``).

    Anyone who can write to the storage can change it, so the caller checks the number and recomputes its cost.
    """
    text = json.dumps(question, sort_keys=True)
    key = f"dphypo solved {hashlib.sha256(text.encode()).hexdigest()[:16]}"
    found = study.user_attrs.get(key)
    if isinstance(found, int | float) and 0 < found < math.inf:
        return float(found)
    answer = solve()
    study.set_user_attr(key, answer)
    return answer
