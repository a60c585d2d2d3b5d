"""Stages whose noise spends a total (ε, δ), and no more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dphypo import _supremum, _validate
from dphypo._stage import Stage
from dphypo.accounting import calibrate, calibrate_last
from dphypo.space import Space

_DECIMALS = 6


def calibrate_stages(
    space: Space,
    stages: Sequence[Stage],
    *,
    epsilon: float,
    delta: float,
    split: float | Sequence[float] | None = None,
) -> list[Stage]:
    """The stages with the noise of the last one such that all together cost ε at δ, to within 1e-3 and never more.

    A mechanism whose noise is to be found has a method ``at(noise_multiplier=...)`` that returns a copy of it with that
    noise, as :class:`dphypo.integrations.opacus.DPSGD` does; more noise must not cost more.

    Args:
        space: the hyperparameters, as they will be given to :class:`dphypo.Stages`.
        stages: the stages. Without ``split`` all but the last keep the noise they have.
        epsilon, delta: what all stages may cost together.
        split: for each stage but the last (one number if there is one such stage) the share of ε that it may cost by
            itself; its noise is found too. Costs do not add up, they compose: the last stage gets more than the rest.

    >>> import dp_accounting as dp
    >>> import dphypo
    >>> from dphypo.mechanism import Declared
    >>> class Training(Declared):
    ...     def at(self, noise_multiplier):
    ...         return Training(self.train, dp.GaussianDpEvent(noise_multiplier), self.relation)
    >>> relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    >>> train = Training(lambda params, *, seed: (1, 2.0), dp.GaussianDpEvent(1.0), relation)
    >>> space = dphypo.Space({"lr": [0.1, 1.0]})
    >>> stages = [Stage(train, dphypo.Geometric(mean=20)), Stage(train, dphypo.Geometric(mean=5))]
    >>> found = calibrate_stages(space, stages, epsilon=2.0, delta=1e-6, split=0.3)
    >>> 1.999 <= dphypo.Stages(space, found, delta=1e-6, journal=None).guarantee.epsilon(1e-6) <= 2.0
    True
    """
    *earlier, last = stages
    if not earlier:
        raise _validate.fail("stages", stages, "give two or more; for a single search use dphypo.calibrate")
    if split is not None:
        shares = [split] if isinstance(split, (int, float)) else list(split)
        if len(shares) != len(earlier):
            raise _validate.fail("split", split, f"give one share for each of the {len(earlier)} stages but the last")
        shares = [_validate.within(0.0, 1.0, split=share) for share in shares]
        earlier = [_alone(stage, space, share * epsilon, delta) for stage, share in zip(earlier, shares, strict=True)]
    found = calibrate_last(
        [stage.account(space) for stage in earlier],
        lambda noise: _with(last, noise).account(space),
        epsilon=epsilon,
        delta=delta,
    )
    return [*earlier, _with(last, found.noise_multiplier)]


def _alone(stage: Stage, space: Space, epsilon: float, delta: float) -> Stage:
    """A stage with the noise at which it costs ε by itself."""
    found = calibrate(
        lambda noise: _supremum.events(_with(stage, noise).mechanism, space),
        stage.runs,
        stage.band,
        epsilon=epsilon,
        delta=delta,
        relation=stage.mechanism.relation,
    )
    return _with(stage, found.value)


def _with(stage: Stage, noise: float) -> Stage:
    at: Any = getattr(stage.mechanism, "at", None)
    if at is None:
        raise _validate.fail(
            "mechanism", stage.mechanism, "its noise cannot be solved for: it has no method at(noise_multiplier=...)"
        )
    # Rounded up: more noise costs less, and a resumed search, declared anew elsewhere, finds the same numbers.
    return replace(stage, mechanism=at(noise_multiplier=math.ceil(noise * 10**_DECIMALS) / 10**_DECIMALS))
