"""Checks for your own mechanisms and search rules.

Run ``check_mechanism`` on public or synthetic records before the first study. A search rule cannot break privacy: the
band is enforced after it. ``check_sampler`` checks that a search can rely on it.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import loguniform, uniform

from dphypo import _validate
from dphypo._validate import Floats, ensure
from dphypo.accounting import account
from dphypo.entropy import SYSTEM, Entropy, Seeded, below, uniforms
from dphypo.errors import UnaccountableError
from dphypo.laws import Pmf
from dphypo.mechanisms import Mechanism, Outcome, over_space
from dphypo.mechanisms.mechanism import attempt
from dphypo.samplers import History, Sampler
from dphypo.space import Candidates, Grid, Space


def check_mechanism(
    mechanism: Mechanism,
    space: Space,
    *,
    points: int = 3,
    deterministic: bool = True,
    workers: bool = False,
    entropy: Entropy = SYSTEM,
) -> None:
    """Raise an ``AssertionError`` if a mechanism does not keep its contract.

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
        saved = mechanism.saver.dump(mechanism.saver.load(first.model))
        ensure(saved == first.model, "a model that is saved, loaded and saved again is not the same")
        between = _attempt(mechanism, other, below(2**63, entropy))
        again = _attempt(mechanism, params, seed)
        otherwise = "the same λ and seed gave another model after another run: a run must depend on λ and seed alone"
        ensure(not deterministic or (again.score, again.model) == (first.score, first.model), otherwise)
        reseeded = _attempt(mechanism, params, below(2**63, entropy))
        otherwise = "two seeds gave the same model: the noise of a run must follow its seed"
        ensure(first.model not in (reseeded.model, between.model), otherwise)


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


def check_sampler(sampler: Sampler, *, ordered: bool = False, longest: int = 10_000) -> None:
    """Raise an ``AssertionError`` if a sampler does not keep its contract.

    On spaces of one number, of mixed and conditional parameters, and on a grid of unequal masses, it must return finite
    non-negative weights, one a candidate and not all zero, with no run, one run, some runs and ``longest`` runs, with
    equal scores, scores of any size and sign, and failures up to all of them; depend on the candidates as a set, and
    on nothing but its arguments; and leave its arguments as they were.

    Args:
        sampler: what to check.
        ordered: whether the rule may depend on the order of the runs. A rule without a notion of time does not.
        longest: the length of the longest history tried.

    >>> from dphypo.samplers import Uniform
    >>> check_sampler(Uniform())
    """
    longest = _validate.integer(at_least=1, longest=longest)
    ensure(isinstance(sampler, Sampler), "it has no method weights(candidates, history)")
    for space, sets in _worlds():
        empty = History.empty(features=sets[0].features.shape[1], unit=sets[0].unit.shape[1])
        for candidates in sets:
            _check_weights(sampler, candidates, empty, "before the first run")
        for name, history in _histories(space, longest):
            for candidates in sets if len(history) < 100 else sets[:1]:
                weights = _check_weights(sampler, candidates, history, name)
                if len(history) < 100:
                    _check_candidate_order(sampler, candidates, history, weights, name)
        history = _history(space, "checked", uniforms(12, Seeded(3)) - 0.3)
        _check_repeats(sampler, sets, history, ordered)


def _worlds() -> list[tuple[Space, Sequence[Candidates | Grid]]]:
    """Spaces, each with sets of candidates."""
    line = Space({"x": uniform()})
    mixed = Space({"lr": loguniform(1e-4, 1.0), "batch": [32, 64, 128], "optimizer": ["sgd", "adam", "lion"]})
    mixed = mixed.when("optimizer", "sgd", {"momentum": uniform(0.0, 0.9)})
    uneven = Space({"batch": ([32, 64, 128], [0.6, 0.3, 0.1]), "optimizer": (["sgd", "adam"], [0.2, 0.8])})
    seed = Seeded(0)
    return [
        (line, [line.grid(x=7), line.candidates(64, seed)]),
        (mixed, [mixed.candidates(128, seed), mixed.candidates(64, seed)]),
        (uneven, [uneven.grid()]),
    ]


def _history(space: Space, label: str, scores: Floats) -> History:
    points = space.candidates(len(scores), Seeded(1).child(label)).unit
    return History(space.features(points), points, scores, np.isnan(scores), tuple(space.from_unit(points)))


def _histories(space: Space, longest: int) -> Iterator[tuple[str, History]]:
    """Histories that a search may give to a sampler, by name."""
    values, numbers = uniforms(9, Seeded(2)), np.arange(9)
    for name, scores in (
        ("after one run", values[:1]),
        ("after one failed run", np.full(1, np.nan)),
        ("with equal scores", np.full(9, 0.5)),
        ("with negative scores", -1e3 * values),
        ("with scores of 1e300", np.where(numbers % 2 == 0, -1e300, 1e300)),
        ("with scores of 1e-300", 1e-300 * values),
        ("with failures", np.where(numbers % 3 == 1, np.nan, values)),
        ("when every run failed", np.full(9, np.nan)),
        (f"after {longest} runs", uniforms(longest, Seeded(2)) - 0.3),
    ):
        yield name, _history(space, name, scores)


def _check_weights(sampler: Sampler, candidates: Candidates | Grid, history: History, when: str) -> Floats:
    """The weights, after checking their form and that the arguments were left as they were."""
    arrays: list[npt.NDArray[Any]] = [candidates.unit, candidates.masses, candidates.features]
    arrays += [history.features, history.unit, history.scores, history.failed]
    before, params = [array.copy() for array in arrays], tuple(dict(row) for row in history.params)
    try:
        weights = sampler.weights(candidates, history)
    except Exception as error:
        error.add_note(f"check_sampler called it {when}: failed runs have the score NaN, and history.failed marks them")
        raise
    same = all(np.array_equal(new, old, equal_nan=True) for new, old in zip(arrays, before, strict=True))
    ensure(same and tuple(dict(row) for row in history.params) == params, f"it changed its arguments {when}")
    ensure(isinstance(weights, np.ndarray), f"{when} the weights are not an array of numpy")
    otherwise = f"{when} the weights have shape {weights.shape}, for {len(candidates)} candidates"
    ensure(weights.shape == (len(candidates),), otherwise)
    ensure(bool(np.isfinite(weights).all()), f"{when} some weights are not finite")
    ensure(bool((weights >= 0).all()), f"{when} some weights are negative")
    ensure(bool((weights > 0).any()), f"{when} every weight is zero, so no candidate can be chosen")
    return weights.copy()


def _check_candidate_order(
    sampler: Sampler, candidates: Candidates | Grid, history: History, weights: Floats, when: str
) -> None:
    order = np.random.default_rng(3).permutation(len(candidates))
    space, unit = candidates.space, candidates.unit[order]
    turned: Candidates | Grid = Candidates(space, unit)
    if isinstance(candidates, Grid):
        turned = Grid(space, unit, candidates.masses[order], candidates.spread)
    same = _alike(sampler.weights(turned, history), weights[order])
    ensure(same, f"{when} the order of the candidates changes a weight")


def _check_repeats(sampler: Sampler, sets: Sequence[Candidates | Grid], history: History, ordered: bool) -> None:
    """The same weights after other calls, run after run, from a copy, and from the same runs in another order."""
    candidates = sets[0]
    expected = sampler.weights(candidates, history).copy()
    for length in range(len(history) + 1):
        sampler.weights(sets[length % len(sets)], history.first(length))
    ensure(_alike(sampler.weights(candidates, history), expected), "its weights depend on what it was asked before")
    sampler.weights(candidates, replace(history, scores=history.scores[::-1].copy(), failed=history.failed[::-1]))
    ensure(_alike(sampler.weights(candidates, history), expected), "its weights depend on another history")
    copy: Any = pickle.loads(pickle.dumps(sampler))
    ensure(_alike(copy.weights(candidates, history), expected), "a pickled copy gives other weights")
    if not ordered:
        rows = np.random.default_rng(3).permutation(len(history))
        params = [history.params[row] for row in rows]
        turned = History(history.features[rows], history.unit[rows], history.scores[rows], history.failed[rows], params)
        otherwise = "the order of the runs changes a weight: pass ordered=True if the rule has a notion of time"
        ensure(_alike(sampler.weights(candidates, turned), expected), otherwise)


def _alike(left: Floats, right: Floats) -> bool:
    """Equal as weights: up to their scale, and to rounding."""
    return bool(np.allclose(left / left.sum(), right / right.sum(), rtol=1e-6, atol=1e-12))
