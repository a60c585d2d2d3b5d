"""Stages whose noise spends a total (ε, δ), and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dphypo import _validate
from dphypo.accounting import UnreachableError, calibrate, calibrate_last
from dphypo.mechanisms import over_space
from dphypo.space import Space
from dphypo.stages.stage import Stage
from dphypo.stages.stages import several

_LARGEST = 1e3  # the greatest noise multiplier that is tried
_NO_AT = """\
it has no method at(noise_multiplier=...), by which its noise is found. Give it one; any class with the attributes of \
dphypo.mechanisms.Mechanism will do, and the shortest is a dphypo.mechanisms.Declared:

    def training(noise_multiplier):
        def train(params, *, seed):
            ...  # train with noise_multiplier
            return model, score
        return Training(train, event=dp.GaussianDpEvent(noise_multiplier), relation=relation)

    class Training(dphypo.mechanisms.Declared):
        def at(self, noise_multiplier):
            return training(noise_multiplier)

Then Stage(training(1.0), runs) takes the place of this one. Where a cheaper run is wanted of it, as choose_design \
does, let at take fraction= too, the part of the training that is made"""


def calibrate_stages(
    space: Space,
    stages: Sequence[Stage],
    *,
    epsilon: float,
    delta: float,
    split: float | Sequence[float] | None = None,
) -> list[Stage]:
    """The stages with the noise of the last one such that all together cost ε at δ, to within 1e-3 and never more.

    A mechanism whose noise is to be found has a method ``at(noise_multiplier=...)`` that returns one that trains with
    that noise, and whose event says so, as :class:`dphypo.integrations.opacus.DPSGD` does; more noise must not cost
    more.

    Args:
        space: the hyperparameters, as they will be given to :class:`dphypo.Stages`.
        stages: the stages. Without ``split`` all but the last keep the noise they have.
        epsilon, delta: what all stages may cost together.
        split: for each stage but the last (one number if there is one such stage) the share of ε that it may cost by
            itself; its noise is found too. Costs do not add up, they compose: the last stage gets more than the rest.

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
    if split is not None:
        shares = [split] if isinstance(split, (int, float)) else list(split)
        if len(shares) != len(earlier):
            raise _validate.fail("split", split, f"give one share for each of the {len(earlier)} stages but the last")
        shares = [_validate.within(0.0, 1.0, split=share) for share in shares]
        earlier = [_alone(stage, space, share, epsilon, delta) for stage, share in zip(earlier, shares, strict=True)]
    found = calibrate_last(
        [stage.account(space) for stage in earlier],
        lambda noise: _with(last, noise).account(space),
        epsilon=epsilon,
        delta=delta,
    )
    return [*earlier, _with(last, found.noise_multiplier)]


def _alone(stage: Stage, space: Space, share: float, epsilon: float, delta: float) -> Stage:
    """A stage with the noise at which it costs its share of ε by itself."""
    try:
        found = calibrate(
            lambda noise: over_space.events(_with(stage, noise).mechanism, space),
            stage.runs,
            stage.band,
            epsilon=share * epsilon,
            delta=delta,
            relation=stage.mechanism.relation,
            largest=_LARGEST,
        )
    except UnreachableError:
        pass
    else:
        return _with(stage, found.value)
    least = _with(stage, _LARGEST).account(space).epsilon(delta)
    advice = ["fewer runs (a smaller mean of T)", "sample less or take fewer steps", "a larger split"]
    if stage.band.log_ratio > 0:
        advice.insert(1, "a narrower band")
    if stage.mechanism.score_event is not None:
        advice.insert(1, "more noise on the score")
    raise UnreachableError(
        f"split · epsilon = {share:g} · {epsilon:g} = {share * epsilon:g} at delta = {delta:g} cannot be reached: the "
        f"smallest that an earlier stage can cost here is {least:.4g}. Remedy: {', '.join(advice)}; or allow a larger "
        "epsilon"
    )


def _with(stage: Stage, noise: float) -> Stage:
    at: Any = getattr(stage.mechanism, "at", None)
    if at is None:
        raise _validate.fail("mechanism", stage.mechanism, _NO_AT)
    # The calibration tries rounded noise only: a resumed search, declared anew elsewhere, finds the same numbers.
    return replace(stage, mechanism=at(noise_multiplier=noise))
