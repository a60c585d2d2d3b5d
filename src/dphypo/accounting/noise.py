"""Which noise makes these declared parts cost ε at δ: the one place that solves for it, keeps answers and checks them.

Callers give the guarantee of all parts as a function of one number, a noise multiplier or a factor on several. What is
returned was accounted for as it is: it never costs more than ε, and hardly less. Answers can be kept in a journal or in
a study of Optuna's. A kept answer is not trusted: it is solved for again unless it costs what was asked for.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, TypeAlias, TypeVar

import dp_accounting
import numpy as np

from dphypo import _validate
from dphypo.accounting import dp_library
from dphypo.accounting.composition import Composition, PublishedRuns, account_published
from dphypo.accounting.documents import to_json
from dphypo.accounting.dp_library import Relation
from dphypo.accounting.events import Event, ideal
from dphypo.accounting.guarantee import UNIFORM, Guarantee, PolicyClass, account
from dphypo.accounting.one_run import ADD_OR_REMOVE_ONE
from dphypo.accounting.profiles import Curve, Floats
from dphypo.accounting.sides import Side
from dphypo.accounting.solve import CLOSE, Calibration, Knob, round_epsilon, round_up
from dphypo.band.band import BandLike
from dphypo.errors import UnreachableError
from dphypo.laws import Law

Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made", bound=Guarantee | Composition)
SMALLEST, LARGEST = 0.05, 1e3
DECIMALS = 6  # of a noise multiplier
_FEW = np.array([2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0])
_LOOSE = 0.95  # of the noise by a Rényi bound is about what a loss distribution asks for
_RATIOS = 2e-2  # in ε: how exact the ratios between settings are; their common factor is solved for afterwards
Keep: TypeAlias = Callable[[Mapping[str, Any], Callable[[], float]], float]
"""Gives the answer to a question in public values: one that is kept, or what is solved for, which is kept then."""
REMEDY_OF_A_SEARCH = "run fewer times (a smaller mean of T), use a narrower band, sample less or take fewer steps"
REMEDY = "fewer runs, shorter or noisier ones, or less noise needed for the score (a larger share of records for it)"


def calibrate(
    make_event: Callable[[float], Event | Sequence[Event]],
    runs: Law,
    band: BandLike = UNIFORM,
    *,
    epsilon: float,
    delta: float,
    relation: Relation = ADD_OR_REMOVE_ONE,
    policy: PolicyClass | str = PolicyClass.ANYTHING,
    first_from_prior: int = 0,
    smallest: float = SMALLEST,
    largest: float = LARGEST,
    decimals: int = DECIMALS,
) -> Calibration[Guarantee]:
    """The smallest noise multiplier with which a whole search is (``epsilon``, ``delta``)-DP.

    Args:
        make_event: the event of one run as a function of its noise multiplier; more noise must not cost more.
        runs, band, relation, policy, first_from_prior: of the search, as in :func:`account`.
        epsilon, delta: the total of the search.
        smallest, largest: the range of noise multipliers that is tried.
        decimals: the noise multiplier has at most this many, so that writing it down changes nothing.

    >>> from dphypo.laws import Geometric
    >>> found = calibrate(dp_accounting.GaussianDpEvent, Geometric(mean=10), epsilon=2.0, delta=1e-6)
    >>> round(found.noise_multiplier, 2), 1.999 <= found.guarantee.epsilon(1e-6) <= 2.0
    (3.16, True)
    """
    _validate.function(make_event=make_event)
    with contextlib.suppress(ValueError):  # it may have no signature
        try:
            inspect.signature(make_event).bind(1.0)
        except TypeError as error:
            remedy = f"give a function of the noise multiplier alone ({error})"
            raise TypeError(f"make_event = {make_event!r} is not valid: {remedy}") from None
    return solve_noise(
        lambda noise: account(
            make_event(noise), runs, band, relation=relation, policy=policy, first_from_prior=first_from_prior
        ),
        epsilon=epsilon,
        delta=delta,
        smallest=_validate.positive(smallest=smallest),
        largest=_validate.positive(largest=largest),
        decimals=decimals,
        remedy=REMEDY_OF_A_SEARCH,
    )


def solve_noise(
    guarantee_at: Callable[[float], Made],
    *,
    epsilon: float,
    delta: float,
    side: Side | None = None,
    start: float | None = None,
    smallest: float = SMALLEST,
    largest: float = LARGEST,
    decimals: int | None = DECIMALS,
    close: float = CLOSE,
    keep: Keep | None = None,
    remedy: str = REMEDY,
) -> Calibration[Made]:
    """The smallest noise with which all that is released is (``epsilon``, ``delta``)-DP.

    Args:
        guarantee_at: the guarantee as a function of a noise multiplier, or of a factor on several; more of it must not
            cost more.
        epsilon, delta: what all that is released may cost together.
        side: count what its records meet, and nothing else.
        start: a first guess; by default a Rényi bound gives one.
        smallest, largest: the range that is searched. If even ``smallest`` costs less than ε, it is the answer.
        decimals: what is tried is rounded up to this many, so that it can be written down; None rounds nothing.
        close: how far below ε the answer may lie; more is quicker.
        keep: where answers are kept.
        remedy: what to do if not even ``largest`` is enough.

    Raises:
        UnreachableError: ``largest`` costs more than ε.

    >>> def plan_at(noise):  # ten runs of a tenth, then a full one
    ...     survey = account_published(dp_accounting.GaussianDpEvent(noise * 10), 10)
    ...     return Composition.of(survey, account_published(dp_accounting.GaussianDpEvent(noise), 1))
    >>> found = solve_noise(plan_at, epsilon=2.0, delta=1e-6)
    >>> round(found.value, 2), 1.999 <= found.guarantee.epsilon(1e-6) <= 2.0
    (2.34, True)
    """
    _validate.positive(epsilon=epsilon)
    _validate.positive(close=close)
    _validate.within(0.0, 1.0, delta=delta)

    def cost(made: Made) -> float:
        return made.epsilon(delta) if side is None else Composition.of(made).cost(side, delta)

    @cache
    def solve() -> Calibration[Made]:
        first = start if start is not None else _guess(guarantee_at, epsilon, delta)
        first = min(max(first, smallest), largest)
        return _spend(Knob(guarantee_at, cost, first, smallest, largest, decimals, close), epsilon, delta, remedy)

    if keep is None:
        return solve()
    question = {
        "noise for": [epsilon, delta, None if side is None else side.to_json()],
        "at 1": to_json(guarantee_at(1.0)),
        "searched": [start, smallest, largest, decimals, close],
    }
    value = keep(question, lambda: solve().value)
    if math.isfinite(value) and value >= smallest:
        made = guarantee_at(value)
        kept = Calibration(value, made, cost(made))
        # A search is solved for by its profile alone, which may leave as much again.
        exact = epsilon - kept.epsilon <= 2 * close or value == smallest
        if exact and round_epsilon(kept.epsilon) <= epsilon:
            return kept
    return solve()


def _spend(knob: Knob[Made], epsilon: float, delta: float, remedy: str) -> Calibration[Made]:
    """Solve for the value that spends ε; ``remedy`` says what to do if even the largest value costs more."""
    made = knob.make(knob.start)
    if isinstance(made, Guarantee) and made.run.has_losses:
        # Profile bounds are nearly always the smallest, and quick. If another turns out smaller, start again.
        quick: Knob[Made] = replace(knob, cost=lambda one: one.sharpest_epsilon(delta))  # type: ignore[union-attr]
        with contextlib.suppress(UnreachableError):
            found = quick.spend(epsilon, delta, remedy)
            exact = knob.cost(found.guarantee)
            if 0 <= found.epsilon - exact <= knob.close:
                return replace(found, epsilon=exact)
    return knob.spend(epsilon, delta, remedy)


def solve_settings(
    alone: Mapping[Key, Callable[[float], Guarantee | Composition]],
    guarantee_at: Callable[[Mapping[Key, float]], Made],
    *,
    epsilon: float,
    delta: float,
    keep: Keep | None = None,
    remedy: str = REMEDY,
) -> tuple[dict[Key, float], Calibration[Made]]:
    """The noise of every setting of a run (batch size, length) with which all that is released costs ε at δ.

    Each run may be at any setting, so that the parts cost the composition of the suprema over settings: more than if
    all were at one of them. Ratios come first: what each setting in ``alone`` needs if there were no other. One factor
    for all follows, by ``guarantee_at`` of the noise of every setting; it is returned with the noise multipliers.
    """
    total: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "keep": keep, "remedy": remedy}
    if len(alone) == 1:
        (key,) = alone
        found = solve_noise(lambda noise: guarantee_at({key: noise}), **total)
        return {key: found.value}, found
    ratios = equal_noise(alone, **total)
    found = solve_noise(lambda factor: guarantee_at(scaled(ratios, factor)), start=1.0, decimals=None, **total)
    return scaled(ratios, found.value), found


def scaled(ratios: Mapping[Key, float], factor: float) -> dict[Key, float]:
    """The noise of every setting at a common factor, rounded up so that it can be written down."""
    return {key: round_up(factor * ratio, DECIMALS) for key, ratio in ratios.items()}


def equal_noise(
    alone: Mapping[Key, Callable[[float], Guarantee | Composition]],
    *,
    epsilon: float,
    delta: float,
    keep: Keep | None = None,
    remedy: str = REMEDY,
) -> dict[Key, float]:
    """The noise of each setting with which it costs about ``epsilon`` alone: ratios, not noise to train with."""
    return {
        key: solve_noise(at, epsilon=epsilon, delta=delta, decimals=None, close=_RATIOS, keep=keep, remedy=remedy).value
        for key, at in alone.items()
    }


def run_alone(
    event: Callable[[float], Event], relation: Relation = ADD_OR_REMOVE_ONE
) -> Callable[[float], Composition]:
    """The guarantee of one published run as a function of its noise."""
    return lambda noise: Composition.of(account_published(event(noise), 1, relation=relation))


def _guess(guarantee_at: Callable[[float], Guarantee | Composition], epsilon: float, delta: float) -> float:
    """Where to start: by a Rényi bound, which is quick at any noise, where a loss distribution at little noise is not.

    A search counts as two of its runs, which is about what selection costs.
    """
    low, high = math.log(SMALLEST), math.log(LARGEST)
    for _ in range(12):
        middle = (low + high) / 2
        cost = _renyi(guarantee_at(math.exp(middle)), delta)
        if math.isinf(cost):
            return 1.0
        low, high = (middle, high) if cost > epsilon else (low, middle)
    return _LOOSE * math.exp(high)


def _renyi(whole: Guarantee | Composition, delta: float) -> float:
    """About what all parts cost, by few Rényi orders; infinite where an event has no such curve."""
    costs = []
    for met in Composition.of(whole).met.values():
        total = np.zeros(len(_FEW))
        for releases in met:
            worst = np.max([_curve(ideal(event), releases.relation) for event in releases.events], axis=0)
            total += (releases.count if isinstance(releases, PublishedRuns) else 2) * worst
        costs.append(Curve(_FEW, total).epsilon(delta)[0])
    return max(costs)


@lru_cache(maxsize=64)
def _curve(event: Event, relation: Relation) -> Floats:
    found = dp_library.curve(event, relation, _FEW) if isinstance(event, dp_accounting.DpEvent) else None
    return np.full(len(_FEW), np.inf) if found is None else found.epsilons
