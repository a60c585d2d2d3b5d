"""The solver for noise: the noise with which the declared parts cost ε at δ.

Callers give the guarantee of all parts as a function of one number, a noise multiplier or a factor on several. The
answer has itself been accounted for, so it never costs more than ε, and hardly less. Answers are remembered, and can be
stored in a journal or in an Optuna study. Such an answer is not trusted: it is checked, and solved for again unless it
fits.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any, Generic, TypeAlias, TypeVar

import dp_accounting
import numpy as np

from dphypo import _validate
from dphypo.accounting import dp_library
from dphypo.accounting.certificate import to_json
from dphypo.accounting.composition import Composition, PublishedRuns, Side, account_published
from dphypo.accounting.dp_library import Relation
from dphypo.accounting.events import Event, ideal
from dphypo.accounting.guarantee import UNIFORM, Guarantee, PolicyClass, account
from dphypo.accounting.one_run import ADD_OR_REMOVE_ONE
from dphypo.accounting.profiles import Curve, Floats, round_epsilon, round_up, show_epsilon
from dphypo.band.band import BandLike
from dphypo.errors import UnreachableError
from dphypo.laws import Law

_MOST_STEPS = 60
_FASTEST, _AIMED, _FURTHER = 16.0, 4, 1.02  # steps from the start: the first four aim at ε, the next go beyond
_JUMP = 1.001  # how closely a value is found below which ε is infinite
CLOSE = 5e-4  # in ε: how far below its target a calibration may stop
Costly = TypeVar("Costly")
Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made", bound=Guarantee | Composition)
SMALLEST, LARGEST = 0.05, 1e3
DECIMALS = 6  # of a noise multiplier
_FEW = np.array([2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0])
_LOOSE = 0.95  # of the noise by a Rényi bound is about what a loss distribution asks for
_RATIOS = 2e-2  # in ε: how exact the ratios between settings are; their common factor is solved for afterwards
Keep: TypeAlias = Callable[[Mapping[str, Any], Callable[[], float]], float]
"""Returns the stored answer to a question in public values; solves for it and stores it if there is none."""
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
) -> Calibration[Guarantee]:
    """The smallest noise multiplier with which a whole search is (``epsilon``, ``delta``)-DP.

    Args:
        make_event: the event of one run as a function of its noise multiplier; more noise must not cost more.
        runs, band, relation, policy, first_from_prior: of the search, as in :func:`account`.
        epsilon, delta: the total of the search.

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
        side: count only the terms that use its records.
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
    epsilon, delta = _validate.positive(epsilon=epsilon), _validate.positive_delta(delta=delta)
    close, smallest = _validate.positive(close=close), _validate.positive(smallest=smallest)
    largest, start = _validate.positive(largest=largest), None if start is None else _validate.positive(start=start)

    def cost(made: Made) -> float:
        return made.epsilon(delta) if side is None else Composition.of(made).cost(side, delta)

    @cache
    def solve() -> Calibration[Made]:
        first = start if start is not None else _guess(guarantee_at, epsilon, delta)
        first = min(max(first, smallest), largest)
        power = steepness(guarantee_at, first, delta)
        knob = Knob(guarantee_at, cost, first, smallest, largest, decimals, close, power)
        return _spend(knob, epsilon, delta, remedy)

    question = {
        "noise for": [epsilon, delta, None if side is None else side.to_json()],
        "at 1": to_json(guarantee_at(1.0)),
        "searched": [start, smallest, largest, decimals, close],
    }
    remembered = partial(_remembered, json.dumps(question, sort_keys=True), lambda: solve().value)
    value = remembered() if keep is None else keep(question, remembered)
    if math.isfinite(value) and value >= smallest:
        made = guarantee_at(value)
        kept = Calibration(value, made, cost(made))
        # A search is solved for by its profile alone, which may leave as much again.
        exact = epsilon - kept.epsilon <= 2 * close or value == smallest
        if exact and round_epsilon(kept.epsilon) <= epsilon:
            return kept
    return solve()


def _remembered(question: str, answer: Callable[[], float]) -> float:
    """The answer of this process to a question that was asked before; it is checked like any that was stored."""
    known = _answers(question)
    if not known:
        known.append(answer())
    return known[0]


@lru_cache(maxsize=256)
def _answers(question: str) -> list[float]:
    """Where the answer to a question is kept, once there is one."""
    return []


def _spend(knob: Knob[Made], epsilon: float, delta: float, remedy: str) -> Calibration[Made]:
    """Solve for the value that spends ε; ``remedy`` says what to do if even the largest value costs more."""
    search = _only_search(knob.make(knob.start))
    if search is not None and search.run.has_losses:
        # Profile bounds are nearly always the smallest, and quick. If another turns out smaller, start again.
        quick: Knob[Made] = replace(knob, cost=lambda one: _only_search(one).sharpest_epsilon(delta))  # type: ignore[union-attr]
        with contextlib.suppress(UnreachableError):
            found = quick.spend(epsilon, delta, remedy)
            exact = knob.cost(found.guarantee)
            if 0 <= found.epsilon - exact <= knob.close:
                return replace(found, epsilon=exact)
    return knob.spend(epsilon, delta, remedy)


def _only_search(made: Guarantee | Composition) -> Guarantee | None:
    """The search, if that is all that is released."""
    first, *others = Composition.of(made).terms
    return first.releases if not others and isinstance(first.releases, Guarantee) else None


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
    """A starting value, by a Rényi bound: it is quick at any noise, and a loss distribution is slow at little noise.

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


def steepness(guarantee_at: Callable[[float], Guarantee | Composition], noise: float, delta: float) -> float:
    """The p for which ε is about proportional to noise^(−p) near this noise: 1 for much noise, and more for little."""
    return _power(*((value, _renyi(guarantee_at(value), delta)) for value in (noise, 1.1 * noise)))


def _power(one: tuple[float, float], other: tuple[float, float]) -> float:
    """The p for which the ε of these two (noise, ε) are proportional to noise^(−p), if that is plausible; else 1."""
    (noise, epsilon), (other_noise, other_epsilon) = one, other
    if noise == other_noise or not (0 < epsilon < math.inf and 0 < other_epsilon < math.inf):
        return 1.0
    return min(max(math.log(epsilon / other_epsilon) / math.log(other_noise / noise), 0.25), 20.0)


def _renyi(whole: Guarantee | Composition, delta: float) -> float:
    """About what all parts cost, by few Rényi orders; infinite where an event has no such curve."""
    costs = []
    for charged in Composition.of(whole).charged.values():
        total = np.zeros(len(_FEW))
        for releases in charged:
            worst = np.max([_curve(ideal(event), releases.relation) for event in releases.events], axis=0)
            total += (releases.count if isinstance(releases, PublishedRuns) else 2) * worst
        costs.append(Curve(_FEW, total).epsilon(delta)[0])
    return max(costs)


@lru_cache(maxsize=64)
def _curve(event: Event, relation: Relation) -> Floats:
    found = dp_library.curve(event, relation, _FEW) if isinstance(event, dp_accounting.DpEvent) else None
    return np.full(len(_FEW), np.inf) if found is None else found.epsilons


@dataclass(frozen=True)
class Calibration(Generic[Costly]):
    """A value that was tried, the guarantee that it gives, and the ε that this costs."""

    value: float
    guarantee: Costly
    epsilon: float

    @property
    def noise_multiplier(self) -> float:
        """The value, by the name it usually has."""
        return self.value


@dataclass(frozen=True)
class Knob(Generic[Costly]):
    """A noise multiplier, or a factor on several: the larger it is, the less is spent."""

    make: Callable[[float], Costly]  # what a value of the knob makes, such as a guarantee
    cost: Callable[[Costly], float]  # the ε of what was made, as it will be reported
    start: float  # the first value that is tried; far ends can be slow to account
    smallest: float
    largest: float
    decimals: int | None = None  # values are rounded up before they are tried: what is found can be written down
    close: float = CLOSE  # how far below the target the answer may lie
    power: float = 1.0  # about: ε is proportional to the knob's value to minus this

    def spend(self, epsilon: float, delta: float, remedy: str) -> Calibration[Costly]:
        """Lower the knob as far as ``epsilon`` allows; an ``UnreachableError`` says that the largest value costs more.

        The returned value has been evaluated, so its reported ε never exceeds the target, even if ε is not monotone.
        """
        found, beyond = self._bracket(epsilon)
        if found is None:
            raise UnreachableError(
                f"epsilon = {epsilon:g} at delta = {delta:g} cannot be reached: the smallest possible here is "
                f"{show_epsilon(beyond.epsilon, 4)}. Remedy: {remedy}; or allow a larger epsilon"
            )
        for step in range(_MOST_STEPS):
            if epsilon - found.epsilon <= self.close or round_epsilon(beyond.epsilon) <= epsilon:
                break
            if math.isinf(beyond.epsilon) and found.value <= beyond.value * _JUMP:
                break  # of exact runs, ε is infinite from where e^ε times their slack exceeds δ
            middle = self._at(self._between(found, beyond, epsilon, bisect=step % 4 == 3))
            if middle.value in (found.value, beyond.value):
                break
            found, beyond = (middle, beyond) if round_epsilon(middle.epsilon) <= epsilon else (found, middle)
        return found

    def _bracket(self, epsilon: float) -> tuple[Calibration[Costly] | None, Calibration[Costly]]:
        """The last value within the target and the first beyond it, found by growing steps from the start.

        ``None`` if even the largest value is beyond it; the same value twice if even the smallest is within it.
        """
        current = self._at(self.start)
        inside = round_epsilon(current.epsilon) <= epsilon
        end = self._tried(self.smallest if inside else self.largest)
        target = max(epsilon - self.close / 2, epsilon / 2)
        power, factor = self.power, 1.0
        for step in itertools.count():
            if current.value == end:
                return (current, current) if inside else (None, current)
            if inside and epsilon - current.epsilon <= self.close:
                return current, current
            aim = 2.0
            if 0 < current.epsilon < math.inf:
                aim = min(max(current.epsilon / target, target / current.epsilon) ** (1 / power), _FASTEST)
            factor = aim if step < _AIMED else max(_FURTHER * aim, factor * factor)
            following = self._at(max(current.value / factor, end) if inside else min(current.value * factor, end))
            if (round_epsilon(following.epsilon) <= epsilon) != inside:
                return (current, following) if inside else (following, current)
            power = _power((current.value, current.epsilon), (following.value, following.epsilon))
            current = following
        raise AssertionError

    def _tried(self, value: float) -> float:
        return value if self.decimals is None else round_up(value, self.decimals)

    def _at(self, value: float) -> Calibration[Costly]:
        value = self._tried(value)
        made = self.make(value)
        return Calibration(value, made, self.cost(made))

    def _between(
        self, found: Calibration[Costly], beyond: Calibration[Costly], epsilon: float, *, bisect: bool
    ) -> float:
        """The next value to try: false position on log ε against the knob's logarithm, now and then the middle."""
        low, high = math.log(found.value), math.log(beyond.value)
        share = 0.5
        if not bisect and found.epsilon > 0 and math.isfinite(beyond.epsilon):
            aim = math.log((epsilon - self.close / 2) / found.epsilon)
            share = min(max(aim / math.log(beyond.epsilon / found.epsilon), 0.02), 0.98)
        return math.exp(low + share * (high - low))
