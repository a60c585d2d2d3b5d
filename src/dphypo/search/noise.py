"""The noise of a plan, surveys then one run: one unknown σ. The full run has σ, a run of the fraction f has σ/√f.

Where the noise of a run may depend on λ (batch size, number of steps), every setting has noise of its own, and the
runs of the survey and the last run may each be at another setting. So the settings are calibrated *together*: ratios
between them first, then one factor for all, such that the composition of the suprema over settings costs ε.

What takes long is kept, so that a plan that is resumed has the very same noise at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dphypo import _validate
from dphypo.accounting import Composition, Keep, equal_noise, round_up, run_alone, solve_noise
from dphypo.mechanisms import Mechanism, capabilities, over_space
from dphypo.search.score_noise import Scores
from dphypo.search.terms import Within, terms_of
from dphypo.space import Space

_DECIMALS = 6

Cheap = Callable[[Mechanism], Mechanism]
"""Another run from the full one: a short one, or one on more records."""


@dataclass(frozen=True)
class Noise:
    """What was solved for: all mechanisms with their noise, and what the plan costs.

    Args:
        short: what a run of the survey is.
        full: the last run.
        guarantee: what all that is released reveals together.
        price: by how much the full run's noise exceeds that of one run without any tuning, as a fraction.
    """

    short: Mechanism
    full: Mechanism
    guarantee: Composition
    price: float


@dataclass(frozen=True)
class Problem:
    """The smallest noise with which published short runs and one full run cost ε at δ.

    Args:
        space: what is tuned; every run may be at any λ of it.
        mechanism: the full run; ``at(noise_multiplier=...)`` returns it with that noise.
        short: makes the short run of the full one: ``lambda full: full.at(fraction=0.1, match=True)``.
        runs: how many short runs there are.
        epsilon, delta: what all that is released may cost together.
        last: makes the last run of the full one, if it is another.
        both_sides: whether the last run trains on the records that score, too.
        scored: whether the last run's score is released.
        within: hyperparameters for which it is false are never run.
        keep: where numbers that take long are kept.
    """

    space: Space
    mechanism: Mechanism
    short: Cheap
    runs: int
    epsilon: float
    delta: float
    last: Cheap | None = None
    both_sides: bool = False
    scored: bool = False
    within: Within | None = None
    keep: Keep | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _validate.positive(epsilon=self.epsilon)
        _validate.within(0.0, 1.0, delta=self.delta)
        if self.last is not None and not self.both_sides and self.mechanism.split is not None:
            _refuse_other_records(self.mechanism, self.last(self.mechanism))

    @property
    def price(self) -> float:
        """By how much the full run's noise exceeds that of one run without any tuning, as a fraction."""
        return self._factor / self._alone - 1

    def solve(self) -> Noise:
        """The mechanisms with their noise, accounted for."""
        full = self._with_noise(self._factor)
        if self._scores.calibrate:
            full = self._scores.noise(
                full,
                lambda chosen: self._guarantee(chosen, self.runs),
                epsilon=self.epsilon,
                delta=self.delta,
                runs=self.runs,
                keep=self.keep,
            )
        made = full if self.last is None else self.last(full)
        return Noise(self.short(full), made, self._guarantee(full, self.runs), self.price)

    @cached_property
    def _scores(self) -> Scores:
        return Scores.of(self.mechanism)

    @cached_property
    def _alone(self) -> float:
        """The factor of one run without any tuning."""
        return self._solved(0, 1.0)

    @cached_property
    def _factor(self) -> float:
        """The factor on the noise of all settings with which the plan costs ε."""
        return self._solved(self.runs, self._alone * 1.01)

    def _solved(self, runs: int, start: float) -> float:
        return solve_noise(
            lambda factor: self._guarantee(self._with_noise(factor), runs),
            epsilon=self.epsilon,
            delta=self.delta,
            start=start,
            decimals=None,
            keep=self.keep,
        ).value

    def _guarantee(self, full: Mechanism, runs: int) -> Composition:
        terms = terms_of(self.short(full), self.space, runs, within=self.within) if runs else ()
        made = full if self.last is None else self.last(full)
        one = terms_of(made, self.space, 1, both_sides=self.both_sides, scored=self.scored, within=self.within)
        return Composition((*terms, *one))

    def _with_noise(self, factor: float) -> Mechanism:
        return _with_noise(self._scores.silent, self._ratios, factor)

    @cached_property
    def _ratios(self) -> dict[Hashable, float]:
        """For every setting the noise with which one full run at it costs ε; of one setting, the key is None."""
        mechanism, relation = self._scores.silent, self.mechanism.relation
        found = capabilities.kinds_of(mechanism, self.space)

        def the_event(noise: float) -> Any:
            return over_space.by_side(_with_noise(mechanism, {None: 1.0}, noise), self.space)[0][0]

        events: dict[Hashable, Callable[[float], Any]]
        events = {kind.key: kind.event for kind in found} if len(found) > 1 else {None: the_event}
        alone = {key: run_alone(event, relation) for key, event in events.items()}
        return equal_noise(alone, epsilon=self.epsilon, delta=self.delta, keep=self.keep)


def _with_noise(mechanism: Mechanism, ratios: Mapping[Hashable, float], factor: float) -> Mechanism:
    """The mechanism with this noise, rounded up."""
    noise = {key: round_up(factor * ratio, _DECIMALS) for key, ratio in ratios.items()}
    return capabilities.with_noise(mechanism, noise[None] if set(noise) == {None} else noise)


def _refuse_other_records(full: Mechanism, last: Mechanism) -> None:
    """Refuse a last run on other records that keeps what was stated of the first ones."""
    if last.split == full.split and getattr(last, "data", None) is not getattr(full, "data", None):
        raise _validate.fail(
            "both_sides",
            False,
            "last= trains on other records than the survey, and scores look at private ones: if those that score may "
            "be among them, the last run counts for both sides, so give both_sides=True",
        )
