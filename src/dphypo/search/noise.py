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
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import dp_accounting

from dphypo import _validate
from dphypo.accounting import Composition, solve_noise
from dphypo.accounting.noise import Keep, equal_noise, run_alone
from dphypo.accounting.solve import round_up
from dphypo.errors import UnreachableError
from dphypo.journal.journal import keeping
from dphypo.journal.store import Store
from dphypo.mechanisms import Mechanism, capabilities, over_space
from dphypo.search.declaration import Cost
from dphypo.search.part import Part
from dphypo.search.progress import solving
from dphypo.search.stage import Stage
from dphypo.search.stages import several
from dphypo.space import Space

_DECIMALS = 6
_SILENT = 1e6  # noise at which a score costs nothing

Parts = Callable[[Mechanism], Sequence[Part]]
"""The parts of a search, as a function of the full run."""


@dataclass(frozen=True)
class NoiseProblem:
    """The smallest noise with which published runs of one training, short and full, cost ε at δ.

    ``parts`` makes the parts of the full run, of which the last is the full run itself; about ``runs`` scores are
    published. ``keep`` keeps numbers that take long, so that a search that goes on has the very same noise at once.
    """

    space: Space
    mechanism: Mechanism
    parts: Parts
    runs: int
    epsilon: float
    delta: float
    keep: Keep | None = field(default=None, repr=False)
    _tried: dict[tuple[bool, Hashable], Cost] = field(default_factory=dict, init=False, repr=False, compare=False)

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

    def solve(self) -> Cost:
        sides = self.mechanism.split
        if not self._calibrates_scores or sides is None:
            return self._at(self._factor)
        noise = solve_noise(
            lambda noise: self._scored(noise).guarantee,
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
        return self._solved(1.0, tuned=False)

    @cached_property
    def _factor(self) -> float:
        """The factor on the noise of all settings with which the parts cost ε."""
        return self._solved(self._alone * 1.01, tuned=True)

    def _solved(self, start: float, *, tuned: bool) -> float:
        def guarantee_at(factor: float) -> Composition:
            return self._at(factor, tuned=tuned).guarantee

        budget: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "keep": self.keep}
        return solve_noise(guarantee_at, start=start, decimals=None, **budget).value

    def _at(self, factor: float, *, tuned: bool = True) -> Cost:
        return self._made((tuned, factor), self._full(factor), tuned=tuned)

    def _scored(self, noise: float) -> Cost:
        """The parts with the noise that was found for training, and this noise on their scores."""
        full = capabilities.with_score_noise(self._full(self._factor), noise)
        return self._made((True, ("scores", noise)), full)

    def _made(self, key: tuple[bool, Hashable], full: Mechanism, *, tuned: bool = True) -> Cost:
        if key not in self._tried:
            parts = tuple(self.parts(full)) if tuned else tuple(self.parts(full))[-1:]
            self._tried[key] = Cost.of(self.space, parts)
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


_LARGEST = 1e3  # the greatest noise multiplier that is tried
_CHEAPER = (
    "cheaper earlier stages (more noise, fewer runs, a smaller split), fewer runs in the last stage, or more noise on "
    "private scores"
)


def calibrate_stages(
    space: Space,
    stages: Sequence[Stage],
    *,
    epsilon: float,
    delta: float,
    split: float | Sequence[float] | None = None,
    journal: str | Path | Store | None = None,
    name: str = "stages",
    progress: bool = True,
) -> list[Stage]:
    """The stages with the noise of the last one such that all together cost ε at δ, to within 1e-3 and never more.

    A mechanism whose noise is to be found has a method ``at(noise_multiplier=...)`` that returns one that trains with
    that noise, and whose event says so, as :class:`dphypo.integrations.torch.DPSGD` does; more noise must not cost
    more.

    Args:
        space: the hyperparameters, as they will be given to :class:`dphypo.Stages`.
        stages: the stages. Without ``split`` all but the last keep the noise they have.
        epsilon, delta: what all stages may cost together.
        split: for each stage but the last (one number if there is one such stage) the share of ε that it may cost by
            itself; its noise is found too. Costs do not add up, they compose: the last stage gets more than the rest.
        journal, name: where noise is kept once it is found, usually those of :class:`dphypo.Stages`: a search that goes
            on then finds it at once. What is kept is accounted for afresh, and solved for anew where it does not fit.
        progress: show on a terminal that noise is being solved for, if that takes long.

    >>> import dp_accounting as dp
    >>> import dphypo
    >>> import numpy as np
    >>> relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    >>> def training(noise_multiplier):
    ...     def train(params, *, seed):  # a stand-in for training with this noise
    ...         return np.random.default_rng(seed).normal(0.0, noise_multiplier), params["lr"]
    ...     return Training(train, event=dp.GaussianDpEvent(noise_multiplier), relation=relation)
    >>> class Training(dphypo.mechanisms.Declared):
    ...     def at(self, noise_multiplier):
    ...         return training(noise_multiplier)
    >>> space = dphypo.Space({"lr": [0.1, 1.0]})
    >>> stages = [Stage(training(1.0), dphypo.Geometric(mean=mean)) for mean in (20, 5)]
    >>> found = calibrate_stages(space, stages, epsilon=2.0, delta=1e-6, split=0.3)
    >>> 1.999 <= dphypo.Stages(space, found, delta=1e-6, journal=None).guarantee.epsilon(1e-6) <= 2.0
    True
    """
    *earlier, last = several(stages, "dphypo.calibrate")
    epsilon, delta = _validate.positive(epsilon=epsilon), _validate.within(0.0, 1.0, delta=delta)
    with keeping(journal, name) as keep, solving(show=progress):
        if split is not None:
            shares = [split] if isinstance(split, (int, float)) else list(split)
            if len(shares) != len(earlier):
                remedy = f"give one share for each of the {len(earlier)} stages but the last"
                raise _validate.fail("split", split, remedy)
            shares = [_validate.within(0.0, 1.0, split=share) for share in shares]
            pairs = zip(earlier, shares, strict=True)
            earlier = [_alone(stage, space, share, epsilon, delta, keep) for stage, share in pairs]
        return [*earlier, _last(earlier, last, space, epsilon, delta, keep)]


def _last(
    earlier: Sequence[Stage], last: Stage, space: Space, epsilon: float, delta: float, keep: Keep | None
) -> Stage:
    """The last stage with the noise at which all stages together cost ε."""
    before = tuple(term for stage in earlier for term in stage.terms(space, last=False))
    if (spent := Composition(before).epsilon(delta)) > epsilon:
        raise UnreachableError(
            f"epsilon = {epsilon:g} at delta = {delta:g} cannot be reached: the earlier stages alone cost {spent:.4g}. "
            f"Remedy: {_CHEAPER}; or allow a larger epsilon"
        )
    found = solve_noise(
        lambda noise: Composition((*before, *_with(last, noise).terms(space, last=True))),
        epsilon=epsilon,
        delta=delta,
        keep=keep,
        remedy=_CHEAPER,
    )
    return _with(last, found.value)


def _alone(stage: Stage, space: Space, share: float, epsilon: float, delta: float, keep: Keep | None) -> Stage:
    """An earlier stage with the noise at which it costs its share of ε by itself."""
    try:
        found = solve_noise(
            lambda noise: _with(stage, noise).account(space), epsilon=share * epsilon, delta=delta, keep=keep
        )
    except UnreachableError:
        least = _with(stage, _LARGEST).account(space).epsilon(delta)
    else:
        return _with(stage, found.value)
    advice = ["fewer runs (a smaller mean of T)", "sample less or take fewer steps", "a larger split"]
    if stage.search_policy.band.log_ratio > 0:
        advice.insert(1, "a narrower band")
    if stage.mechanism.score_event is not None:
        advice.insert(1, "more noise on the score")
    raise UnreachableError(
        f"split · epsilon = {share:g} · {epsilon:g} = {share * epsilon:g} at delta = {delta:g} cannot be reached: the "
        f"smallest that an earlier stage can cost here is {least:.4g}. Remedy: {', '.join(advice)}; or allow a larger "
        "epsilon"
    )


def _with(stage: Stage, noise: float) -> Stage:
    # The calibration tries rounded noise only: a resumed search, declared anew elsewhere, finds the same numbers.
    return replace(stage, mechanism=capabilities.with_noise(stage.mechanism, noise))
