"""The conformance suite of mechanisms: run it on public or synthetic records before the first study."""

from __future__ import annotations

import math
import pickle

from dphypo import _validate
from dphypo.accounting import account
from dphypo.entropy import SYSTEM, Entropy, below
from dphypo.errors import UnaccountableError
from dphypo.laws import Pmf
from dphypo.mechanisms import Mechanism, Outcome, over_space
from dphypo.mechanisms.outcome import attempt
from dphypo.space import Space
from dphypo.testing.ensure import ensure


def check_mechanism(
    mechanism: Mechanism,
    space: Space,
    *,
    points: int = 3,
    deterministic: bool = True,
    workers: bool = False,
    entropy: Entropy = SYSTEM,
) -> None:
    """Raise an ``AssertionError`` that says what is wrong with a mechanism, if anything is.

    **It trains 4 times for each point and releases nothing: use it on records that are not private.** It cannot check
    that the event is true. It does check what else the theorems and a resumed study rely on: that the event bounds
    every λ of the space and can be accounted, that a run carries nothing over to the next, that its noise follows its
    seed, and that its model can be saved and loaded.

    Args:
        mechanism: what to check.
        space: the space it will be searched over.
        points: how many λ to draw from the prior.
        deterministic: whether the same λ and seed must give the same model to the last bit. Without that, a resumed
            study may differ from an uninterrupted one, and no run can be checked for what it carries over.
        workers: whether it must travel to other processes, for ``study.run(workers=2)``.
        entropy: where λ and the seeds come from.

    >>> import dp_accounting as dp
    >>> import numpy as np
    >>> import dphypo
    >>> @dphypo.mechanism(event=dp.GaussianDpEvent(1.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    ... def noisy_sum(params, *, seed):
    ...     return params["scale"] * np.random.default_rng(seed).normal(), 0.0
    >>> check_mechanism(noisy_sum, dphypo.Space({"scale": [1.0, 2.0]}))
    >>> @dphypo.mechanism(event=dp.GaussianDpEvent(1.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    ... def same_noise(params, *, seed):
    ...     return params["scale"] * np.random.default_rng(0).normal(), 0.0
    >>> check_mechanism(same_noise, dphypo.Space({"scale": [1.0, 2.0]}))
    Traceback (most recent call last):
    AssertionError: two seeds gave the same model: the noise of a run must follow its seed
    """
    points = _validate.integer(at_least=1, points=points)
    ensure(isinstance(mechanism, Mechanism), "it is not a mechanism: declare it with @dphypo.mechanism(...)")
    _check_event(mechanism, space)
    if workers:
        ensure(pickle.loads(pickle.dumps(mechanism)) is mechanism, "other processes would not find it by its name")
    for _ in range(points):
        params, other = space.sample(entropy), space.sample(entropy)
        seed = below(2**63, entropy)
        first = _attempt(mechanism, params, seed)
        _check_saver(mechanism, first)
        between = _attempt(mechanism, other, below(2**63, entropy))
        again = _attempt(mechanism, params, seed)
        if deterministic:
            ensure(
                (again.score, again.model) == (first.score, first.model),
                "the same λ and seed gave another model after a run in between: a run must depend on nothing but its λ "
                "and its seed, neither on the run before it nor on any other randomness",
            )
        reseeded = _attempt(mechanism, params, below(2**63, entropy))
        ensure(
            reseeded.model != first.model and between.model != first.model,
            "two seeds gave the same model: the noise of a run must follow its seed",
        )


def _check_event(mechanism: Mechanism, space: Space) -> None:
    """The supremum exists, and one run has a finite ε at some δ."""
    try:
        events = over_space.events(mechanism, space)
        epsilon = account(events, Pmf({1: 1.0}), relation=mechanism.relation).epsilon(0.1)
    except UnaccountableError as error:
        raise AssertionError(str(error)) from None
    ensure(math.isfinite(epsilon), "one run has no finite ε even at δ = 0.1: the event states no privacy")


def _attempt(mechanism: Mechanism, params: dict[str, object], seed: int) -> Outcome:
    result = attempt(mechanism, params, seed)
    ensure(result.failure is None, f"a run failed with {params!r}: {result.failure}")
    return result


def _check_saver(mechanism: Mechanism, result: Outcome) -> None:
    assert result.model is not None
    again = mechanism.saver.dump(mechanism.saver.load(result.model))
    ensure(again == result.model, "a model that is saved, loaded and saved again is not the same")
