"""Calibration: the knob that spends a total (ε, δ), and no more.

Each function solves for one public quantity, all others fixed. The result never exceeds the target, and lies within
1e-3 of it in ε (or at the end of the range that makes sense).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import dp_accounting

from dphypo import _validate
from dphypo.accounting.events import Event
from dphypo.accounting.guarantee import ADD_OR_REMOVE_ONE, UNIFORM, Guarantee, account
from dphypo.accounting.noise import DECIMALS, LARGEST, SMALLEST, Calibration, solve_noise, spend
from dphypo.accounting.policy import PolicyClass
from dphypo.accounting.solve import Knob
from dphypo.band import Band
from dphypo.band.band import BandLike
from dphypo.laws import Law


def calibrate(
    make_event: Callable[[float], Event | Sequence[Event]],
    runs: Law,
    band: BandLike = UNIFORM,
    *,
    epsilon: float,
    delta: float,
    relation: dp_accounting.NeighboringRelation = ADD_OR_REMOVE_ONE,
    policy: PolicyClass | str = PolicyClass.ANYTHING,
    first_from_prior: int = 0,
    smallest: float = SMALLEST,
    largest: float = LARGEST,
    decimals: int = DECIMALS,
) -> Calibration[Guarantee]:
    """The smallest noise multiplier with which the whole search is (``epsilon``, ``delta``)-DP.

    The noise multiplier has at most ``decimals`` decimals, and was accounted as it is: written down and read again, it
    costs no more.

    Args:
        make_event: the event of one run as a function of its noise multiplier; more noise must not cost more.
        runs: the law of T.
        band: the band (c, C).
        epsilon: the total ε of the search.
        delta: its δ.
        relation: which data sets are neighbours.
        policy: what the search rule may look at, as in :func:`account`.
        first_from_prior: how many of the first runs are drawn from the prior.
        smallest: the least noise multiplier that is tried.
        largest: the greatest.
        decimals: of the noise multiplier.

    >>> from dphypo.laws import Geometric
    >>> found = calibrate(dp_accounting.GaussianDpEvent, Geometric(mean=10), epsilon=2.0, delta=1e-6)
    >>> round(found.noise_multiplier, 2), 1.999 <= found.guarantee.epsilon(1e-6) <= 2.0
    (3.16, True)
    """
    _validate.function(make_event=make_event)
    smallest, largest = _validate.positive(smallest=smallest), _validate.positive(largest=largest)
    return solve_noise(
        lambda noise: account(
            make_event(noise), runs, band, relation=relation, policy=policy, first_from_prior=first_from_prior
        ),
        epsilon=epsilon,
        delta=delta,
        smallest=smallest,
        largest=largest,
        decimals=decimals,
        remedy="run fewer times (a smaller mean of T), use a narrower band, sample less or take fewer steps",
    )


def calibrate_band(
    event: Event | Sequence[Event],
    runs: Law,
    *,
    epsilon: float,
    delta: float,
    p: float | None = None,
    relation: dp_accounting.NeighboringRelation = ADD_OR_REMOVE_ONE,
    policy: PolicyClass | str = PolicyClass.ANYTHING,
    first_from_prior: int = 0,
    largest_ratio: float = 1e4,
) -> Calibration[Guarantee]:
    """The widest band that a total (ε, δ) allows: the value is C/c, and the band is that of the guarantee.

    Args:
        event: what is known of one run.
        runs: the law of T.
        epsilon: the total ε of the search.
        delta: its δ.
        p: the prior mass on which a density of the band can sit at C, so that c = 1/(1 − p + pC/c); left out, the band
            is symmetric, c = 1/C.
        relation: which data sets are neighbours.
        policy: what the search rule may look at, as in :func:`account`.
        first_from_prior: how many of the first runs are drawn from the prior.
        largest_ratio: the widest band that is tried.
    """
    if p is not None:
        _validate.within(0.0, 1.0, p=p)

    def band_of(ratio: float) -> Band:
        if ratio <= 1.0:
            return UNIFORM
        c = ratio**-0.5 if p is None else 1.0 / (1.0 - p + p * ratio)
        return Band(c, 1.0 / c if p is None else c * ratio)

    return _spend(
        lambda ratio: account(
            event, runs, band_of(ratio), relation=relation, policy=policy, first_from_prior=first_from_prior
        ),
        (1.0, largest_ratio),
        epsilon,
        delta,
        "add noise to the run, or run fewer times (a smaller mean of T): even uniform search costs that much",
    )


def calibrate_mean(
    event: Event | Sequence[Event],
    law_of: Callable[[float], Law],
    band: BandLike = UNIFORM,
    *,
    epsilon: float,
    delta: float,
    relation: dp_accounting.NeighboringRelation = ADD_OR_REMOVE_ONE,
    policy: PolicyClass | str = PolicyClass.ANYTHING,
    first_from_prior: int = 0,
    smallest: float = 1.001,
    largest: float = 1e6,
) -> Calibration[Guarantee]:
    """The largest mean number of runs that a total (ε, δ) allows.

    Args:
        event: what is known of one run.
        law_of: the law of T as a function of its mean, such as ``lambda mean: Geometric(mean=mean)``.
        band: the band (c, C).
        epsilon: the total ε of the search.
        delta: its δ.
        relation: which data sets are neighbours.
        policy: what the search rule may look at, as in :func:`account`.
        first_from_prior: how many of the first runs are drawn from the prior.
        smallest: the least mean that is tried.
        largest: the greatest.
    """
    return _spend(
        lambda mean: account(
            event, law_of(mean), band, relation=relation, policy=policy, first_from_prior=first_from_prior
        ),
        (smallest, largest),
        epsilon,
        delta,
        "add noise to the run or use a narrower band: even a single run costs that much",
    )


def _spend(
    guarantee_at: Callable[[float], Guarantee],
    ends: tuple[float, float],
    epsilon: float,
    delta: float,
    remedy: str,
) -> Calibration[Guarantee]:
    """Spend (ε, δ) by a knob whose first end is the safe one."""
    _validate.positive(epsilon=epsilon)
    _validate.within(0.0, 1.0, delta=delta)
    knob = Knob(guarantee_at, lambda made: made.epsilon(delta), start=ends[0], safe=ends[0], daring=ends[1])
    found = spend(knob, epsilon, delta, remedy)
    return Calibration(found.value, found.made, found.epsilon, delta)
