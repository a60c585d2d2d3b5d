"""The noise of a plan, survey then one run: one unknown σ. The full run has σ, a run of the fraction f has σ/√f.

Where the noise of a run may depend on λ (batch size, number of steps), every setting has noise of its own, and the
runs of the survey and the last run may each be at another setting. So the settings are calibrated *together*: ratios
between them first, then one factor for all, such that the composition of the suprema over settings costs ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import dp_accounting

from dphypo import _validate
from dphypo.accounting import PlanGuarantee, Side, calibrate_plan, equal_noise
from dphypo.mechanisms import Mechanism, Split, over_space
from dphypo.space import Space
from dphypo.survey.terms import Within, terms_of

_DECIMALS = 6
_SILENT = 1e6  # noise at which a score costs nothing
CALIBRATE = "calibrate"

Cheap = Callable[[Any], Mechanism]
"""Another run from the full one: a short one, or one on more records."""


@dataclass(frozen=True)
class Noise:
    """What was solved for: both mechanisms with their noise, and what the plan costs.

    Args:
        short, full: what a run of the survey is, and the last run.
        guarantee: what all that is released reveals together.
        price: by how much the full run's noise exceeds that of one run without any tuning, as a fraction.
    """

    short: Mechanism
    full: Mechanism
    guarantee: PlanGuarantee
    price: float


def solve(
    space: Space,
    mechanism: Mechanism,
    cheap: Cheap,
    *,
    runs: int,
    epsilon: float,
    delta: float,
    last: Cheap | None = None,
    both_sides: bool = False,
    scored: bool = False,
    within: Within | None = None,
) -> Noise:
    """The smallest noise with which ``runs`` published short runs and one full run cost ε at δ.

    Args:
        space: what is tuned; every run may be at any λ of it.
        mechanism: the full run; ``at(noise_multiplier=...)`` returns it with that noise.
        cheap: makes the short run of a full one, for example ``lambda full: full.at(fraction=0.1, match=True)``.
        runs: how many short runs.
        epsilon, delta: what all that is released may cost together.
        last: makes the last run of the full one, if it is another.
        both_sides: whether the last run trains on the records that score, too.
        scored: whether the last run's score is released.
        within: hyperparameters for which it is false are never run.
    """
    epsilon, delta = _validate.positive(epsilon=epsilon), _validate.within(0.0, 1.0, delta=delta)
    scores = _Scores.of(mechanism)
    ratios = _ratios(scores.silent, space, epsilon, delta)

    def guarantee(full: Mechanism, count: int) -> PlanGuarantee:
        made = full if last is None else last(full)
        one = terms_of(made, space, 1, both_sides=both_sides, scored=scored, within=within)
        survey = terms_of(cheap(full), space, count, within=within) if count else ()
        return PlanGuarantee((*survey, *one))

    def with_noise(factor: float) -> Any:
        return _with_noise(scores.silent, ratios, factor)

    alone = calibrate_plan(lambda factor: guarantee(with_noise(factor), 0), epsilon=epsilon, delta=delta, step=1.02)
    found = calibrate_plan(
        lambda factor: guarantee(with_noise(factor), runs),
        epsilon=epsilon,
        delta=delta,
        start=alone.value * 1.01,
        step=1.02,
    )
    full = scores.heard(
        with_noise(found.value), lambda chosen: guarantee(chosen, runs), epsilon=epsilon, delta=delta, runs=runs
    )
    made = full if last is None else last(full)
    return Noise(cheap(full), made, guarantee(full, runs), found.value / alone.value - 1)


def _ratios(mechanism: Mechanism, space: Space, epsilon: float, delta: float) -> dict[Hashable, float]:
    """For every setting the noise with which one full run at it costs ε; of one setting, the key is None."""
    kinds: Any = getattr(mechanism, "kinds", None)
    found = kinds(space) if kinds is not None else []
    if len(found) > 1:
        return equal_noise(
            {kind.key: kind.event for kind in found}, epsilon=epsilon, delta=delta, relation=mechanism.relation
        )

    def event(noise: float) -> Any:
        events = over_space.by_side(_with_noise(mechanism, {None: 1.0}, noise), space)[0]
        return events[0]

    return equal_noise({None: event}, epsilon=epsilon, delta=delta, relation=mechanism.relation)


def _with_noise(mechanism: Mechanism, ratios: Mapping[Hashable, float], factor: float) -> Any:
    """The mechanism with this noise, rounded up: a resumed plan, declared anew elsewhere, finds the same numbers."""
    at: Any = getattr(mechanism, "at", None)
    if at is None:
        raise _validate.fail(
            "mechanism",
            mechanism,
            "its noise is to be found, and it has no method at(noise_multiplier=...) that returns the same training "
            "with that noise. dphypo.integrations.opacus.DPSGD has one; give one to a mechanism of your own, as in the "
            "docstring of dphypo.calibrate_stages",
        )
    noise = {key: _rounded_up(factor * ratio, _DECIMALS) for key, ratio in ratios.items()}
    return at(noise_multiplier=noise[None] if set(noise) == {None} else noise)


def silent(mechanism: Mechanism) -> Any:
    """The mechanism with scores that cost nothing, where the noise of its scores is yet to be found."""
    return _Scores.of(mechanism).silent


@dataclass(frozen=True)
class _Scores:
    """The noise of private scores, where it is to be solved for too."""

    mechanism: Any
    calibrate: bool

    @classmethod
    def of(cls, mechanism: Mechanism) -> _Scores:
        calibrate = getattr(mechanism, "score_noise_multiplier", None) == CALIBRATE
        replaces = mechanism.relation is dp_accounting.NeighboringRelation.REPLACE_ONE
        if calibrate and (replaces or mechanism.split is Split.SAME):
            raise _validate.fail(
                "score_noise_multiplier",
                CALIBRATE,
                "scores on the training records, or under REPLACE_ONE, have no side of their own: give a number, or "
                "score on records set apart by split_by_hash and add or remove one record",
            )
        return cls(mechanism, calibrate)

    @property
    def silent(self) -> Any:
        """The mechanism with scores so noisy that the training side decides the noise of training."""
        return self.mechanism.at(score_noise_multiplier=_SILENT) if self.calibrate else self.mechanism

    def heard(
        self,
        full: Any,
        guarantee: Callable[[Mechanism], PlanGuarantee],
        *,
        epsilon: float,
        delta: float,
        runs: int,
    ) -> Any:
        """The mechanism with the least noise on its scores at which the plan still costs ε."""
        if not self.calibrate:
            return full

        def at(noise: float) -> _ScoringSide:
            return _ScoringSide(guarantee(full.at(score_noise_multiplier=_rounded_up(noise, 4))))

        found = calibrate_plan(
            cast(Callable[[float], PlanGuarantee], at),
            epsilon=epsilon,
            delta=delta,
            start=4 * math.sqrt(runs),
            step=1.5,
            largest=_SILENT,
        )
        return full.at(score_noise_multiplier=_rounded_up(found.value, 4))


@dataclass(frozen=True)
class _ScoringSide:
    """A plan as records that score see it."""

    guarantee: PlanGuarantee

    def epsilon(self, delta: float) -> float:
        return self.guarantee.costs(delta)[Side.SCORING]


def _rounded_up(value: float, decimals: int) -> float:
    return float(math.ceil(value * 10**decimals) / 10**decimals)
