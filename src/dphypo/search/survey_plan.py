"""A survey and the run after it, planned from public values: how many short runs, how short, and with which noise."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import dp_accounting

from dphypo import _validate
from dphypo.accounting import solve_noise
from dphypo.accounting.events import ideal
from dphypo.accounting.noise import Keep, equal_noise, run_alone, scaled
from dphypo.accounting.solve import round_epsilon
from dphypo.errors import UnreachableError
from dphypo.mechanisms import Mechanism, over_space
from dphypo.mechanisms.mechanism import CALIBRATE
from dphypo.search.declaration import Cost
from dphypo.search.proposer import Pick, Within
from dphypo.search.proposer import read as read_proposer
from dphypo.search.survey import LastRun, Survey
from dphypo.space import Space

RUNS, MOST_RUNS, FEWEST_RUNS = 20, 40, 8
FRACTION = 0.1
RUNS_OF_ONE, FRACTION_OF_ONE = 8, 0.05
"""Where a single hyperparameter is searched."""
FEWEST_STEPS = 30
"""With fewer steps than about this, nothing is learnt, and short runs say nothing about long ones."""
LEAST_FRACTION = 0.01
_ROUNDING = 1 + 1e-9
_SILENT = 1e6  # noise at which a score costs nothing


@dataclass(frozen=True)
class SurveyPlan:
    """What is declared of a survey and the run after it; what is left out is planned.

    Args:
        runs: how many short runs.
        fraction: the part of a full run's steps that a short run makes; its noise is that of the full run over the
            square root of it.
        proposer, models, durations: of the survey, as for :class:`dphypo.Survey`.
        pick, fallback, score: of the last run, as for :class:`dphypo.LastRun`.
        short: makes the short run of a full one, for a mechanism without ``at(fraction=..., match=True)``.
        last: makes the last run of the full one, if it is to be another. A mechanism that set records apart itself
            (``DPSGD(score="accuracy")``) trains it on all records where that is better and ``score`` is not asked for;
            ``last=lambda full: full`` keeps it to those that train. With a split of your own, give
            ``last=lambda full: full.at(data=..., records=...)``: on records that are not one side of the split it
            counts for both.

    >>> SurveyPlan(runs=10, fraction=0.05).compute
    1.5
    """

    runs: int | None = None
    fraction: float | None = None
    proposer: Any = None
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
        read_proposer(self.proposer)
        _validate.flag(score=self.score)

    @property
    def compute(self) -> float:
        """Compute of the survey and the last run, in full runs."""
        return 1 + (self.runs or RUNS) * (self.fraction or FRACTION)

    def parts(self, full: Mechanism, *, within: Within | None = None) -> tuple[Survey, LastRun]:
        """The survey and the last run around a full run."""
        short = full.shorten(self.fraction or FRACTION) if self.short is None else self.short(full)
        last = full if self.last is None else self.last(full)
        same = full.split is not None and last.split == full.split
        if same and getattr(last, "data", None) is not getattr(full, "data", None):
            remedy = "it states the survey's split, and trains on other records than the survey: if those that score "
            remedy += "may be among them, state none (split=None), and it counts for both sides"
            raise _validate.fail("last", last, remedy)
        declared: dict[str, Any] = {"models": self.models, "durations": self.durations, "within": within}
        survey = Survey(short, self.runs or RUNS, self.proposer, **declared)
        return survey, LastRun(last, self.pick, self.fallback, self.score, within)


@dataclass(frozen=True)
class NoiseProblem:
    """The smallest noise with which a survey and the run after it cost ε at δ.

    There is one unknown, σ: the full run has σ, a run of the fraction f has σ/√f. Where noise may depend on λ (batch
    size, number of steps), each run may be at another setting. So settings are calibrated *together*: ratios between
    them first, then one factor for all, such that the composition of the suprema over settings costs ε.

    Records that train and records that score are on different sides, and the whole costs the larger of the two. So
    where the noise of private scores is to be found too, that of training is found with scores that cost nothing, and
    that of the scores after it: as little as costs no more than training does.

    ``keep`` keeps numbers that take long, so that a search that goes on has the very same noise at once.
    """

    space: Space
    mechanism: Mechanism
    plan: SurveyPlan
    within: Within | None
    epsilon: float
    delta: float
    keep: Keep | None = field(default=None, repr=False)
    _tried: dict[tuple[bool, float], Cost] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        replaces = self.mechanism.relation is dp_accounting.NeighboringRelation.REPLACE_ONE
        if self.mechanism.solves_for_scores and (replaces or self.mechanism.split is None):
            remedy = "under REPLACE_ONE, or on records that may train too, scores have no side of their own: give a "
            remedy += "number, or score on records that split_by_hash or split=dphypo.Split(...) sets apart"
            raise _validate.fail("score_noise_multiplier", CALIBRATE, remedy)

    @property
    def price(self) -> float:
        """By how much the full run's noise exceeds that of one run without any tuning, as a fraction."""
        return self._factor / self._alone - 1

    def solve(self) -> tuple[Cost, float]:
        """The parts with their noise, and the price."""
        sides = self.mechanism.split
        if sides is None or not self.mechanism.solves_for_scores:
            return self._at(self._factor), self.price
        full = self._full(self._factor)

        @functools.cache
        def scored(noise: float) -> Cost:
            return Cost.of(self.space, self.plan.parts(full.with_score_noise(noise), within=self.within))

        found = solve_noise(
            lambda noise: scored(noise).guarantee,
            epsilon=self.epsilon,
            delta=self.delta,
            side=sides.scoring,
            start=4 * math.sqrt(self.plan.runs or RUNS),
            largest=_SILENT,
            keep=self.keep,
        )
        cost = scored(found.value)
        if round_epsilon(cost.guarantee.epsilon(self.delta)) <= self.epsilon:
            return cost, self.price
        # A score of the last run may count for records that train: their noise is solved for again, with that score.
        return replace(self, mechanism=self.mechanism.with_score_noise(found.value)).solve()

    @cached_property
    def _alone(self) -> float:
        return self._solved(1.0, tuned=False)

    @cached_property
    def _factor(self) -> float:
        """The factor on the noise of all settings with which the parts cost ε."""
        return self._solved(self._alone * 1.01, tuned=True)

    def _solved(self, start: float, *, tuned: bool) -> float:
        budget: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "keep": self.keep}
        at = partial(self._at, tuned=tuned)
        return solve_noise(lambda factor: at(factor).guarantee, start=start, decimals=None, **budget).value

    def _at(self, factor: float, *, tuned: bool = True) -> Cost:
        """The survey and the last run with noise times a factor; the last run alone if not ``tuned``."""
        if (tuned, factor) not in self._tried:
            parts = self.plan.parts(self._full(factor), within=self.within)
            self._tried[tuned, factor] = Cost.of(self.space, parts if tuned else parts[-1:])
        return self._tried[tuned, factor]

    def _full(self, factor: float) -> Mechanism:
        noise = scaled(self._ratios, factor)
        return self._silent.with_noise(noise[None] if set(noise) == {None} else noise)

    @cached_property
    def _silent(self) -> Mechanism:
        """The mechanism with scores so noisy that the training side decides the noise of training."""
        mechanism = self.mechanism
        return mechanism.with_score_noise(_SILENT) if mechanism.solves_for_scores else mechanism

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
    """The shortest run that still learns something; where the number of steps is unknown, a hundredth."""
    return LEAST_FRACTION if steps is None else min(FEWEST_STEPS / steps, 1.0)


def within_compute(given: SurveyPlan, space: Space, steps: int | None, compute: float | None) -> SurveyPlan:
    """Runs and fraction: the defaults, longer where few steps are left, shorter or fewer where compute is short.

    Compute beyond that of the defaults makes more runs, not longer ones; of a single hyperparameter eight suffice.
    """
    searched = [each for each in space.parameters if each.dimension.size != 1]
    one = len(searched) == 1 and given.runs is None
    runs, most = given.runs or (RUNS_OF_ONE if one else RUNS), RUNS_OF_ONE if one else MOST_RUNS
    least = least_fraction(steps)
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
                f"compute = {compute:g} is too little: {few} runs of {fraction:.3g} of the steps and the last run take "
                f"{1 + few * fraction:.3g}. Give more compute, or state SurveyPlan(runs=..., fraction=...)"
            )
    return replace(given, runs=runs, fraction=fraction)


def settings_within(mechanism: Mechanism, space: Space, most: float | None) -> tuple[float, Within | None]:
    """The compute of the longest full run, in those of the mechanism's own setting, and which λ are allowed.

    A mechanism that does not say what a run takes is taken to take the same at every λ.
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
