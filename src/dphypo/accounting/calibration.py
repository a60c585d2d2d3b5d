"""Calibration: the knob that spends a total (ε, δ), and no more.

Each function solves for one public quantity, all others fixed. The result never exceeds the target, and lies within
1e-3 of it in ε (or at the end of the range that makes sense).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import dp_accounting

from dphypo import _validate
from dphypo.accounting.events import Event
from dphypo.accounting.guarantee import ADD_OR_REMOVE_ONE, UNIFORM, Guarantee, account
from dphypo.band import Band
from dphypo.errors import UnreachableError as UnreachableError
from dphypo.laws import Law

_CLOSE = 5e-4  # in ε: half of what is promised
_MOST_STEPS = 60


@dataclass(frozen=True)
class Calibration:
    """The value found, and the guarantee that it gives."""

    value: float
    guarantee: Guarantee
    epsilon: float
    delta: float

    @property
    def noise_multiplier(self) -> float:
        """The value found, by the name it has in :func:`calibrate`."""
        return self.value


def calibrate(
    make_event: Callable[[float], Event | Sequence[Event]],
    runs: Law,
    band: Band = UNIFORM,
    *,
    epsilon: float,
    delta: float,
    relation: dp_accounting.NeighboringRelation = ADD_OR_REMOVE_ONE,
    smallest: float = 0.05,
    largest: float = 1e3,
) -> Calibration:
    """The smallest noise multiplier with which the whole search is (``epsilon``, ``delta``)-DP.

    Args:
        make_event: the event of one run as a function of its noise multiplier; more noise must not cost more.
        runs: the law of T.
        band: the band (c, C).
        epsilon: the total ε of the search.
        delta: its δ.
        relation: which data sets are neighbours.
        smallest: the least noise multiplier that is tried.
        largest: the greatest.

    >>> from dphypo.laws import Geometric
    >>> found = calibrate(dp_accounting.GaussianDpEvent, Geometric(mean=10), epsilon=2.0, delta=1e-6)
    >>> round(found.noise_multiplier, 2), 1.999 <= found.guarantee.epsilon(1e-6) <= 2.0
    (3.16, True)
    """
    target = _Target(_validate.positive(epsilon=epsilon), _validate.within(0.0, 1.0, delta=delta))
    advice = "run fewer times (a smaller mean of T), use a narrower band, sample less or take fewer steps"
    return target.solve(
        lambda noise: account(make_event(noise), runs, band, relation=relation),
        min(max(1.0, smallest), largest),
        largest,
        smallest,
        advice,
    )


def calibrate_band(
    event: Event | Sequence[Event],
    runs: Law,
    *,
    epsilon: float,
    delta: float,
    p: float | None = None,
    relation: dp_accounting.NeighboringRelation = ADD_OR_REMOVE_ONE,
    largest_ratio: float = 1e4,
) -> Calibration:
    """The widest band that a total (ε, δ) allows: the value is C/c, and the band is that of the guarantee.

    Args:
        event: what is known of one run.
        runs: the law of T.
        epsilon: the total ε of the search.
        delta: its δ.
        p: the prior mass on which a density of the band can sit at C, so that c = 1/(1 − p + pC/c); left out, the band
            is symmetric, c = 1/C.
        relation: which data sets are neighbours.
        largest_ratio: the widest band that is tried.
    """
    target = _Target(_validate.positive(epsilon=epsilon), _validate.within(0.0, 1.0, delta=delta))
    if p is not None:
        _validate.within(0.0, 1.0, p=p)

    def band_of(ratio: float) -> Band:
        if ratio <= 1.0:
            return UNIFORM
        c = ratio**-0.5 if p is None else 1.0 / (1.0 - p + p * ratio)
        return Band(c, 1.0 / c if p is None else c * ratio)

    advice = "add noise to the run, or run fewer times (a smaller mean of T): even uniform search costs that much"
    return target.solve(
        lambda ratio: account(event, runs, band_of(ratio), relation=relation), 1.0, 1.0, largest_ratio, advice
    )


def calibrate_mean(
    event: Event | Sequence[Event],
    law_of: Callable[[float], Law],
    band: Band = UNIFORM,
    *,
    epsilon: float,
    delta: float,
    relation: dp_accounting.NeighboringRelation = ADD_OR_REMOVE_ONE,
    smallest: float = 1.001,
    largest: float = 1e6,
) -> Calibration:
    """The largest mean number of runs that a total (ε, δ) allows.

    Args:
        event: what is known of one run.
        law_of: the law of T as a function of its mean, such as ``lambda mean: Geometric(mean=mean)``.
        band: the band (c, C).
        epsilon: the total ε of the search.
        delta: its δ.
        relation: which data sets are neighbours.
        smallest: the least mean that is tried.
        largest: the greatest.
    """
    target = _Target(_validate.positive(epsilon=epsilon), _validate.within(0.0, 1.0, delta=delta))
    advice = "add noise to the run or use a narrower band: even a single run costs that much"
    return target.solve(
        lambda mean: account(event, law_of(mean), band, relation=relation), smallest, smallest, largest, advice
    )


@dataclass(frozen=True)
class _Target:
    epsilon: float
    delta: float
    bound: str | None = None  # the bound that counts; the smallest of all if left out
    factor: float = 2.0  # of the first step away from the start: less than 2 where the start is a good guess
    close: float = _CLOSE  # how far below the target the answer may lie, in ε

    def solve(
        self, guarantee_at: Callable[[float], Guarantee], start: float, safe: float, daring: float, advice: str
    ) -> Calibration:
        """Move the knob from the safe side towards the daring end, as far as the target allows.

        ε is monotone in the knob up to rounding; whatever is returned has been evaluated, so it never exceeds the
        target even where that fails. The search brackets outwards from ``start``: far ends can be slow to account.
        """
        if self.bound is None:
            guarantee_at = cache(guarantee_at)
        if self.bound is None and guarantee_at(start).run.has_losses:
            # The profile bound is nearly always the smallest, and quick. If another turns out smaller, start again.
            try:
                quick = replace(self, bound="profile").solve(guarantee_at, start, safe, daring, advice)
            except UnreachableError:
                pass
            else:
                epsilon = quick.guarantee.epsilon(self.delta)
                if quick.epsilon - epsilon <= self.close:
                    return replace(quick, epsilon=epsilon)
        found, beyond = self._bracket(guarantee_at, start, safe, daring)
        if found is None:
            raise UnreachableError(
                f"epsilon = {self.epsilon:g} at delta = {self.delta:g} cannot be reached: the smallest possible here "
                f"is {beyond.epsilon:.4g}. Remedy: {advice}; or allow a larger epsilon"
            )
        for step in range(_MOST_STEPS):
            if self.epsilon - found.epsilon <= self.close or beyond.epsilon <= self.epsilon:
                break
            value = self._between(found, beyond, bisect=step % 4 == 3)
            if value in (found.value, beyond.value):
                break
            middle = self._at(guarantee_at, value)
            found, beyond = (middle, beyond) if middle.epsilon <= self.epsilon else (found, middle)
        return found

    def _bracket(
        self, guarantee_at: Callable[[float], Guarantee], start: float, safe: float, daring: float
    ) -> tuple[Calibration | None, Calibration]:
        """The last value that meets the target and the first that does not, by doubling steps from ``start``.

        ``None`` if not even the safe end meets it; the same value twice if the daring end does.
        """
        current = self._at(guarantee_at, start)
        inside = current.epsilon <= self.epsilon
        end = daring if inside else safe
        factor = self.factor if end > start else 1 / self.factor
        while current.value != end:
            step = current.value * factor
            value = min(step, end) if factor > 1 else max(step, end)
            following = self._at(guarantee_at, value)
            if (following.epsilon <= self.epsilon) != inside:
                return (current, following) if inside else (following, current)
            current, factor = following, factor * factor
        return (current, current) if inside else (None, current)

    def _at(self, guarantee_at: Callable[[float], Guarantee], value: float) -> Calibration:
        guarantee = guarantee_at(value)
        epsilon = guarantee.profile_epsilon if self.bound == "profile" else guarantee.epsilon
        return Calibration(value, guarantee, epsilon(self.delta), self.delta)

    def _between(self, found: Calibration, beyond: Calibration, *, bisect: bool) -> float:
        """The next value to try: false position on log ε against the knob's logarithm, now and then the middle."""
        low, high = math.log(found.value), math.log(beyond.value)
        share = 0.5
        if not bisect and found.epsilon > 0 and math.isfinite(beyond.epsilon):
            aim = math.log((self.epsilon - self.close / 2) / found.epsilon)
            share = aim / math.log(beyond.epsilon / found.epsilon)
            share = min(max(share, 0.02), 0.98)
        return math.exp(low + share * (high - low))
