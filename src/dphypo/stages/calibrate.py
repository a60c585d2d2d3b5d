"""Stages whose noise spends a total (ε, δ), and no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dphypo import _validate
from dphypo.accounting import PlanGuarantee, UnreachableError, calibrate, calibrate_last
from dphypo.journal import Keep, Store, keeping
from dphypo.mechanisms import capabilities, over_space
from dphypo.solving import solving
from dphypo.space import Space
from dphypo.stages.stage import Stage
from dphypo.stages.stages import several

_LARGEST = 1e3  # the greatest noise multiplier that is tried
_CLOSE = 1e-3  # in ε: how far below its budget solved noise may lie


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
            earlier = [_Alone(stage, space, share, epsilon, delta).stage(keep) for stage, share in pairs]
        return [*earlier, _Last(tuple(earlier), last, space, epsilon, delta).stage(keep)]


@dataclass(frozen=True)
class _Last:
    """The last stage with the noise at which all stages together cost ε."""

    earlier: tuple[Stage, ...]
    last: Stage
    space: Space
    epsilon: float
    delta: float

    def stage(self, keep: Keep) -> Stage:
        before = [term for stage in self.earlier for term in stage.terms(self.space)]

        def solve() -> float:
            return calibrate_last(
                before,
                lambda noise: _with(self.last, noise).terms(self.space),
                epsilon=self.epsilon,
                delta=self.delta,
            ).value

        def cost(noise: float) -> float:
            after = _with(self.last, noise).terms(self.space)
            return PlanGuarantee((*before, *after)).epsilon(self.delta)

        question = {
            "solved": "noise of the last stage",
            "earlier": [stage.describe(stage.terms(self.space)) for stage in self.earlier],
            **_at_noise_one(self.last, self.space, self.epsilon, self.delta),
        }
        return _with(self.last, _believed(keep, question, solve, cost, self.epsilon))


@dataclass(frozen=True)
class _Alone:
    """An earlier stage with the noise at which it costs its share of ε by itself."""

    given: Stage
    space: Space
    share: float
    epsilon: float
    delta: float

    def stage(self, keep: Keep) -> Stage:
        def cost(noise: float) -> float:
            return _with(self.given, noise).account(self.space).epsilon(self.delta)

        budget = self.share * self.epsilon
        question = {
            "solved": "noise of a stage alone",
            **_at_noise_one(self.given, self.space, budget, self.delta),
        }
        return _with(self.given, _believed(keep, question, self._solve, cost, budget))

    def _solve(self) -> float:
        stage = self.given
        as_declared = _with(stage, 1.0).account(self.space)
        try:
            return calibrate(
                lambda noise: over_space.events(_with(stage, noise).mechanism, self.space),
                stage.runs,
                stage.held,
                epsilon=self.share * self.epsilon,
                delta=self.delta,
                relation=stage.mechanism.relation,
                policy=as_declared.policy,
                first_from_prior=as_declared.first_from_prior,
                largest=_LARGEST,
            ).value
        except UnreachableError:
            least = _with(stage, _LARGEST).account(self.space).epsilon(self.delta)
        advice = ["fewer runs (a smaller mean of T)", "sample less or take fewer steps", "a larger split"]
        if stage.held.log_ratio > 0:
            advice.insert(1, "a narrower band")
        if stage.mechanism.score_event is not None:
            advice.insert(1, "more noise on the score")
        raise UnreachableError(
            f"split · epsilon = {self.share:g} · {self.epsilon:g} = {self.share * self.epsilon:g} at delta = "
            f"{self.delta:g} cannot be reached: the smallest that an earlier stage can cost here is {least:.4g}. "
            f"Remedy: {', '.join(advice)}; or allow a larger epsilon"
        )


def _believed(
    keep: Keep, question: Mapping[str, Any], solve: Callable[[], float], cost: Callable[[float], float], epsilon: float
) -> float:
    """The noise that is kept, if it costs ε as it is accounted for now; else it is solved for."""
    solved: list[float] = []

    def anew() -> float:
        solved.append(solve())
        return solved[0]

    kept = keep(question, anew)
    if not solved and not epsilon - _CLOSE <= cost(kept) <= epsilon:
        return anew()
    return kept


def _at_noise_one(stage: Stage, space: Space, epsilon: float, delta: float) -> dict[str, Any]:
    """All that the noise of a stage depends on: what it is at noise 1, and the budget."""
    one = _with(stage, 1.0)
    relation = stage.mechanism.relation.name
    return {"at noise 1": one.describe(one.terms(space)), "relation": relation, "budget": [epsilon, delta]}


def _with(stage: Stage, noise: float) -> Stage:
    # The calibration tries rounded noise only: a resumed search, declared anew elsewhere, finds the same numbers.
    return replace(stage, mechanism=capabilities.with_noise(stage.mechanism, noise))
