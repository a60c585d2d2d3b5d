"""Optuna's samplers: what they propose, as weights."""

from __future__ import annotations

import logging
import pickle
import threading
import time

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from scipy.stats import loguniform, uniform

from dphypo.band import Band, Greedy
from dphypo.entropy import Seeded
from dphypo.samplers import History, OptunaSampler
from dphypo.samplers.optuna import near
from dphypo.space import Space

SQUARE = Space({"x": uniform(), "y": uniform()})
EMPTY = History.empty(features=2, unit=2)
TREE = Space({"kind": ["a", "b", "c"], "rate": loguniform(1e-3, 1.0), "size": [8, 16, 32]}).when(
    "kind", ["a", "c"], {"depth": uniform()}
)


def told(space: Space, size: int, seed: int = 0) -> History:
    points = space.candidates(max(size, 1), Seeded(seed)).unit[:size]
    scores = np.cos(7 * points[:, 0]) + points[:, 1]
    scores[3:size:7] = np.nan
    return History(space.features(points), points, scores, np.isnan(scores), tuple(space.from_unit(points)))


def first(history: History, size: int) -> History:
    return History(
        history.features[:size],
        history.unit[:size],
        history.scores[:size],
        history.failed[:size],
        history.params[:size],
    )


def test_the_greedy_projection_of_a_proposal_is_the_nearest_prior_mass():
    grid = SQUARE.grid(x=20, y=20)
    band = Band(0.75, 2)
    weights = near([{"x": 0.31, "y": 0.62}], grid, 0.2)
    ratios = band.project(weights, grid.masses, Greedy()) / grid.masses
    distances = np.linalg.norm(grid.unit - [0.31, 0.62], axis=1)
    high = ratios > 1.99
    assert high.sum() == round(band.p * 400)
    assert distances[high].max() <= distances[~high].min() + 1e-12


def test_weights_fall_by_the_prior_mass_that_is_nearer():
    grid = Space({"x": ([1, 2, 3], [0.5, 0.3, 0.2])}).grid()
    weights = near([{"x": 3}], grid, 0.25)
    expected = grid.masses * np.exp(-np.array([0.5, 0.2, 0.0]) / 0.25)
    np.testing.assert_allclose(weights, expected, rtol=1e-9)


def test_several_proposals_and_none():
    grid = SQUARE.grid(x=9, y=9)
    both = near([{"x": 0.05, "y": 0.05}, {"x": 0.95, "y": 0.95}], grid, 0.2)
    assert set(np.flatnonzero(both == both.max())) == {0, 80}
    np.testing.assert_array_equal(near([], grid, 0.2), grid.masses)


def test_a_proposal_in_a_conditional_space_prefers_its_own_branch():
    grid = TREE.grid(rate=5, depth=4)
    weights = near([{"kind": "c", "rate": 0.02, "size": 16, "depth": 0.4}], grid, 0.2)
    best = grid.params(int((weights / grid.masses).argmax()))
    assert best["kind"] == "c"
    assert best["size"] == 16


def test_what_is_proposed_is_what_optuna_proposes_when_told_the_same():
    history = told(SQUARE, 30)
    candidates = SQUARE.candidates(512, Seeded(9))
    weights = OptunaSampler(optuna.samplers.TPESampler(seed=3)).weights(candidates, history)
    distributions = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=3))
    for point, score in zip(history.unit, history.scores, strict=True):
        study.enqueue_trial({"x": point[0], "y": point[1]})
        trial = study.ask(distributions)
        study.tell(trial, state=optuna.trial.TrialState.FAIL) if np.isnan(score) else study.tell(trial, score)
    for state in (study.sampler._rng.rng, study.sampler._random_sampler._rng.rng):
        state.random_sample(30 * 1024)  # a stretch of random numbers for every run
    proposal = study.ask(distributions).params
    nearest = np.linalg.norm(candidates.unit - [proposal["x"], proposal["y"]], axis=1).argmin()
    assert weights.argmax() == nearest


@pytest.mark.parametrize(
    "sampler",
    [
        optuna.samplers.TPESampler(seed=1, n_startup_trials=5),
        optuna.samplers.RandomSampler(seed=1),
        optuna.samplers.NSGAIISampler(seed=1, population_size=4),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_on_conditional_spaces_it_gives_the_same_whether_the_history_grew_or_not(sampler):
    history = told(TREE, 16)
    grown = OptunaSampler(sampler, proposals=2)
    for size in range(17):
        candidates = TREE.candidates(64, Seeded(size))
        weights = grown.weights(candidates, first(history, size))
        if size % 5 == 0:
            fresh = pickle.loads(pickle.dumps(grown))
            np.testing.assert_array_equal(fresh.weights(candidates, first(history, size)), weights)
    other = told(TREE, 16, seed=5)
    np.testing.assert_array_equal(
        grown.weights(candidates, other), OptunaSampler(sampler, proposals=2).weights(candidates, other)
    )


def test_before_there_is_anything_to_learn_proposals_differ_from_run_to_run():
    candidates = SQUARE.candidates(256, Seeded(1))
    history = told(SQUARE, 9)
    rule = OptunaSampler(optuna.samplers.TPESampler(seed=0))  # random for its first 10 runs
    chosen = [int(rule.weights(candidates, first(history, size)).argmax()) for size in range(10)]
    assert len(set(chosen)) == 10


class Remembering(optuna.samplers.BaseSampler):
    """Keeps state from ask to tell, as CMA-ES does, and proposes the best point it was told."""

    def infer_relative_search_space(self, study, trial):
        return {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}

    def sample_relative(self, study, trial, search_space):
        study._storage.set_trial_system_attr(trial._trial_id, "asked", True)
        done = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
        assert all(other.system_attrs["asked"] for other in done)
        return max(done, key=lambda other: other.value).params if done else {"x": 0.5, "y": 0.5}

    def sample_independent(self, study, trial, param_name, param_distribution):
        raise AssertionError("every parameter is in the relative space")


def test_a_sampler_that_keeps_state_from_ask_to_tell_finds_it():
    history = told(SQUARE, 25)
    grid = SQUARE.grid(x=16, y=16)
    best = history.unit[np.nanargmax(history.scores)]
    weights = OptunaSampler(Remembering()).weights(grid, history)
    assert weights.argmax() == np.linalg.norm(grid.unit - best, axis=1).argmin()


def test_cma_es_moves_to_where_the_scores_are():
    """Runs are drawn anywhere, not where it asked: its mean must follow what it is told all the same."""
    points = np.random.default_rng(0).random((200, 2))
    scores = -np.abs(points - [0.8, 0.3]).sum(axis=1)
    history = History(points, points, scores, np.zeros(200, dtype=bool), tuple(SQUARE.from_unit(points)))
    grid = SQUARE.grid(x=32, y=32)
    sampler = optuna.samplers.CmaEsSampler(seed=0, popsize=20)
    weights = OptunaSampler(sampler, proposals=16).weights(grid, history)
    nearest = grid.unit[np.argsort(-weights)[:20]]
    assert np.abs(nearest.mean(axis=0) - [0.8, 0.3]).max() < 0.15


class Categories(Remembering):
    def infer_relative_search_space(self, study, trial):
        return {"kind": CategoricalDistribution(range(3))}

    def sample_relative(self, study, trial, search_space):
        return {"kind": 1}

    def sample_independent(self, study, trial, param_name, param_distribution):
        assert param_name != "depth", "depth is inactive while kind is b"
        return 0.5


def test_inactive_parameters_are_not_suggested_and_categories_are_categories():
    grid = TREE.grid(rate=4, depth=4)
    weights = OptunaSampler(Categories()).weights(grid, History.empty(features=6, unit=4))
    assert grid.params(int(weights.argmax()))["kind"] == "b"


def test_nothing_is_printed_and_the_given_sampler_and_settings_stay_as_they_were(capfd, caplog):
    sampler = optuna.samplers.TPESampler(seed=2)
    state = pickle.dumps(sampler)
    optuna.logging.set_verbosity(optuna.logging.DEBUG)
    optuna.logging.enable_propagation()
    try:
        with caplog.at_level(logging.DEBUG):
            OptunaSampler(sampler).weights(SQUARE.candidates(16, Seeded(0)), told(SQUARE, 20))
        assert optuna.logging.get_verbosity() == optuna.logging.DEBUG
    finally:
        optuna.logging.set_verbosity(optuna.logging.INFO)
        optuna.logging.disable_propagation()
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []
    assert pickle.dumps(sampler) == state


def test_one_of_two_studies_in_threads_does_not_end_the_silence_of_the_other(caplog):
    """Optuna logs every study that is created: how many there are shows T."""
    inside, history = threading.Event(), told(SQUARE, 4)

    class Waits(optuna.samplers.RandomSampler):
        def __deepcopy__(self, memo):
            inside.set()
            time.sleep(0.5)  # the other thread may go in now, and out after this one
            return optuna.samplers.RandomSampler(seed=0)

    class Follows(optuna.samplers.RandomSampler):
        def __deepcopy__(self, memo):
            other.join()
            return optuna.samplers.RandomSampler(seed=0)

    other = threading.Thread(target=lambda: OptunaSampler(Waits()).proposed(SQUARE, history))
    optuna.logging.enable_propagation()
    try:
        with caplog.at_level(logging.INFO):
            other.start()
            inside.wait()
            OptunaSampler(Follows()).proposed(SQUARE, history)
    finally:
        optuna.logging.disable_propagation()
    assert caplog.records == []


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="proposals = 0 is not valid"):
        OptunaSampler(optuna.samplers.RandomSampler(), proposals=0)
    with pytest.raises(ValueError, match="fraction = 0 is not valid"):
        OptunaSampler(optuna.samplers.RandomSampler(), fraction=0)
    with pytest.raises(ValueError, match=r"history_only = 1 is not valid: give True or False"):
        OptunaSampler(optuna.samplers.RandomSampler(), history_only=1)


@pytest.mark.parametrize("given", [optuna.samplers.TPESampler, "tpe"])
def test_what_is_no_sampler_is_refused_where_it_is_given(given):
    with pytest.raises(ValueError, match=r"sampler = .* give a sampler of Optuna, such as TPESampler\(\)"):
        OptunaSampler(given)
