"""The noise of a survey and the run after it: one unknown σ. The full run has σ, a run of the fraction f has σ/√f.

Where the noise of a run may depend on λ (batch size, number of steps), every setting has noise of its own, and the
runs of the survey and the last run may each be at another setting. So the settings are calibrated *together*: ratios
between them first, then one factor for all, such that the composition of the suprema over settings costs ε.

Records that train and records that score are on different sides, and the whole costs the larger of the two sides. So
where the noise of private scores is to be found too, that of training is found with scores that cost nothing, and that
of the scores after it: as little as costs no more than training does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import dp_accounting

from dphypo import _validate
from dphypo.accounting import Composition, solve_noise
from dphypo.accounting.noise import Keep, equal_noise, run_alone
from dphypo.accounting.solve import round_up
from dphypo.mechanisms import Mechanism, capabilities, over_space
from dphypo.search.declaration import Cost
from dphypo.search.part import Part
from dphypo.space import Space

_DECIMALS = 6
_SILENT = 1e6  # noise at which a score costs nothing

Parts = Callable[[Mechanism], Sequence[Part]]
"""The parts of a search, as a function of the full run."""


@dataclass(frozen=True)
class Solved:
    """Parts with their noise, and what they cost."""

    parts: tuple[Part, ...]
    cost: Cost


@dataclass(frozen=True)
class NoiseProblem:
    """The smallest noise with which published runs of one training, short and full, cost ε at δ.

    Args:
        space: what is tuned; every run may be at any λ of it.
        mechanism: the full run; ``at(noise_multiplier=...)`` returns it with that noise.
        parts: the parts, given the full run; the last one is the full run itself.
        runs: about how many scores are published.
        epsilon, delta: what all that is released may cost together.
        keep: where numbers that take long are kept, so that a search that goes on has the very same noise at once.
    """

    space: Space
    mechanism: Mechanism
    parts: Parts
    runs: int
    epsilon: float
    delta: float
    keep: Keep | None = field(default=None, repr=False)
    _tried: dict[tuple[bool, Hashable], Solved] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _validate.positive(epsilon=self.epsilon)
        _validate.within(0.0, 1.0, delta=self.delta)
        replaces = self.mechanism.relation is dp_accounting.NeighboringRelation.REPLACE_ONE
        if self._calibrates_scores and (replaces or self.mechanism.split is None):
            raise _validate.fail(
                "score_noise_multiplier",
                capabilities.CALIBRATE,
                "under REPLACE_ONE, or on records that may train too, scores have no side of their own: give a number, "
                "or score on records that split_by_hash or a rule of your own (split=dphypo.Split(...)) sets apart",
            )

    @property
    def price(self) -> float:
        """By how much the full run's noise exceeds that of one run without any tuning, as a fraction."""
        return self._factor / self._alone - 1

    def solve(self) -> Solved:
        """The parts with their noise, accounted for."""
        sides = self.mechanism.split
        if not self._calibrates_scores or sides is None:
            return self._at(self._factor)
        noise = solve_noise(
            lambda noise: self._scored(noise).cost.guarantee,
            epsilon=self.epsilon,
            delta=self.delta,
            side=sides.scoring,
            start=4 * math.sqrt(self.runs),
            largest=_SILENT,
            keep=self.keep,
        ).value
        return self._scored(noise)

    @cached_property
    def _alone(self) -> float:
        """The factor of one run without any tuning."""
        return self._solved(1.0, tuned=False)

    @cached_property
    def _factor(self) -> float:
        """The factor on the noise of all settings with which the parts cost ε."""
        return self._solved(self._alone * 1.01, tuned=True)

    def _solved(self, start: float, *, tuned: bool) -> float:
        def guarantee_at(factor: float) -> Composition:
            return self._at(factor, tuned=tuned).cost.guarantee

        budget: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "keep": self.keep}
        return solve_noise(guarantee_at, start=start, decimals=None, **budget).value

    def _at(self, factor: float, *, tuned: bool = True) -> Solved:
        return self._made((tuned, factor), self._full(factor), tuned=tuned)

    def _scored(self, noise: float) -> Solved:
        """The parts with the noise that was found for training, and this noise on their scores."""
        full = capabilities.with_score_noise(self._full(self._factor), noise)
        return self._made((True, ("scores", noise)), full)

    def _made(self, key: tuple[bool, Hashable], full: Mechanism, *, tuned: bool = True) -> Solved:
        if key not in self._tried:
            parts = tuple(self.parts(full)) if tuned else tuple(self.parts(full))[-1:]
            self._tried[key] = Solved(parts, Cost.of(self.space, parts))
        return self._tried[key]

    def _full(self, factor: float) -> Mechanism:
        noise = {key: round_up(factor * ratio, _DECIMALS) for key, ratio in self._ratios.items()}
        return capabilities.with_noise(self._silent, noise[None] if set(noise) == {None} else noise)

    @property
    def _calibrates_scores(self) -> bool:
        return capabilities.solves_for_scores(self.mechanism)

    @cached_property
    def _silent(self) -> Mechanism:
        """The mechanism with scores so noisy that the training side decides the noise of training."""
        if not self._calibrates_scores:
            return self.mechanism
        return capabilities.with_score_noise(self.mechanism, _SILENT)

    @cached_property
    def _ratios(self) -> dict[Hashable, float]:
        """For every setting the noise with which one full run at it costs ε; of one setting, the key is None."""
        found = capabilities.kinds_of(self._silent, self.space)

        def the_event(noise: float) -> Any:
            return over_space.by_side(capabilities.with_noise(self._silent, noise), self.space)[0][0]

        events: dict[Hashable, Callable[[float], Any]]
        events = {kind.key: kind.event for kind in found} if len(found) > 1 else {None: the_event}
        alone = {key: run_alone(event, self.mechanism.relation) for key, event in events.items()}
        return equal_noise(alone, epsilon=self.epsilon, delta=self.delta, keep=self.keep)
