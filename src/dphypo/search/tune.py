"""Tune a private model: one run at the rate that public values give or, if it pays, a survey of short runs first."""

from __future__ import annotations

import concurrent.futures
import math
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import dp_accounting

from dphypo import _validate
from dphypo._stderr import say
from dphypo.accounting import Composition, solve_noise
from dphypo.accounting.calibrate import Keep, equal_noise, run_alone, scaled
from dphypo.accounting.events import ideal
from dphypo.accounting.profiles import round_epsilon
from dphypo.entropy import SYSTEM, Entropy, check_entropy
from dphypo.errors import UnreachableError
from dphypo.executors.executor import FIVE_MINUTES, Every, Execution, Factory
from dphypo.journal import Ledger
from dphypo.journal.journal import keeping
from dphypo.journal.store import Store
from dphypo.mechanisms import Mechanism, SampledGaussian, over_space
from dphypo.mechanisms.mechanism import SILENT, check_is_mechanism, records_of
from dphypo.search.declaration import Declaration, FitCount, Part, check_space, cost_of, read_space, total_in_gaussians
from dphypo.search.ladder import Climb, Ladder, plan_ladder
from dphypo.search.progress import solving
from dphypo.search.proposer import Evenly, Parabola, Within
from dphypo.search.rates import (
    GAIN,
    MOST_COMPUTE,
    RUNS_OF_KNOWN,
    TRANSFER,
    InputScale,
    Known,
    Prospect,
    ScaleOfInputs,
    left_open,
    spread_at,
    widened,
)
from dphypo.search.release import OnRun, Release
from dphypo.search.runner import Runner
from dphypo.search.survey import FRACTION, RUNS, SurveyPlan
from dphypo.space import Space

MOST_RUNS, FEWEST_RUNS = 40, 8
RUNS_OF_ONE, FRACTION_OF_ONE = 8, 0.05
"""For a single hyperparameter."""
FEWEST_STEPS = 30
"""With fewer steps than about this, nothing is learnt, and short runs say nothing about long ones."""
LEAST_FRACTION = 0.01
_ROUNDING = 1 + 1e-9
PRICE = 0.01
"""The default of ``price``."""
AUTO, ALWAYS, NEVER = "auto", "always", "never"
"""Whether to search."""
RUNS_OF_FEW_STEPS = 15
"""How many runs are left where runs cannot be made shorter and cost more than ``price``."""
QUIET = 0.01
"""The last run also trains on the records that score if the noise of a score stays below this."""


@_validate.named_right
def tune(
    *searched: Space | Mapping[str, Any] | Mechanism,
    space: Space | Mapping[str, Any] | None = None,
    mechanism: Mechanism | None = None,
    epsilon: float,
    delta: float,
    compute: float | None = None,
    survey: SurveyPlan | int | None = None,
    search: str = AUTO,
    price: float = PRICE,
    until: Ladder | float | None = None,
    workers: int = 1,
    progress: bool = True,
    start_method: str = "spawn",
    executor: str | Factory | concurrent.futures.Executor | None = None,
    devices: Sequence[str] | str | int | None = None,
    checkpoint_every: Every = FIVE_MINUTES,
    on_run: OnRun | None = None,
    journal: str | Path | Store | None = "tune.db",
    name: str = "tune",
    maximize: bool = True,
    entropy: Entropy = SYSTEM,
    data_name: str | None = None,
    ledger: Ledger | str | Path | None = None,
) -> Release:
    """Tune the hyperparameters of a private training run, and train with them: all of it costs (ε, δ) together.

    **Without a search.** The best learning rate is nearly known before the data are looked at
    (:mod:`dphypo.search.rates`). Where no space is given, ``tune`` weighs from public values what a search would gain
    against the noise and the records that it takes. Mostly it trains once, on all records and with all of ε.

    **With one.** Short runs with more noise cost little compared with the full run. So all of their results are
    published, an ordinary optimiser uses them, and one full run is trained at the λ they recommend. The noise of all
    runs is solved for. What was decided, why, and what it costs is printed before anything starts.

    **Guarantee.** The model, its λ and the whole table of the survey (``release.survey``) together are (ε, δ)-DP, by
    composition; ``release.certificate`` says so in public values. Nothing about the search is secret but the data, the
    seeds and how long runs take.

    The last run is not ranked, so ``release.score`` is None. To say how good the model is, evaluate it on public
    records; or ask for its score with ``survey=SurveyPlan(score=True)``, which is taken on records that did not train
    it, and paid for.

    Args:
        searched: the space and the mechanism, or the mechanism alone: ``tune(space, mechanism, ...)`` or
            ``tune(mechanism, ...)``. Both may be given by name.
        space: the hyperparameters of the full run, and a prior of them, or the dict that makes a space; by default
            those that the mechanism names
            (:meth:`dphypo.torch.DPSGD.default_space`).
        mechanism: the full run, such as :class:`dphypo.torch.DPSGD`. It offers
            ``at(noise_multiplier=...)`` and ``at(fraction=..., match=True)``, the same training cut short.
        epsilon, delta: what everything that is released may cost together.
        compute: the most compute, in full runs; the last run takes 1 of it. Where batch size or steps are tuned,
            settings with which it could be exceeded are excluded.
        survey: a :class:`dphypo.SurveyPlan`, or the number of short runs; by default it is planned.
        search: "auto" decides from public values whether to search if nothing but the learning rate is searched, in
            the mechanism's own space. "always" searches, "never" trains once at the λ that follows from public values.
        price: how much more noise in the full run a planned survey may cost, as a fraction.
        until: a score that is good enough, such as an accuracy of 0.9, or a :class:`dphypo.search.Ladder`. Then
            nothing is searched: full runs are executed at ε/8, ε/5.7, ε/4, … and ε in total, each with the learning
            rate that its noise determines and from the model before it, until one reaches the score and is released.
        workers: how many runs to execute at a time.
        progress: print what tuning costs, and every run of the survey.
        start_method, executor, devices, checkpoint_every, on_run: as for :meth:`dphypo.Stages.run`.
        journal, name, maximize, entropy, data_name, ledger: as for :class:`dphypo.Study`. An interrupted call
            resumes.

    >>> import math
    >>> import dp_accounting as dp
    >>> import dphypo
    >>> from scipy.stats import loguniform
    >>> def training(noise_multiplier, steps=400):
    ...     def train(params, *, seed):  # a stand-in for training on private records
    ...         return {"lr": params["lr"], "steps": steps}, -abs(math.log(params["lr"] / 0.1))
    ...     event = dp.SelfComposedDpEvent(dp.GaussianDpEvent(noise_multiplier), steps)
    ...     return Training(train, event=event, relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    >>> class Training(dphypo.mechanisms.Declared):
    ...     def at(self, noise_multiplier=None, fraction=1.0, match=False):
    ...         noise = noise_multiplier or self.event.event.noise_multiplier
    ...         return training(noise / math.sqrt(fraction) if match else noise, round(400 * fraction))
    >>> release = tune(dphypo.Space({"lr": loguniform(1e-3, 1)}), training(1.0), epsilon=2.0, delta=1e-6,
    ...                survey=20, journal=None, progress=False)
    >>> 0.05 < release.params["lr"] < 0.2, release.model["steps"], len(release.survey.rows)
    (True, 400, 20)
    >>> 1.99 < release.certificate.epsilon <= 2.0
    True
    """
    space, mechanism, own = _subject(searched, space, mechanism)
    mechanism.serve()
    check_entropy(entropy)
    execution = Execution(workers, start_method, executor, devices, checkpoint_every)
    with keeping(journal, name) as keep, solving(show=progress):
        tuning: Tuning | Climb
        if until is None:
            tuning = plan_tuning(
                space,
                mechanism,
                epsilon=epsilon,
                delta=delta,
                compute=compute,
                survey=survey,
                search=search if own or search != AUTO else ALWAYS,
                price=price,
                keep=keep,
            )
        else:
            for unused, value in (("survey", survey), ("compute", compute)):
                if value is not None:
                    raise _validate.fail(unused, value, "with until= nothing is searched: leave it out")
            ladder = until if isinstance(until, Ladder) else Ladder(until)
            tuning = plan_ladder(space, mechanism, ladder, epsilon=epsilon, delta=delta, keep=keep)
    declared = tuning.declare(space, delta, maximize=maximize, private=entropy.private, data_name=data_name)
    runner = Runner(declared, journal, name, entropy, ledger)
    if _validate.flag(progress=progress):
        say(tuning.summary)
    release = runner.run(execution, progress=progress, on_run=on_run)
    first = declared.parts[0]
    if progress and isinstance(first, InputScale) and (remark := first.remark(release.certificate)) is not None:
        say(remark)
    return release


def _subject(
    searched: Sequence[Space | Mapping[str, Any] | Mechanism],
    space: Space | Mapping[str, Any] | None,
    mechanism: Mechanism | None,
) -> tuple[Space, Mechanism, bool]:
    """The space and the mechanism, given by place or by name, and whether the space is the mechanism's own."""
    places = list(searched)
    if mechanism is None:
        if not places:
            raise _validate.fail("mechanism", None, "give tune(mechanism, ...) or tune(space, mechanism, ...)")
        mechanism = cast(Mechanism, places.pop())
    if places and space is None:
        space = cast(Space, places.pop())
    if places:
        raise TypeError("tune takes a space and a mechanism: tune(space, mechanism, ...) or tune(mechanism, ...)")
    if isinstance(mechanism, Space | Mapping):
        remedy = "the mechanism comes last: tune(space, mechanism, ...) or tune(mechanism, ...)"
        raise _validate.fail("mechanism", mechanism, remedy)
    check_is_mechanism(mechanism)
    return read_space(space, mechanism), mechanism, space is None


@dataclass(frozen=True)
class Tuning:
    """A survey and a last run with their noise: what ``dphypo.tune`` runs.

    Args:
        survey: what was declared, with nothing left out.
        parts: the survey and the last run, with their noise.
        guarantee: what they cost together.
        epsilon: the total that was asked for.
        price, accepted: by how much the full run's noise exceeds that of one run without any tuning; what was accepted.
        largest: the compute of the longest full run that is allowed, in those of the mechanism's own setting.
        records: on which records the last run trains, in a sentence, if the mechanism set records apart itself.
        why: what was decided about a search, and why, in a sentence.
        space: what is searched, if its prior is wider than the one that was given.
    """

    survey: SurveyPlan
    parts: tuple[Part, ...]
    guarantee: Composition
    epsilon: float
    price: float
    accepted: float = PRICE
    largest: float = 1.0
    records: str = ""
    why: str = ""
    space: Space | None = None

    @property
    def short(self) -> Mechanism:
        return self.parts[-2 if self.survey.runs else -1].mechanism

    @property
    def full(self) -> Mechanism:
        return self.parts[-1].mechanism

    @property
    def compute(self) -> float:
        """The most compute that the survey and the last run can take together, in full runs."""
        return self.survey.compute * self.largest

    def declare(self, space: Space, delta: float, **public: Any) -> Declaration:
        """The search that :func:`dphypo.tune` runs; ``Stages.of`` asks and tells, or shows the guarantee first."""
        space = space if self.space is None else self.space
        return Declaration.of(space, self.parts, delta=delta, epsilon=self.epsilon, **public)

    @property
    def summary(self) -> str:
        """One line with the cost of tuning and, if it is high, a second one with what lowers it. Public."""
        if not self.survey.runs:
            return self.why
        more, takes, part = 100 * max(self.price, 0.0), self.survey.compute - 1, self.survey.fraction
        noise, unit = f"{more:.2g}" if more < 100 else f"{more:.0f}", "run" if round(takes, 3) == 1 else "runs"
        kind = "full runs" if part == 1 else f"short runs of {part:.3g} of the steps"
        line = (
            f"{self.why}Tuning costs {noise} % more noise and {takes:.3g} {unit} of compute: {self.survey.runs} "
            f"{kind}, all published, then one full run.{self.records}"
        )
        if self.largest != 1:
            line += f" Settings differ in compute: it is at most {self.compute:.3g} runs of the given setting, in all."
        if (deviation := self.short.score_deviation) is not None:
            line += (
                f" A score has a noise of {deviation:.2g}{self.short.score_assumes}: the survey cannot distinguish "
                "runs whose scores differ by less."
            )
        if self.price > self.accepted:
            line += (
                f"\nThat is more than the {100 * self.accepted:.2g} % that is accepted (price=). It costs less with "
                "more steps (a smaller batch, or more epochs), fewer runs, more records or a larger epsilon; dphypo "
                "plan compares other designs."
            )
        return line


def plan_tuning(
    space: Space,
    mechanism: Mechanism,
    *,
    epsilon: float,
    delta: float,
    compute: float | None = None,
    survey: SurveyPlan | int | None = None,
    search: str = ALWAYS,
    price: float = PRICE,
    keep: Keep | None = None,
) -> Tuning:
    """A survey and one run, or one run alone, that cost ε at δ; the number of short runs is planned if not given."""
    if isinstance(survey, int):
        survey = SurveyPlan(runs=_validate.integer(at_least=0, survey=survey))
    given: object = SurveyPlan() if survey is None else survey
    if not isinstance(given, SurveyPlan):
        raise _validate.fail("survey", survey, "give a dphypo.SurveyPlan, or the number of short runs")
    price = _validate.positive(price=price)
    check_space(space)
    check_is_mechanism(mechanism)
    _validate.warn_of_delta(_validate.positive_delta(delta=delta), records_of(mechanism))
    over_space.check_fit(mechanism, space)
    if search not in (AUTO, ALWAYS, NEVER):
        raise _validate.fail("search", search, 'give "auto", "always" or "never"')
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "keep": keep}
    if given.runs == 0 or (given.runs is None and search == NEVER):
        return one_run(space, mechanism, given, **budget)
    known, why, spread = known_of(mechanism, space), "", None
    undecided = given.runs is None and search == AUTO
    limits: dict[str, Any] = {"compute": compute, "price": price, "known": known is not None and given.runs is None}
    if known is not None:
        alone = one_run(space, mechanism, given, **budget)
        prospect = prospect_of(mechanism, alone.full, space, known, epsilon, delta)
        if prospect is None and undecided:
            return alone
        if prospect is not None and undecided:
            after = prospect.searched()
            takes, most = 1 + RUNS_OF_KNOWN * prospect.fraction, MOST_COMPUTE if compute is None else compute
            loses = f"to lose {min(prospect.regret, 1.0):.2g} of the score to the best learning rate"
            if prospect.regret - after < GAIN or takes > most * _ROUNDING:
                dear = f", at a compute of {takes:.3g}" if takes > most * _ROUNDING else ""
                return replace(alone, why=f"{alone.why} It is expected {loses}, and a search {after:.2g}{dear}.")
            why = f"One run alone is expected {loses}, and a search {after:.2g}. "
        if prospect is not None:
            found = known.at(prospect.signal)
            space, spread, known = widened(space, known, found), found.spread, found
        runs = given.runs or RUNS_OF_KNOWN
        proposer = Evenly(runs) if given.proposer is None else given.proposer
        pick = Parabola(known.name, known.spread, TRANSFER) if given.pick is None else given.pick
        given = replace(given, runs=runs, proposer=proposer, pick=pick)
    problem = NoiseProblem(space, mechanism, given, None, epsilon, delta, keep, spread)
    return replace(plan_survey(problem, **limits), why=why, space=space)


def plan_survey(problem: NoiseProblem, **limits: Any) -> Tuning:
    """A survey within limits, and a last run, on all records if that is better.

    Where the mechanism set records apart for its scores by itself, the last run trains on all records if the noise of a
    score stays below 0.01. It then counts for both sides, and the scores may cost only what the short runs cost. With
    ``SurveyPlan(score=True)`` it does not: the records that score the release never train it.
    """
    given, mechanism, records = problem.plan, problem.mechanism, ""
    if given.last is None and not given.score and mechanism.on_all_records() is not None:
        last: Any = operator.methodcaller("on_all_records")  # which states no split: it counts for everyone
        whole = within_limits(replace(problem, plan=replace(given, last=last)), **limits)
        noise = whole.short.score_deviation
        if noise is None or noise <= QUIET:
            return replace(whole, records=" It trains on all records, including those that score.")
        records = (
            f" It trains only on records that do not score; on all records, scores would have a noise of {noise:.2g}."
        )
    tuning = within_limits(problem, **limits)
    noise = tuning.short.score_deviation
    if noise is not None and mechanism.solves_for_scores:
        _validate.warn_of_score_noise(noise)
    return replace(tuning, records=records)


def within_limits(problem: NoiseProblem, *, compute: float | None, price: float, known: bool) -> Tuning:
    """The survey and the last run with their noise, within compute and price.

    Runs are longer than the default if so few steps would be left that nothing is learnt. They are shorter, and then
    fewer, if the compute or the price would be exceeded (``paper/RESULTS.md`` has the evidence).
    """
    given, mechanism, space = problem.plan, problem.mechanism, problem.space
    steps = steps_of(mechanism, space)
    plan = within_compute(given, space, steps, compute, known=known)
    largest, within = settings_within(mechanism, space, None if compute is None else compute / plan.compute)
    found = replace(problem, plan=plan, within=within)
    while given.fraction is None and found.price > price:
        assert plan.fraction is not None
        shorter = max(plan.fraction / 2, least_fraction(steps))
        if shorter < plan.fraction:
            plan = replace(plan, fraction=shorter)
        elif given.runs is None and (plan.runs or 0) > RUNS_OF_FEW_STEPS:
            plan = replace(plan, runs=RUNS_OF_FEW_STEPS)
        else:
            break
        found = replace(found, plan=plan)
    return replace(found.solve(), accepted=price, largest=largest)


def one_run(
    space: Space,
    mechanism: Mechanism,
    given: SurveyPlan,
    *,
    epsilon: float,
    delta: float,
    keep: Keep | None = None,
) -> Tuning:
    """One run with all of ε, at the λ that public values give: on all records, unless its score is asked for."""
    if not given.score:
        mechanism = (mechanism.on_all_records() or mechanism).without_score()
    problem = NoiseProblem(space, mechanism, replace(given, runs=0, fraction=None), None, epsilon, delta, keep)
    found, measured = problem.solve(), ""
    if problem.scale is not None:
        more = f"{100 * max(found.price, 0.0):.2g} % more noise"
        measured = f" and from the scale of the inputs, which is measured for {more}"
    why = f"No search: hyperparameters follow from public values{measured}. One run has all of ε."
    return replace(found, why=why)


def known_of(mechanism: Mechanism, space: Space) -> Known | None:
    """What is known about the only hyperparameter that is searched; None if several are, or nothing is known."""
    searched = [one.name for one in space.parameters if one.dimension.size != 1]
    found: Known | None = mechanism.known() if len(searched) == 1 else None
    return found if found is not None and searched == [found.name] else None


def prospect_of(
    mechanism: Mechanism, alone: Mechanism, space: Space, known: Known, epsilon: float, delta: float
) -> Prospect | None:
    """What a search of the known rate would bring; ``alone`` is the one run without it. None if runs are not DP-SGD."""
    run, records = dp_sgd_of(alone, space), records_of(alone)
    if run is None or records is None:
        return None
    signal = run.rate * records * math.sqrt(run.steps) / run.noise_multiplier
    bought = ScaleOfInputs.of(mechanism, epsilon=epsilon, delta=delta)
    spread = spread_at(known.spread, signal)
    spread = spread if bought is None else math.hypot(spread, bought.scale_noise.deviation)
    fraction = max(FRACTION_OF_ONE, least_fraction(run.steps))
    score, share = None if mechanism.score_event is None else mechanism.score_records, 0.0
    if score is not None and mechanism.on_all_records() is not None:
        share = score / (score + mechanism.records)
    return Prospect(signal, spread, total_in_gaussians(epsilon, delta), fraction, score, share)


def dp_sgd_of(mechanism: Mechanism, space: Space) -> SampledGaussian | None:
    """The run that the event of a mechanism states, at the first setting of the space; None if it is not DP-SGD."""
    event: Any = ideal(over_space.by_side(mechanism, space)[0][0])
    try:
        noise = event.event.event.noise_multiplier
        return SampledGaussian(rate=event.event.sampling_probability, steps=event.count, noise_multiplier=noise)
    except (AttributeError, TypeError):
        return None


@dataclass(frozen=True)
class NoiseProblem:
    """The smallest noise with which a survey and the run after it cost ε at δ.

    There is one unknown, σ: the full run has σ, a run of the fraction f has σ/√f. Where noise may depend on λ (batch
    size, number of steps), each run may be at another setting. So settings are calibrated *together*: ratios between
    them first, then one factor for all, such that the composition of the suprema over settings costs ε.

    Records that train and records that score are on different sides, and the whole costs the larger of the two. So
    if the noise of private scores is to be found too, that of training is found with scores that cost nothing, and
    that of the scores after it: the least that costs no more than training does.

    ``keep`` stores numbers that take long to compute, so that a resumed search has the same noise at once. ``spread``
    is that of the prior about a bought scale.
    """

    space: Space
    mechanism: Mechanism
    plan: SurveyPlan
    within: Within | None
    epsilon: float
    delta: float
    keep: Keep | None = field(default=None, repr=False)
    spread: float | None = None

    def __post_init__(self) -> None:
        self.mechanism.with_silent_scores()  # refuses scores that have no side of their own

    @property
    def price(self) -> float:
        """By how much the full run's noise exceeds that of one run without any tuning, as a fraction."""
        return self._factor / self._alone - 1

    def solve(self) -> Tuning:
        """The parts with their noise, what they cost, and the price."""
        full, sides = self._full(self._factor), self.mechanism.split
        if sides is not None and self.mechanism.solves_for_scores:
            silent = full
            found = solve_noise(
                lambda noise: cost_of(self.space, self._parts(silent.with_score_noise(noise))),
                epsilon=self.epsilon,
                delta=self.delta,
                side=sides.scoring,
                start=4 * math.sqrt(self.plan.runs or RUNS),
                largest=SILENT,
                keep=self.keep,
            )
            if round_epsilon(found.guarantee.epsilon(self.delta)) > self.epsilon:
                # A score of the last run may count for records that train: solve again, with this noise of scores.
                return replace(self, mechanism=self.mechanism.with_score_noise(found.value)).solve()
            full = silent.with_score_noise(found.value)
        parts = self._parts(full)
        return Tuning(self.plan, parts, cost_of(self.space, parts), self.epsilon, self.price)

    @cached_property
    def _alone(self) -> float:
        """The factor with which the last run alone costs ε."""
        return self._solved(1.0, tuned=False)

    @cached_property
    def _factor(self) -> float:
        """The factor on the noise of all settings with which the parts cost ε."""
        return self._solved(self._alone * 1.01, tuned=True)

    def _solved(self, start: float, *, tuned: bool) -> float:
        def at(factor: float) -> Composition:
            parts = self._parts(self._full(factor))
            return cost_of(self.space, parts if tuned else parts[-1:])

        budget: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "keep": self.keep}
        return solve_noise(at, start=start, decimals=None, **budget).value

    def _parts(self, full: Mechanism) -> tuple[Part, ...]:
        if self.scale is None:
            return self.plan.parts(full, within=self.within, counts=self.counts)
        return InputScale(self.scale, counts=self.counts, spread=self.spread), *self.plan.parts(
            full, within=self.within
        )

    @cached_property
    def scale(self) -> ScaleOfInputs | None:
        """What buys the scale of the inputs, if the range of the drift was left open for it."""
        if not left_open(self.space):
            return None
        return ScaleOfInputs.of(self._silent, epsilon=self.epsilon, delta=self.delta)

    @cached_property
    def counts(self) -> FitCount | None:
        """The noisy counts of the records that fit, which a fixed sliver of the total buys."""
        return FitCount.of(self.mechanism, epsilon=self.epsilon, delta=self.delta)

    def _full(self, factor: float) -> Mechanism:
        noise = scaled(self._ratios, factor)
        return self._silent.with_noise(noise[None] if set(noise) == {None} else noise)

    @cached_property
    def _silent(self) -> Mechanism:
        """The mechanism with scores so noisy that the training side decides the noise of training."""
        return self.mechanism.with_silent_scores()

    @cached_property
    def _ratios(self) -> dict[Hashable, float]:
        """For every setting the noise with which one full run at it costs ε; of one setting, the key is None."""
        found = self._silent.kinds(self.space)

        def the_event(noise: float) -> Any:
            return over_space.by_side(self._silent.with_noise(noise), self.space)[0][0]

        events: dict[Hashable, Callable[[float], Any]]
        events = {kind.key: kind.event for kind in found} if len(found) > 1 else {None: the_event}
        alone = {key: run_alone(event, self.mechanism.relation) for key, event in events.items()}
        return equal_noise(alone, epsilon=self.epsilon, delta=self.delta, keep=self.keep)


def least_fraction(steps: int | None) -> float:
    """The shortest run that still learns something; a hundredth if the number of steps is unknown."""
    return LEAST_FRACTION if steps is None else min(FEWEST_STEPS / steps, 1.0)


def within_compute(
    given: SurveyPlan, space: Space, steps: int | None, compute: float | None, *, known: bool = False
) -> SurveyPlan:
    """Runs and fraction: the defaults, longer where few steps are left, shorter or fewer where compute is short.

    Compute beyond that of the defaults makes more runs, not longer ones; of a single hyperparameter eight suffice. Of
    one that is nearly ``known``, the number of runs is that of its prior.
    """
    searched = [each for each in space.parameters if each.dimension.size != 1]
    one = len(searched) == 1 and given.runs is None
    runs, most = given.runs or (RUNS_OF_ONE if one else RUNS), RUNS_OF_ONE if one else MOST_RUNS
    least = least_fraction(steps)
    default = FRACTION_OF_ONE if one or known else FRACTION
    fraction = given.fraction if given.fraction is not None else max(default, least)
    if compute is not None:
        room = _validate.number(compute=compute) - 1
        if room <= 0:
            raise _validate.fail("compute", compute, "the last run alone takes 1: give more, such as 3")
        if given.fraction is None:
            fraction = min(fraction, max(room / runs, min(least, fraction)))
        if given.runs is None:
            runs = min(most, int(room / fraction + 1e-9))
        if runs * fraction > room + 1e-9 or runs < min(FEWEST_RUNS, given.runs or FEWEST_RUNS):
            few = max(runs, 1)
            raise UnreachableError(
                f"compute = {compute:g} is too little: {few} runs of {fraction:.3g} of the steps and the last run take "
                f"{1 + few * fraction:.3g}. Give more compute, or state SurveyPlan(runs=..., fraction=...)"
            )
    return replace(given, runs=runs, fraction=fraction)


def settings_within(mechanism: Mechanism, space: Space, most: float | None) -> tuple[float, Within | None]:
    """The compute of the longest full run, in those of the mechanism's own setting, and which λ are allowed.

    A mechanism that does not state its compute is assumed to need the same at every λ.
    """
    takes = mechanism.compute
    unit = float(takes({}))
    sizes = [float(size) / unit for size in over_space.everywhere(lambda params: [takes(params)], space)]
    if most is None or max(sizes) <= most * _ROUNDING:
        return max(sizes), None
    allowed = [size for size in sizes if size <= most * _ROUNDING]
    if not allowed:
        raise UnreachableError(
            f"compute is too little for any setting of the space: the smallest full run takes {min(sizes):.3g}, and "
            f"there is room for {most:.3g}. Give more compute, or add smaller settings"
        )
    return max(allowed), lambda params: bool(takes(params) / unit <= most * _ROUNDING)


def steps_of(mechanism: Mechanism, space: Space) -> int | None:
    """The fewest steps of a full run, as its events state them; None if they state none."""
    noisy = mechanism
    if mechanism.solves_for_scores:
        noisy = noisy.with_score_noise(1.0)
    if mechanism.can("noise_multiplier"):
        noisy = noisy.with_noise(1.0)
    events = [ideal(event) for event in over_space.by_side(noisy, space)[0]]
    # Where a record may train and score, the event of a run is that of training, then that of the score.
    events = [one.events[0] if isinstance(one, dp_accounting.ComposedDpEvent) else one for one in events]
    counts = [event.count for event in events if isinstance(event, dp_accounting.SelfComposedDpEvent)]
    return min(counts) if counts and len(counts) == len(events) else None
