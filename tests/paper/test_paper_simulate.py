"""The simulator of the paper's experiments against the library it stands for, and against closed forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import uniform

from dphypo.band import KL, L2, Band, Greedy
from dphypo.band.projections import Projection
from dphypo.laws import Geometric, NegativeBinomial
from dphypo.samplers import GaussianProcess, History
from dphypo.samplers.gaussian_process import Hyperparameters
from dphypo.space import Space
from paper.experiments import paper_settings as e
from paper.simulate.adaptive import drawn, simulated
from paper.simulate.paths import Method, paths
from paper.simulate.project import project
from paper.simulate.surrogate import Basis, Searches
from paper.simulate.uniform import expected
from paper.simulate.worlds import World

GRID = Space({"x": uniform(), "y": uniform()}).grid(x=5, y=6)
KNOWN = Hyperparameters(1.3, (0.3, 0.5), 0.05)


@pytest.mark.parametrize("rule", [GaussianProcess.paper(), GaussianProcess()], ids=["paper", "ours"])
def test_weights_are_those_of_the_library(rule: GaussianProcess) -> None:
    random = np.random.default_rng(0)
    cells, scores = random.integers(0, len(GRID), (3, 40)), random.random((3, 40))
    searches = Searches(Basis(GRID.features, KNOWN, remainder=0.0, dtype=np.float64), rule, 3)
    library = replace(rule, start=1, hyperparameters=KNOWN)  # the simulator asks for no weights before
    for t in range(40):
        searches.observe(cells[:, t], scores[:, t])
        weights = searches.weights()
        for p in range(3):
            seen = cells[p, : t + 1]
            history = History(
                GRID.features[seen], GRID.unit[seen], scores[p, : t + 1], np.zeros(t + 1, bool), tuple({} for _ in seen)
            )
            wanted = library.weights(GRID, history)
            np.testing.assert_allclose(weights[p] / weights[p].max(), wanted / wanted.max(), rtol=1e-6)


def test_a_truncated_basis_in_single_precision_is_close() -> None:
    random = np.random.default_rng(1)
    features = random.random((200, 2))
    full = Searches(Basis(features, KNOWN, remainder=0.0, dtype=np.float64), GaussianProcess(), 2)
    fast = Searches(Basis(features, KNOWN), GaussianProcess(), 2)
    for _ in range(60):
        cells = random.integers(0, 200, 2)
        scores = features[cells, 0] + 0.1 * random.standard_normal(2)
        full.observe(cells, scores)
        fast.observe(cells, scores)
    a, b = (project(s.weights(), Band(0.75, 2), L2()) for s in (full, fast))
    # Total variation distance: two searches can be coupled to draw the same cell but for so much probability.
    assert 0.5 * np.abs(a - b).mean(axis=1).max() < 0.01


@pytest.mark.parametrize("projection", [L2(), KL(), Greedy()], ids=repr)
def test_projections_are_those_of_the_library(projection: Projection) -> None:
    random = np.random.default_rng(2)
    weights = np.exp(random.normal(size=(20, 37)) * np.array([0.1, 1.0, 3.0, 10.0] * 5)[:, None])
    weights[::3] = weights[::3, :6].repeat(7, axis=1)[
        :, :37
    ]  # with ties, also where the greedy projection divides the cells
    weights[3] = 1.0
    band = Band(0.75, 2)
    ratios = project(weights, band, projection)
    for row, ratio in zip(weights, ratios, strict=True):
        np.testing.assert_allclose(ratio, 37 * band.project(row, projection=projection), atol=1e-7)


def _world(noise: float = 0.1) -> World:
    mean = 1.0 - np.square(GRID.features - 0.4).sum(axis=1)
    return World(GRID.features, mean, np.full(len(mean), noise))


@pytest.mark.parametrize("law", [Geometric(mean=8), NegativeBinomial(8.0, mean=8)], ids=["geometric", "shape 8"])
def test_uniform_search_agrees_with_its_closed_form(law: NegativeBinomial) -> None:
    world, count = _world(), 20_000
    lengths = drawn(law, np.random.default_rng(3).random(count))
    result = np.empty(count)
    for index, found in paths(world, e.UNIFORM, lengths, seed=4, batch=2000):
        result[index] = found[np.arange(len(index)), lengths[index] - 1]
    error = result.std() / count**0.5
    assert abs(result.mean() - expected(world, law)) < 5 * error  # a one-in-a-million alarm


@pytest.mark.slow
@pytest.mark.parametrize("law", [Geometric(mean=8), NegativeBinomial(8.0, mean=8)], ids=["geometric", "shape 8"])
def test_searches_that_count_at_every_length_give_the_closed_form_and_a_true_interval(law: NegativeBinomial) -> None:
    world = _world()
    found = [simulated(world, e.UNIFORM, law, 200, seed) for seed in range(200)]
    error = np.array([one["half"] for one in found]) / 1.96
    away = (np.array([one["mean"] for one in found]) - expected(world, law)) / error
    assert abs(away.mean()) < 5 / 200**0.5  # a one-in-a-million alarm
    assert 0.75 < away.std() < 1.25  # five standard errors of the deviation of 200 normal numbers


def test_paths_hold_the_score_of_the_best_run_so_far() -> None:
    world = replace(_world(), noise=np.full(30, 1e-12))
    for method in (e.UNIFORM, Method("GP", GaussianProcess(), Band(0.75, 2), KL())):
        lengths = np.array([5, 12, 1, 12, 7])
        for index, found in paths(world, method, lengths, seed=5):
            for row, n in zip(found, index, strict=True):
                assert np.isnan(row[lengths[n] :]).all()
                assert np.isfinite(row[: lengths[n]]).all()
                assert (np.diff(row[: lengths[n]]) >= 0).all()  # without noise the best so far only improves


def test_an_adaptive_search_leans_towards_what_is_good() -> None:
    world, lengths = _world(0.02), np.full(200, 30)
    method = Method("ours", GaussianProcess(), Band(0.1, 4), KL())
    adaptive = np.concatenate([found for _, found in paths(world, method, lengths, seed=6)])[:, 9].mean()
    plain = np.concatenate([found for _, found in paths(world, e.UNIFORM, lengths, seed=6)])[:, 9].mean()
    assert adaptive > plain


def test_a_lag_hides_the_latest_runs() -> None:
    world, lengths = _world(0.02), np.array([9, 9, 7, 4])
    later = replace(e.OURS, sampler=GaussianProcess(start=5))

    def found(method: Method) -> np.ndarray:
        return np.concatenate([found for _, found in paths(world, method, lengths, seed=8)])

    np.testing.assert_array_equal(found(replace(e.OURS, lag=3))[:, :5], found(later)[:, :5])  # from the prior
    np.testing.assert_array_equal(
        found(replace(e.OURS, lag=9)), found(replace(e.OURS, sampler=GaussianProcess(start=9)))
    )


def test_geometric_lengths() -> None:
    uniforms = np.random.default_rng(7).random(40_000)
    for gamma in (0.01, 0.5):
        lengths = e.lengths(uniforms, gamma)
        assert lengths.min() >= 1
        deviation = (1 - gamma) ** 0.5 / gamma / 200
        assert abs(lengths.mean() - 1 / gamma) < 5 * deviation
