"""Stages whose noise spends a total (ε, δ), and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dphypo import _validate
from dphypo.accounting import Composition, solve_noise
from dphypo.accounting.noise import Keep
from dphypo.errors import UnreachableError
from dphypo.journal.journal import keeping
from dphypo.journal.store import Store
from dphypo.mechanisms import capabilities
from dphypo.search.progress import solving
from dphypo.search.stage import Stage
from dphypo.search.stages import several
from dphypo.space import Space

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
