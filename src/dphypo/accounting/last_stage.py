"""Calibration of a search in stages: the noise of the last stage, given what the earlier ones cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from dphypo import _validate
from dphypo.accounting.calibration import UnreachableError, _Target
from dphypo.accounting.composition import Composition
from dphypo.accounting.guarantee import Guarantee


@dataclass(frozen=True)
class LastStage:
    """The noise found for the last stage, and the guarantee of all stages together."""

    noise_multiplier: float
    guarantee: Composition
    epsilon: float
    delta: float


def calibrate_last(
    earlier: Sequence[Guarantee],
    last: Callable[[float], Guarantee],
    *,
    epsilon: float,
    delta: float,
    smallest: float = 0.05,
    largest: float = 1e3,
) -> LastStage:
    """The smallest noise multiplier of the last stage with which all stages together are (``epsilon``, ``delta``)-DP.

    Args:
        earlier: the guarantees of the stages before it.
        last: the guarantee of the last stage as a function of its noise multiplier; more noise must not cost more.
        epsilon, delta: what all stages may cost together.
        smallest, largest: the least and the greatest noise multiplier that is tried.

    >>> from dp_accounting import GaussianDpEvent
    >>> from dphypo.accounting import account
    >>> from dphypo.laws import Geometric
    >>> first = account(GaussianDpEvent(20.0), Geometric(mean=30))
    >>> found = calibrate_last(
    ...     [first], lambda noise: account(GaussianDpEvent(noise), Geometric(mean=10)), epsilon=2.0, delta=1e-6)
    >>> 1.999 <= found.guarantee.epsilon(1e-6) <= 2.0
    True
    """
    target = _Target(_validate.positive(epsilon=epsilon), _validate.within(0.0, 1.0, delta=delta), bound="composition")
    advice = "cheaper earlier stages (more noise, fewer runs, a smaller split), or fewer runs in the last stage"
    if (spent := Composition(tuple(earlier)).epsilon(delta)) > epsilon:
        raise UnreachableError(
            f"epsilon = {epsilon:g} at delta = {delta:g} cannot be reached: the earlier stages alone cost {spent:.4g}. "
            f"Remedy: {advice}; or allow a larger epsilon"
        )
    found = target.solve(
        lambda noise: cast(Guarantee, Composition((*earlier, last(noise)))), 1.0, largest, smallest, advice
    )
    return LastStage(found.value, cast(Composition, found.guarantee), found.epsilon, delta)
