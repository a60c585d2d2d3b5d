"""The conformance suites of search rules and of projections into the band.

None of them can break privacy: the band is enforced after a rule, and checked after a projection and before the draw.
What is checked here is that a search can rely on them.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import loguniform, uniform

from dphypo import _validate
from dphypo._validate import ensure
from dphypo.band import Band
from dphypo.band.problem import Projection
from dphypo.entropy import Seeded, uniforms
from dphypo.samplers import History, Sampler
from dphypo.space import Candidates, Grid, Space

Array = npt.NDArray[np.float64]

_BANDS = (Band(0.75, 2), Band(0.5, 4), Band(0.1, 20), Band(0.99, 1.01), Band(1, 1))


def check_sampler(sampler: Sampler, *, ordered: bool = False, longest: int = 10_000, pickled: bool = True) -> None:
    """Raise an ``AssertionError`` that says what is wrong with a search rule, if anything is.

    On spaces of one number, of mixed and conditional parameters, and on a grid of unequal masses, it must return finite
    non-negative weights, one a candidate and not all zero, with no run, one run, some runs and ``longest`` runs, with
    equal scores, scores of any size and sign, and failures up to all of them; depend on the candidates as a set, and
    on nothing but its arguments; and leave its arguments as they were.

    Args:
        sampler: what to check.
        ordered: whether the rule may depend on the order of the runs. A rule without a notion of time does not.
        longest: the length of the longest history tried.
        pickled: whether the rule must survive pickling, for a study that trains in other processes.

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
        _check_repeats(sampler, sets, history, ordered, pickled)


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


def _history(space: Space, label: str, scores: Array) -> History:
    points = space.candidates(len(scores), Seeded(1).child(label)).unit
    return History(space.features(points), points, scores, np.isnan(scores), tuple(space.from_unit(points)))


def _histories(space: Space, longest: int) -> Iterator[tuple[str, History]]:
    """Histories that a rule may meet, by name."""
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


def _check_weights(sampler: Sampler, candidates: Candidates | Grid, history: History, when: str) -> Array:
    """The weights, after checking all that can be seen of them at once and that the arguments are untouched."""
    arrays: list[npt.NDArray[Any]] = [candidates.unit, candidates.masses, candidates.features]
    arrays += [history.features, history.unit, history.scores, history.failed]
    before, params = [array.copy() for array in arrays], tuple(dict(row) for row in history.params)
    weights = sampler.weights(candidates, history)
    same = all(np.array_equal(new, old, equal_nan=True) for new, old in zip(arrays, before, strict=True))
    ensure(same and tuple(dict(row) for row in history.params) == params, f"it changed its arguments {when}")
    ensure(isinstance(weights, np.ndarray), f"{when} the weights are not an array of numpy")
    told = f"{when} the weights have shape {weights.shape}, for {len(candidates)} candidates"
    ensure(weights.shape == (len(candidates),), told)
    ensure(bool(np.isfinite(weights).all()), f"{when} some weights are not finite")
    ensure(bool((weights >= 0).all()), f"{when} some weights are negative")
    ensure(bool((weights > 0).any()), f"{when} every weight is zero: it names no candidate")
    return weights.copy()


def _check_candidate_order(
    sampler: Sampler, candidates: Candidates | Grid, history: History, weights: Array, when: str
) -> None:
    order = np.random.default_rng(3).permutation(len(candidates))
    space, unit = candidates.space, candidates.unit[order]
    turned: Candidates | Grid = Candidates(space, unit)
    if isinstance(candidates, Grid):
        turned = Grid(space, unit, candidates.masses[order], candidates.spread)
    same = _alike(sampler.weights(turned, history), weights[order])
    ensure(same, f"{when} the order of the candidates changes a weight")


def _check_repeats(
    sampler: Sampler, sets: Sequence[Candidates | Grid], history: History, ordered: bool, pickled: bool
) -> None:
    """The same weights after other calls, run after run, from a copy, and from the same runs in another order."""
    candidates = sets[0]
    expected = sampler.weights(candidates, history).copy()
    for length in range(len(history) + 1):
        sampler.weights(sets[length % len(sets)], history.first(length))
    ensure(_alike(sampler.weights(candidates, history), expected), "its weights depend on what it was asked before")
    sampler.weights(candidates, replace(history, scores=history.scores[::-1].copy(), failed=history.failed[::-1]))
    ensure(_alike(sampler.weights(candidates, history), expected), "its weights depend on another history")
    if pickled:
        copy: Any = pickle.loads(pickle.dumps(sampler))
        ensure(_alike(copy.weights(candidates, history), expected), "a pickled copy gives other weights")
    if not ordered:
        rows = np.random.default_rng(3).permutation(len(history))
        params = [history.params[row] for row in rows]
        turned = History(history.features[rows], history.unit[rows], history.scores[rows], history.failed[rows], params)
        told = "the order of the runs changes a weight: pass ordered=True if the rule has a notion of time"
        ensure(_alike(sampler.weights(candidates, turned), expected), told)


def _alike(left: Array, right: Array) -> bool:
    """Equal as weights: up to their scale, and to rounding."""
    return bool(np.allclose(left / left.sum(), right / right.sum(), rtol=1e-6, atol=1e-12))


def check_projection(projection: Projection) -> None:
    """Raise an ``AssertionError`` that says what is wrong with a projection, if anything is.

    For weights of every size and pattern, with equal and unequal prior masses, it must give masses inside the band that
    sum to one; depend neither on the scale of the weights nor on the order of the candidates; never give less to a
    candidate whose weight has grown; and leave its arguments as they were.

    >>> from dphypo.band import L2
    >>> check_projection(L2())
    """
    ensure(isinstance(projection, Projection), "it has no method ratios(problem)")
    ensure(pickle.loads(pickle.dumps(projection)) == projection, "a pickled copy must be equal to it")
    for band in _BANDS:
        for name, weights, prior in _problems():
            _check_projected(band, weights, prior, projection, name)


def _problems() -> Iterator[tuple[str, Array, Array]]:
    """Weights and prior masses, with a name."""
    rng = np.random.default_rng(0)
    for size in (2, 5, 40):
        uneven = rng.dirichlet(np.ones(size)) + 1e-3
        for label, prior in (("equal", np.full(size, 1 / size)), ("unequal", uneven / uneven.sum())):
            one = np.zeros(size)
            one[size // 2] = 1.0
            for name, weights in (
                ("equal weights", np.ones(size)),
                ("one weight", one),
                ("random weights", rng.random(size)),
                ("weights of many sizes", np.exp(20 * rng.standard_normal(size))),
                ("the prior", prior.copy()),
            ):
                yield f"{name} on {size} candidates of {label} mass", weights, prior


def _check_projected(band: Band, weights: Array, prior: Array, projection: Projection, name: str) -> None:
    def project(weights: Array, prior: Array) -> Array:
        return band.project(weights, prior, projection, base=prior)

    before = weights.copy(), prior.copy()
    try:
        masses = project(weights, prior)
    except RuntimeError as error:
        raise AssertionError(f"{name}: {error}") from None
    kept = np.array_equal(before[0], weights) and np.array_equal(before[1], prior)
    ensure(kept, f"{name}: its arguments were changed")
    ensure(abs(masses.sum() - 1) < 1e-9, f"{name}: the masses sum to {masses.sum()!r}, and not to 1")
    ensure(np.array_equal(masses, project(weights, prior)), f"{name}: asked again, it answers differently")
    falling = np.argsort(-weights)
    for order in (falling, falling[::-1], np.random.default_rng(1).permutation(len(weights))):
        turned = project(weights[order], prior[order])
        ensure(np.allclose(turned, masses[order], atol=1e-9), f"{name}: it depends on the order of the candidates")
    larger = project(1024 * weights, prior)
    ensure(np.allclose(larger, masses, atol=1e-9), f"{name}: it depends on the scale of the weights")
    grown = weights.copy()
    grown[0] = 2 * grown[0] + weights.max()
    ensure(project(grown, prior)[0] >= masses[0] - 1e-9, f"{name}: a candidate got less when its weight grew")
