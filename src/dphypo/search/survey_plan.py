"""How many short runs, and how short: planned before anything runs, from public values alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import dp_accounting

from dphypo import _validate
from dphypo.accounting.events import ideal
from dphypo.accounting.noise import Keep
from dphypo.errors import UnreachableError
from dphypo.mechanisms import Mechanism, capabilities, over_space
from dphypo.search.declaration import Cost, Declaration, check_space
from dphypo.search.noise import NoiseProblem
from dphypo.search.optimiser import Pick, Within
from dphypo.search.optimiser import read as read_optimiser
from dphypo.search.part import Part
from dphypo.search.survey import LastRun, Survey
from dphypo.space import Space

RUNS, MOST_RUNS = 20, 40
FRACTION = 0.1
RUNS_OF_ONE, FRACTION_OF_ONE = 8, 0.05
"""Where a single hyperparameter is searched."""
FEWEST_STEPS = 30
"""Below about so many steps nothing is learnt, and short runs say nothing about long ones."""
RUNS_OF_FEW_STEPS = 15
"""Where short runs cannot be made shorter and cost more than is accepted."""
FEWEST_RUNS = 8
PRICE = 0.01
QUIET = 0.01
"""The last run trains on the records that score, too, where the noise of a score stays below this."""
_ROUNDING = 1 + 1e-9


@dataclass(frozen=True)
class SurveyPlan:
    """What is declared of a survey and the run after it; what is left out is planned.

    Args:
        runs: how many short runs.
        fraction: the part of a full run's steps that a short run makes; its noise is that of the full run over the
            square root of it.
        optimiser: what proposes λ: one of ``dphypo.samplers`` or ``optuna.samplers``; by default a Gaussian process.
        pick: where the last run is made, from the published table; by default where a posterior mean is best.
        fallback: λ of the last run if every short run failed; by default the middle of the prior.
        short: makes the short run of a full one, for a mechanism without ``at(fraction=..., match=True)``.
        last: makes the last run of the full one, if it is to be another. A mechanism that set records apart itself
            (``DPSGD(score="accuracy")``) trains it on all records where that is better; ``last=lambda full: full``
            keeps it to those that train. With a split of your own, give ``last=lambda full: full.at(data=...,
            records=...)``: on records that are not one side of the split it counts for both.
        score: whether the score of the last run is released. A private score is then paid for.
        models: a folder in which the models of the short runs are kept. They are paid for.
        durations: "public" declares that how long runs take does not depend on the data; results are then used as they
            arrive when runs are made side by side.

    >>> SurveyPlan(runs=10, fraction=0.05).compute
    1.5
    """

    runs: int | None = None
    fraction: float | None = None
    optimiser: Any = None
    pick: Pick | None = None
    fallback: Mapping[str, Any] | None = None
    short: Callable[[Mechanism], Mechanism] | None = None
    last: Callable[[Mechanism], Mechanism] | None = None
    score: bool = False
    models: str | Path | None = None
    durations: str = "secret"

    def __post_init__(self) -> None:
        if self.runs is not None:
            _validate.integer(at_least=1, runs=self.runs)
        if self.fraction is not None:
            _validate.within(0.0, 1.0, closed="right", fraction=self.fraction)
        read_optimiser(self.optimiser)
        _validate.flag(score=self.score)

    @property
    def compute(self) -> float:
        """Compute of the survey and the last run, in full runs."""
        return 1 + (self.runs or RUNS) * (self.fraction or FRACTION)

    def parts(self, full: Mechanism, *, within: Within | None = None) -> tuple[Survey, LastRun]:
        """The survey and the last run around a full run."""
        short = capabilities.shorten(full, self.fraction or FRACTION) if self.short is None else self.short(full)
        last = full if self.last is None else self.last(full)
        if full.split is not None and last.split == full.split:
            _refuse_other_records(full, last)
        survey = Survey(
            *(short, self.runs or RUNS, self.optimiser),
            models=self.models,
            durations=self.durations,
            within=within,
        )
        return survey, LastRun(last, self.pick, self.fallback, self.score, within)


@dataclass(frozen=True)
class Tuning:
    """A survey and a last run with their noise: what ``dphypo.tune`` runs.

    Args:
        survey: what was declared, with nothing left out.
        cost: the survey and the last run, and what they cost together.
        price, accepted: by how much the full run's noise exceeds that of one run without any tuning; what was accepted.
        largest: the compute of the longest full run that is allowed, in those of the mechanism's own setting.
        records: whom the last run trains on, in a sentence, where the mechanism set records apart itself.
    """

    survey: SurveyPlan
    cost: Cost
    price: float
    accepted: float = PRICE
    largest: float = 1.0
    records: str = ""

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.cost.parts

    @property
    def short(self) -> Mechanism:
        return self.parts[0].mechanism

    @property
    def full(self) -> Mechanism:
        return self.parts[-1].mechanism

    @property
    def compute(self) -> float:
        """The most compute that the survey and the last run can take together, in full runs."""
        return self.survey.compute * self.largest

    def declare(
        self, space: Space, delta: float, *, maximize: bool = True, private: bool = True, data_name: str | None = None
    ) -> Declaration:
        """The search that :func:`dphypo.tune` runs; ``Stages.of`` asks and tells, or shows the guarantee first."""
        public: dict[str, Any] = {"maximize": maximize, "private": private, "data_name": data_name}
        return Declaration.of(space, self.parts, delta=delta, cost=self.cost, **public)

    @property
    def summary(self) -> str:
        """What tuning costs, in a line, and how it would cost less, in another, where it costs much: public."""
        more, takes, part = 100 * max(self.price, 0.0), self.survey.compute - 1, self.survey.fraction
        noise, unit = f"{more:.2g}" if more < 100 else f"{more:.0f}", "run" if round(takes, 3) == 1 else "runs"
        kind = "full runs" if part == 1 else f"short runs of {part:.3g} of the steps"
        line = (
            f"Tuning costs {noise} % more noise and {takes:.3g} {unit} of compute: {self.survey.runs} {kind}, all "
            f"published, then one full run.{self.records}"
        )
        if self.largest != 1:
            line += f" Settings differ in compute: it is at most {self.compute:.3g} runs of the given setting, in all."
        if self.price > self.accepted:
            line += (
                f"\nThat is dear: {100 * self.accepted:.2g} % was accepted (price). It costs less with more steps (a "
                "smaller batch, or more epochs), fewer runs, more records or a larger epsilon; dphypo plan compares "
                "other designs."
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
    price: float = PRICE,
    keep: Keep | None = None,
) -> Tuning:
    """A survey and one run that cost ε at δ; number and length of the short runs where not given.

    Twenty runs of a tenth of the steps, up to forty where there is compute for them; for a single hyperparameter eight
    runs of a twentieth. Unless that leaves so few steps that nothing is learnt (then longer ones), or exceeds the
    compute or the price that is accepted (then shorter ones, at last fewer; for the price, not fewer than fifteen).
    ``paper/RESULTS.md`` has the evidence.

    Where the mechanism set records apart for its scores by itself, the last run trains on all records if the noise of a
    score stays below 0.01. It then counts for both sides, and the scores may cost only what the short runs cost.
    """
    given = SurveyPlan(runs=survey) if isinstance(survey, int) else SurveyPlan() if survey is None else survey
    given_type: object = given
    if not isinstance(given_type, SurveyPlan):
        raise _validate.fail("survey", survey, "give a dphypo.SurveyPlan, or the number of short runs")
    price = _validate.positive(price=price)
    _validate.warn_of_delta(_validate.delta(delta=delta), capabilities.records_of(mechanism))
    check_space(space)
    capabilities.check_is_mechanism(mechanism)
    over_space.check_fit(mechanism, space)

    steps = steps_of(mechanism, space)

    def planned(given: SurveyPlan) -> Tuning:
        def problem(plan: SurveyPlan) -> NoiseProblem:
            parts = partial(plan.parts, within=within)
            return NoiseProblem(space, mechanism, parts, plan.runs or RUNS, epsilon, delta, keep)

        plan = _within_compute(given, space, steps, compute)
        largest, within = _settings(mechanism, space, None if compute is None else compute / plan.compute)
        found = problem(plan)
        while given.fraction is None and found.price > price:
            assert plan.fraction is not None
            shorter = max(plan.fraction / 2, _least_fraction(steps))
            if shorter < plan.fraction:
                plan = replace(plan, fraction=shorter)
            elif given.runs is None and (plan.runs or 0) > RUNS_OF_FEW_STEPS:
                plan = replace(plan, runs=RUNS_OF_FEW_STEPS)
            else:
                break
            found = problem(plan)
        return Tuning(plan, found.solve(), found.price, price, largest)

    if given.last is None and capabilities.on_all_records(mechanism) is not None:
        whole = planned(replace(given, last=_on_all_records))  # which states no split: it counts for everyone
        noise = capabilities.score_deviation(whole.short)
        if noise is None or noise <= QUIET:
            return replace(whole, records=" It trains on all records, those that score included.")
        records = f" It trains on the records that do not score: on all, scores would have a noise of {noise:.2g}."
        tuning = replace(planned(given), records=records)
    else:
        tuning = planned(given)
    noise = capabilities.score_deviation(tuning.short)
    if noise is not None and capabilities.solves_for_scores(mechanism):
        _validate.warn_of_score_noise(noise, stacklevel=3)
    return tuning


def _on_all_records(full: Mechanism) -> Mechanism:
    whole = capabilities.on_all_records(full)
    assert whole is not None  # the plan asked
    return whole


def _least_fraction(steps: int | None) -> float:
    """The shortest run that still learns something."""
    return 0.0 if steps is None else min(FEWEST_STEPS / steps, 1.0)


def _within_compute(given: SurveyPlan, space: Space, steps: int | None, compute: float | None) -> SurveyPlan:
    """Runs and fraction: the defaults, longer where few steps are left, shorter or fewer where compute is short.

    Compute beyond that of the defaults makes more runs, not longer ones; of a single hyperparameter eight suffice.
    """
    searched = [each for each in space.parameters if each.dimension.size != 1]
    one = len(searched) == 1 and given.runs is None
    runs, most = given.runs or (RUNS_OF_ONE if one else RUNS), RUNS_OF_ONE if one else MOST_RUNS
    least = _least_fraction(steps)
    default = FRACTION_OF_ONE if one else FRACTION
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
                f"compute = {compute:g} is too little: {few} short runs of {fraction:.3g} of the steps and the last "
                f"run take {1 + few * fraction:.3g}, and fewer than {FEWEST_RUNS} say little. Give more compute, or "
                "state SurveyPlan(runs=..., fraction=...)"
            )
    return replace(given, runs=runs, fraction=fraction)


def _settings(mechanism: Mechanism, space: Space, most: float | None) -> tuple[float, Within | None]:
    """The compute of the longest full run, in those of the mechanism's own setting, and which λ are allowed.

    A mechanism that does not say what a run takes is taken to take the same at every λ.
    """
    if not isinstance(mechanism, capabilities.Compute):
        return 1.0, None
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
    if capabilities.solves_for_scores(mechanism):
        noisy = capabilities.with_score_noise(noisy, 1.0)
    if capabilities.can(mechanism, "noise_multiplier"):
        noisy = capabilities.with_noise(noisy, 1.0)
    events = [ideal(event) for event in over_space.by_side(noisy, space)[0]]
    counts = [event.count for event in events if isinstance(event, dp_accounting.SelfComposedDpEvent)]
    return min(counts) if counts and len(counts) == len(events) else None


def _refuse_other_records(full: Mechanism, last: Mechanism) -> None:
    """Refuse a last run on other records that keeps what was stated of the first ones."""
    if getattr(last, "data", None) is not getattr(full, "data", None):
        raise _validate.fail(
            "last",
            last,
            "it trains on other records than the survey, and states the same split: if those that score may be among "
            "them, state none (split=None), and it counts for both sides",
        )
