"""The Gaussian process against scikit-learn's, its fit against finite differences, and Algorithm 2 by hand."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad
from scipy.stats import uniform
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from dphypo.entropy import Seeded
from dphypo.samplers import GaussianProcess, History
from dphypo.samplers import gaussian_process as fitting
from dphypo.samplers.gaussian_process import (
    Data,
    Hyperparameters,
    Units,
    checkpoint,
    fit,
    posterior,
    prior_mode,
)
from dphypo.space import Candidates, Grid, Space

SQUARE = Space({"x": uniform(), "y": uniform()})
FIXED = Hyperparameters(variance=1.3, lengthscales=(0.3, 0.6), noise=0.02)


def observed(points: Candidates | Grid, indices: np.ndarray, scores: np.ndarray) -> History:
    failed = np.isnan(scores)
    return History(points.features[indices], points.unit[indices], scores, failed, ({},) * len(scores))


def wave(points: Candidates | Grid, size: int, seed: int, noise: float = 0.1) -> History:
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, len(points), size)
    scores = 3 + np.sin(6 * points.features[indices, 0]) + noise * rng.standard_normal(size)
    return observed(points, indices, scores)


def reference(history: History, points: np.ndarray, parameters: Hyperparameters) -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's posterior, which standardises the scores likewise."""
    kernel = ConstantKernel(parameters.variance) * Matern(parameters.lengthscales, nu=2.5)
    model = GaussianProcessRegressor(kernel, alpha=parameters.noise, optimizer=None, normalize_y=True)
    return model.fit(history.features, history.scores).predict(points, return_std=True)


@pytest.mark.slow
def test_the_posterior_is_scikit_learns_after_each_of_300_steps_with_repeats_on_a_grid():
    grid = SQUARE.grid(x=10, y=10)  # 100 cells: from step 100 on there are more runs than cells
    history = wave(grid, 300, seed=0)
    grown = GaussianProcess(units=Units.RAW, hyperparameters=FIXED)
    for size in range(1, 301):
        mean, deviation = grown.posterior(grid, history.first(size))
        expected = reference(history.first(size), grid.features, FIXED)
        np.testing.assert_allclose(mean, expected[0], rtol=0, atol=1e-8)
        np.testing.assert_allclose(deviation, expected[1], rtol=0, atol=1e-8)


def test_the_posterior_is_scikit_learns_on_fresh_candidates_for_every_run():
    history = wave(SQUARE.candidates(64, Seeded(0)), 40, seed=1)
    grown = GaussianProcess(units=Units.STANDARD, hyperparameters=FIXED)
    for size in range(1, 41):
        candidates = SQUARE.candidates(50, Seeded(size))
        mean, deviation = grown.posterior(candidates, history.first(size))
        expected = reference(history.first(size), candidates.features, FIXED)
        np.testing.assert_allclose(mean, expected[0], rtol=0, atol=1e-8)
        np.testing.assert_allclose(deviation, expected[1], rtol=0, atol=1e-8)


@pytest.mark.parametrize("hyperparameters", [None, FIXED])
def test_what_it_was_asked_before_does_not_matter(hyperparameters):
    grid = SQUARE.grid(x=8, y=8)
    history = wave(grid, 90, seed=2)
    grown = GaussianProcess(hyperparameters=hyperparameters)
    for size in range(1, 91):
        fresh = GaussianProcess(hyperparameters=hyperparameters)
        np.testing.assert_array_equal(
            grown.weights(grid, history.first(size)), fresh.weights(grid, history.first(size))
        )


def test_a_posterior_depends_on_its_arguments_alone():
    """Other candidates, and a history that shares some of its runs."""
    grid, other = SQUARE.grid(x=9, y=9), SQUARE.grid(x=5, y=7)
    history, strange = wave(grid, 60, seed=8), wave(grid, 60, seed=9)
    mixed = History(*(np.concatenate([getattr(history, name)[:20], getattr(strange, name)[20:]])
                      for name in ("features", "unit", "scores", "failed")), ({},) * 60)  # fmt: skip
    rule = GaussianProcess(hyperparameters=FIXED)
    for where, told in ((grid, history), (other, history), (grid, mixed), (grid, history.first(11)), (grid, history)):
        expected = GaussianProcess(hyperparameters=FIXED).posterior(where, told)
        np.testing.assert_array_equal(rule.posterior(where, told), expected)


def test_a_draw_costs_the_same_after_any_number_of_runs(monkeypatch):
    """At most 160 points reach the solve, the best and the latest of a long history among them."""
    line = Space({"x": uniform()})
    points, grid = line.candidates(1024, Seeded(0)), line.grid(x=20)
    history = observed(points, np.arange(1000), np.sin(9 * points.features[:1000, 0]))
    rows = {}

    def counted(parameters, data, candidates):
        rows[size] = len(data.means)
        assert data.means.max() == pytest.approx(standard.max())
        assert history.features[size - 1] in data.features
        return posterior(parameters, data, candidates)

    monkeypatch.setattr("dphypo.samplers.gaussian_process.posterior", counted)
    rule = GaussianProcess(units=Units.STANDARD, hyperparameters=Hyperparameters(lengthscales=0.2))
    for size in (100, *range(161, 400), 1000):
        standard = (history.scores[:size] - history.scores[:size].mean()) / history.scores[:size].std()
        rule.weights(grid, history.first(size))
    assert rows[100] == 100
    assert all(129 <= rows[size] <= 160 for size in rows if size > 160)


def test_changed_scores_of_the_same_points_are_noticed():
    grid = SQUARE.grid(x=6, y=6)
    history = wave(grid, 20, seed=3)
    rule = GaussianProcess()
    rule.weights(grid, history)
    other = replace(history, scores=-history.scores)
    np.testing.assert_allclose(rule.weights(grid, other), GaussianProcess().weights(grid, other), rtol=1e-9)


def test_the_marginal_likelihood_with_repeats_is_that_of_all_observations():
    rng = np.random.default_rng(0)
    points = rng.random((12, 2))
    rows = rng.integers(0, 12, 40)
    scores = rng.standard_normal(40)
    data = Data.of(points[rows], scores)
    single = Data(points[rows], scores, np.ones(40), 0.0)

    def value(logs: np.ndarray, of: Data) -> float:
        squares = (of.features[:, None] - of.features[None]) ** 2
        return fitting._negative_log_likelihood(logs, of, np.ascontiguousarray(squares.reshape(-1, 2).T))[0]

    one, two = np.array([0.1, -0.5, 0.2, -1.0]), np.array([-0.4, 0.1, -0.9, -2.0])
    # Up to a constant: the determinant of the grouping.
    assert value(one, data) - value(two, data) == pytest.approx(value(one, single) - value(two, single), abs=1e-6)


@pytest.mark.parametrize("width", [1, 2, 6])
def test_the_gradient_of_the_marginal_likelihood(width):
    rng = np.random.default_rng(width)
    points = rng.random((25, width))
    data = Data(points, rng.standard_normal(25), rng.integers(1, 4, 25).astype(float), 1.7)
    flat = np.ascontiguousarray(((points[:, None] - points[None]) ** 2).reshape(-1, width).T)
    logs = rng.normal(-0.5, 0.4, width + 2)
    error = check_grad(
        lambda p: fitting._negative_log_likelihood(p, data, flat)[0],
        lambda p: fitting._negative_log_likelihood(p, data, flat)[1],
        logs,
    )
    assert error < 1e-4


def test_the_fit_finds_what_matters_and_the_noise():
    rng = np.random.default_rng(0)
    points = rng.random((120, 4))
    scores = np.sin(7 * points[:, 2]) + 0.2 * rng.standard_normal(120)
    scores = (scores - scores.mean()) / scores.std()
    found = fit(Data(points, scores, np.ones(120), 0.0))
    scales = np.array(found.lengthscales)
    assert scales.argmin() == 2
    assert np.delete(scales, 2).min() > 3 * scales[2]
    assert 0.03 < found.noise < 0.2  # 0.04 / 0.54 in these units


def test_algorithm_2_by_hand_with_the_papers_settings():
    grid = SQUARE.grid(x=5, y=4)
    history = wave(grid, 2, seed=0)
    rule = GaussianProcess.paper()
    mean, deviation = reference(history, grid.features, prior_mode(2))  # two runs are too few for a fit
    weights = np.exp(1.0 * (mean + 0.1 * deviation))
    found = rule.weights(grid, history)
    np.testing.assert_allclose(found / found.sum(), weights / weights.sum(), rtol=1e-7)
    assert (rule.tau, rule.beta, rule.units) == (0.1, 1.0, Units.RAW)


def test_an_informed_prior_multiplies_the_softmax():
    grid = Space({"batch": ([1, 2, 3], [0.5, 0.3, 0.2])}).grid()
    history = observed(grid, np.array([0, 1, 2, 2]), np.array([0.0, 1.0, 2.0, 2.1]))
    rule = GaussianProcess(tau=0.5, beta=2.0, units=Units.STANDARD, hyperparameters=Hyperparameters())
    mean, deviation = rule.posterior(grid, history)
    expected = grid.masses * np.exp(2.0 * (mean + 0.5 * deviation) / history.scores.std())
    found = rule.weights(grid, history)
    np.testing.assert_allclose(found / found.sum(), expected / expected.sum(), rtol=1e-7)


@pytest.mark.parametrize("warp", [np.exp, lambda s: s**3, lambda s: 1e6 * s - 5])
def test_by_default_any_increasing_function_of_the_score_gives_the_same_search(warp):
    grid = SQUARE.grid(x=6, y=6)
    history = wave(grid, 30, seed=4)
    np.testing.assert_allclose(
        GaussianProcess().weights(grid, replace(history, scores=warp(history.scores))),
        GaussianProcess().weights(grid, history),
        rtol=1e-6,
    )


def test_a_failed_run_counts_as_the_worst_score_seen_and_among_ranks_as_the_lowest():
    grid = SQUARE.grid(x=6, y=6)
    history = wave(grid, 15, seed=5)
    failed, worst, lower = history.scores.copy(), history.scores.copy(), history.scores.copy()
    failed[7], worst[7], lower[7] = np.nan, np.delete(history.scores, 7).min(), -1e9
    for rule, stand_in in ((GaussianProcess.paper(), worst), (GaussianProcess(), lower)):
        np.testing.assert_allclose(
            rule.weights(grid, observed(grid, _cells(grid, history), failed)),
            rule.weights(grid, observed(grid, _cells(grid, history), stand_in)),
            rtol=1e-9,
        )


def _cells(grid: Grid, history: History) -> np.ndarray:
    return np.array([int(np.abs(grid.unit - point).sum(axis=1).argmin()) for point in history.unit])


def test_no_noise_and_the_same_point_again_and_again_degrade_to_jitter():
    grid = SQUARE.grid(x=4, y=4)
    rule = GaussianProcess(units=Units.RAW, hyperparameters=Hyperparameters(1.0, 5.0, 0.0))
    indices = np.array([3] * 20 + [3, 3, 5, 5, 3] + list(range(16)) * 2)
    scores = np.arange(len(indices), dtype=float)
    history = observed(grid, indices, scores)
    for size in range(1, len(indices) + 1):
        weights = rule.weights(grid, history.first(size))
        assert np.isfinite(weights).all()
        assert weights.max() > 0
    same = Data(np.zeros((4, 2)), np.ones(4), np.ones(4), 0.0)
    mean, deviation = posterior(Hyperparameters(1.0, 5.0, 0.0), same, np.zeros((1, 2)))
    assert mean[0] == pytest.approx(1.0, abs=1e-3)
    assert deviation[0] == pytest.approx(0.0, abs=1e-4)


def test_copies_and_text_hold_no_history():
    grid = SQUARE.grid(x=6, y=6)
    rule = GaussianProcess()
    blank = len(pickle.dumps(rule))
    rule.weights(grid, wave(grid, 25, seed=6))
    assert len(pickle.dumps(rule)) == blank
    assert rule == GaussianProcess()
    assert hash(rule) == hash(GaussianProcess())
    assert repr(rule) == repr(GaussianProcess())
    copy = pickle.loads(pickle.dumps(rule))
    assert copy == rule


def test_the_first_runs_are_drawn_from_the_prior():
    grid = Space({"x": uniform(), "y": [1, 2, 3]}).grid(x=4)
    for rule, start in ((GaussianProcess(), 2), (GaussianProcess.paper(), 1), (GaussianProcess(start=5), 5)):
        for size in range(start):
            np.testing.assert_array_equal(rule.weights(grid, wave(grid, size, 0)), grid.masses)
        assert np.ptp(rule.weights(grid, wave(grid, start, 0))) > 0


def test_arguments_are_checked():
    with pytest.raises(ValueError, match=r"start = 0 is not valid"):
        GaussianProcess(start=0)
    with pytest.raises(ValueError, match=r"tau = -1 is not valid"):
        GaussianProcess(tau=-1)
    with pytest.raises(ValueError, match="units = 'raw' is not valid"):
        GaussianProcess(units="raw")
    with pytest.raises(ValueError, match="noise = -1 is not valid"):
        Hyperparameters(noise=-1)
    with pytest.raises(ValueError, match=r"lengthscales = 0.0 is not valid"):
        Hyperparameters(lengthscales=(1.0, 0.0))
    grid = SQUARE.grid(x=2, y=2)
    with pytest.raises(ValueError, match="there are 2 features"):
        GaussianProcess(hyperparameters=Hyperparameters(lengthscales=(1.0, 1.0, 1.0))).weights(grid, wave(grid, 3, 0))
    with pytest.raises(ValueError, match="no posterior before the first run"):
        GaussianProcess().posterior(grid, wave(grid, 0, 0))


@given(st.integers(1, 10**6))
def test_the_schedule_is_the_same_from_every_length(size):
    last = checkpoint(size)
    assert last <= size < last + max(1, last // 2)
    assert checkpoint(last) == last


@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 12), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_collapsing_keeps_the_best_and_does_not_depend_on_the_order(size, values, limit, seed):
    rng = np.random.default_rng(seed)
    features = rng.integers(0, values, (size, 1)).astype(float)
    scores = rng.permutation(size).astype(float)
    data = Data.of(features, scores)
    kept = data.best(limit)[:, 0].tolist()
    assert len(set(kept)) == len(kept) == min(len(np.unique(features)), limit)
    means = dict(zip(data.features[:, 0].tolist(), data.means.tolist(), strict=True))
    everything = {value: scores[features[:, 0] == value].mean() for value in np.unique(features).tolist()}
    assert means == pytest.approx(everything)
    assert max(means[value] for value in kept) == max(means.values()) or limit == 1
    order = rng.permutation(size)
    assert set(Data.of(features[order], scores[order]).best(limit)[:, 0].tolist()) == set(kept)
