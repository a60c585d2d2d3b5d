"""The searches in one variable of the accountant. An answer has always been evaluated, and lies on the safe side."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic, TypeVar

from scipy.optimize import brentq

from dphypo.errors import UnreachableError

_PRECISION = 1e-6
_MOST_STEPS = 60
_SLOWEST, _FASTEST, _FURTHER = 1.02, 16.0, 1.02  # of the first step from the start
CLOSE = 5e-4  # in ε: how far below its target a calibration may stop

Costly = TypeVar("Costly")

_watcher: ContextVar[Callable[[float], object] | None] = ContextVar("watcher", default=None)


@contextlib.contextmanager
def watch(watcher: Callable[[float], object]) -> Iterator[None]:
    """Call ``watcher`` with the ε of every value that a :class:`Knob` tries inside."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def smallest(delta_at: Callable[[float], float], delta: float, *, top: float) -> float:
    """The smallest ε ≥ 0 at which a non-increasing function is at most ``delta``, rounded up by at most 2e-6.

    ``top`` ends the search: if the function is above ``delta`` even there, the answer is infinite. A value
    that is not a number counts as too large.
    """
    if delta_at(0.0) <= delta:
        return 0.0
    high = max(top, _PRECISION)
    if not delta_at(high) <= delta:
        return math.inf
    if delta == 0.0:  # it has no logarithm: the end of the support, from above
        low = 0.0
        while high - low > _PRECISION:
            middle = (low + high) / 2
            low, high = (low, middle) if delta_at(middle) <= 0 else (middle, high)
        return high
    least = math.ulp(0.0)  # δ can be zero, its logarithm cannot

    def excess(eps: float) -> float:
        return math.log(max(delta_at(eps), least)) - math.log(delta)

    root = brentq(excess, 0.0, high, xtol=_PRECISION / 4, maxiter=1000)
    step = _PRECISION / 2
    epsilon = min(float(root) + step, high)
    while not delta_at(epsilon) <= delta:
        step *= 2
        epsilon = min(epsilon + step, high)
    return epsilon


def round_up(value: float, decimals: int) -> float:
    """The next larger number with this many decimals; a number that has no more is left alone.

    >>> round_up(0.123401, 4), round_up(0.1234, 4)
    (0.1235, 0.1234)
    """
    scale = 10.0**decimals
    return math.ceil(round(value * scale, 3)) / scale


def round_epsilon(epsilon: float) -> float:
    """ε as it is written into a certificate: rounded up to five decimals, with room for other machines' rounding.

    >>> round_epsilon(1.23456)
    1.23457
    """
    return round_up(epsilon + 2e-6, 5) if 0 < epsilon < 1e9 else epsilon


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

    def spend(self, epsilon: float, delta: float, remedy: str) -> Calibration[Costly]:
        """Lower the knob as far as ``epsilon`` allows; an ``UnreachableError`` says that the largest value costs more.

        The returned value has been evaluated, so its reported ε never exceeds the target, even if ε is not monotone.
        """
        found, beyond = self._bracket(epsilon)
        if found is None:
            raise UnreachableError(
                f"epsilon = {epsilon:g} at delta = {delta:g} cannot be reached: the smallest possible here is "
                f"{beyond.epsilon:.4g}. Remedy: {remedy}; or allow a larger epsilon"
            )
        for step in range(_MOST_STEPS):
            if epsilon - found.epsilon <= self.close or round_epsilon(beyond.epsilon) <= epsilon:
                break
            middle = self._at(self._between(found, beyond, epsilon, bisect=step % 4 == 3))
            if middle.value in (found.value, beyond.value):
                break
            found, beyond = (middle, beyond) if round_epsilon(middle.epsilon) <= epsilon else (found, middle)
        return found

    def _bracket(self, epsilon: float) -> tuple[Calibration[Costly] | None, Calibration[Costly]]:
        """The last value that meets the target and the first that does not, by growing steps from the start.

        ``None`` if not even the largest value meets it; the same value twice if the smallest does.
        """
        current = self._at(self.start)
        inside = round_epsilon(current.epsilon) <= epsilon
        end = self._tried(self.smallest if inside else self.largest)
        # As if ε were inversely proportional to the knob, and a little further.
        factor = 2.0
        if 0 < current.epsilon < math.inf:
            factor = min(max(_FURTHER * max(current.epsilon / epsilon, epsilon / current.epsilon), _SLOWEST), _FASTEST)
        while current.value != end:
            if inside and epsilon - current.epsilon <= self.close:
                return current, current
            following = self._at(max(current.value / factor, end) if inside else min(current.value * factor, end))
            if (round_epsilon(following.epsilon) <= epsilon) != inside:
                return (current, following) if inside else (following, current)
            current, factor = following, factor * factor
        return (current, current) if inside else (None, current)

    def _tried(self, value: float) -> float:
        return value if self.decimals is None else round_up(value, self.decimals)

    def _at(self, value: float) -> Calibration[Costly]:
        value = self._tried(value)
        made = self.make(value)
        found = Calibration(value, made, self.cost(made))
        if watcher := _watcher.get():
            watcher(found.epsilon)
        return found

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
