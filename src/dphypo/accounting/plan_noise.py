"""Calibration of a plan: one unknown, the noise of the full run, from which all other noise follows."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import dp_accounting
import numpy as np

from dphypo import _validate
from dphypo.accounting import dp_library
from dphypo.accounting.calibration import DECIMALS
from dphypo.accounting.events import Event, canonical
from dphypo.accounting.one_run import ADD_OR_REMOVE_ONE, Run, describe
from dphypo.accounting.profiles import epsilon_for
from dphypo.accounting.sides import PlanGuarantee, Term
from dphypo.accounting.solve import CLOSE, Knob
from dphypo.errors import UnreachableError

Key = TypeVar("Key", bound=Hashable)
_SMALLEST, _LARGEST = 0.05, 1e3
_FEW, _LOOSE = np.array([2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0]), 0.95
_CLOSE = 2e-2  # in ε: these are ratios, the factor makes up for it
_ADVICE = "fewer runs, shorter or noisier ones, or less noise needed for the score (a larger share of records for it)"

_CHEAPER = (
    "cheaper earlier stages (more noise, fewer runs, a smaller split), fewer runs in the last stage, or more noise on "
    "private scores"
)


@dataclass(frozen=True)
class PlanNoise:
    """The value found, and the guarantee of the plan at it."""

    value: float
    plan: PlanGuarantee
    epsilon: float
    delta: float


def calibrate_plan(
    plan_at: Callable[[float], PlanGuarantee],
    *,
    epsilon: float,
    delta: float,
    start: float = 1.0,
    step: float = 1.1,
    smallest: float = 0.05,
    largest: float = 1e3,
    close: float = CLOSE,
) -> PlanNoise:
    """The smallest value at which a plan is (``epsilon``, ``delta``)-DP, to within 1e-3 in ε and never more.

    Args:
        plan_at: the plan as a function of the value, a noise multiplier or a factor on several; more of it must not
            cost more.
        epsilon, delta: what all that the plan releases may cost together.
        start, step: a first guess, and the factor by which it may be off; good ones save time.
        smallest, largest: the range that is searched.
        close: how far below ``epsilon`` the answer may lie; more is quicker.

    >>> from dphypo.accounting.published import published
    >>> from dphypo.accounting.sides import Term
    >>> def plan_at(noise):  # ten runs of a tenth, then a full one
    ...     survey = published(dp_accounting.GaussianDpEvent(noise * 10), 10)
    ...     return PlanGuarantee((Term(survey), Term(published(dp_accounting.GaussianDpEvent(noise), 1))))
    >>> found = calibrate_plan(plan_at, epsilon=2.0, delta=1e-6)
    >>> round(found.value, 2), 1.999 <= found.plan.epsilon(1e-6) <= 2.0
    (2.34, True)
    """
    epsilon, delta = _validate.positive(epsilon=epsilon), _validate.within(0.0, 1.0, delta=delta)
    start = min(max(start, smallest), largest)
    knob = Knob(
        plan_at,
        lambda plan: plan.epsilon(delta),
        start=start,
        safe=largest,
        daring=smallest,
        factor=step,
        close=_validate.positive(close=close),
    )
    found = knob.spend(epsilon, unreachable=_unreachable(epsilon, delta))
    return PlanNoise(found.value, found.made, found.epsilon, delta)


def calibrate_last(
    earlier: Sequence[Term],
    last: Callable[[float], Sequence[Term]],
    *,
    epsilon: float,
    delta: float,
    smallest: float = _SMALLEST,
    largest: float = _LARGEST,
) -> PlanNoise:
    """The smallest noise multiplier of the last stage with which all stages together are (``epsilon``, ``delta``)-DP.

    Args:
        earlier: the terms of the stages before it.
        last: the terms of the last stage as a function of its noise multiplier; more noise must not cost more.
        epsilon, delta: what all stages may cost together.
        smallest, largest: the least and the greatest noise multiplier that is tried.

    >>> from dp_accounting import GaussianDpEvent
    >>> from dphypo.accounting import Term, account
    >>> from dphypo.laws import Geometric
    >>> first = account(GaussianDpEvent(20.0), Geometric(mean=30))
    >>> def last(noise):
    ...     return [Term(account(GaussianDpEvent(noise), Geometric(mean=10)))]
    >>> found = calibrate_last([Term(first)], last, epsilon=2.0, delta=1e-6)
    >>> 1.999 <= found.plan.epsilon(1e-6) <= 2.0
    True
    """
    epsilon, delta = _validate.positive(epsilon=epsilon), _validate.within(0.0, 1.0, delta=delta)
    if (spent := PlanGuarantee(tuple(earlier)).epsilon(delta)) > epsilon:
        raise UnreachableError(
            f"epsilon = {epsilon:g} at delta = {delta:g} cannot be reached: the earlier stages alone cost {spent:.4g}. "
            f"Remedy: {_CHEAPER}; or allow a larger epsilon"
        )
    knob = Knob(
        lambda noise: PlanGuarantee((*earlier, *last(noise))),
        lambda plan: plan.epsilon(delta),
        start=1.0,
        safe=largest,
        daring=smallest,
        decimals=DECIMALS,
    )
    found = knob.spend(epsilon, unreachable=_unreachable(epsilon, delta, _CHEAPER))
    return PlanNoise(found.value, found.made, found.epsilon, delta)


def equal_noise(
    events: Mapping[Key, Callable[[float], Event]],
    *,
    epsilon: float,
    delta: float,
    relation: dp_accounting.NeighboringRelation = ADD_OR_REMOVE_ONE,
) -> dict[Key, float]:
    """The noise of each setting with which one run at it costs the same, ``epsilon`` at ``delta``.

    These are ratios to start from, not noise to train with: several runs at settings of their choice cost the
    composition of the suprema over all settings, which is more than any setting costs alone. Multiply all of them by
    the factor that :func:`calibrate_plan` finds.

    Args:
        events: for each setting, the event of one run as a function of its noise multiplier.
        epsilon, delta: what one run costs.
        relation: which data sets are neighbours.
    """
    found: dict[Key, float] = {}
    epsilon, delta = _validate.positive(epsilon=epsilon), _validate.within(0.0, 1.0, delta=delta)
    for key, event in events.items():

        def cost(run: Run) -> float:
            return max(epsilon_for(profile, delta) for profile in dict.fromkeys(run.profiles))

        def one_run(value: float, event: Callable[[float], Event] = event) -> Run:
            return describe([event(value)], relation)

        start = _guess(event, epsilon, delta, relation)
        knob = Knob(one_run, cost, start=start, safe=_LARGEST, daring=_SMALLEST, factor=1.1, close=_CLOSE)
        found[key] = knob.spend(epsilon, unreachable=_unreachable(epsilon, delta)).value
    return found


def _guess(
    event: Callable[[float], Event], epsilon: float, delta: float, relation: dp_accounting.NeighboringRelation
) -> float:
    """Where to start: by a Rényi bound, which is quick at any noise, where a loss distribution at little noise is not.

    The bound is loose, so that a little less noise is enough.
    """
    low, high = math.log(_SMALLEST), math.log(_LARGEST)
    for _ in range(12):
        middle = (low + high) / 2
        stated = canonical(event(math.exp(middle)))
        if not isinstance(stated, dp_accounting.DpEvent):
            return 1.0
        curve = dp_library.curve(stated, relation, _FEW)
        if curve is not None and curve.epsilon(delta)[0] <= epsilon:
            high = middle
        else:
            low = middle
    return min(max(_LOOSE * math.exp(high), _SMALLEST), _LARGEST)


def _unreachable(epsilon: float, delta: float, remedy: str = _ADVICE) -> Callable[[float], str]:
    return lambda least: (
        f"epsilon = {epsilon:g} at delta = {delta:g} cannot be reached: the smallest possible here is {least:.4g}. "
        f"Remedy: {remedy}; or allow a larger epsilon"
    )
