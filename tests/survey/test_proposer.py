"""Proposers of a survey: each finds the top of a smooth landscape, and runs made side by side spread out."""

from __future__ import annotations

import json
import math

import numpy as np
import optuna
import pytest
from scipy.stats import loguniform, randint, uniform

from dphypo.entropy import SYSTEM, Seeded
from dphypo.search.proposer import (
    FromOptuna,
    SamplerProposer,
    history_of,
    middle,
    moved_into,
    point_of,
    posterior_mean,
    read_proposer,
    with_pending,
)
from dphypo.search.release import Row
from dphypo.space import Space

SPACE = Space({"lr": loguniform(1e-3, 10), "clip": loguniform(1e-2, 100)})


def score(params, noise=0.0):
    """A ridge that falls off a cliff where training diverges, as learning rates do."""
    (u, v), _ = SPACE.to_unit([params])[0], None
    return 0.97 - 2 * (u - 0.6) ** 2 - (v - 0.4) ** 2 - 0.8 * (u + 0.3 * v > 0.95) + noise


def survey(proposer, runs=20, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for number in range(runs):
        history = history_of(SPACE, rows, maximize=True)
        params = proposer.propose(SPACE, history, [], Seeded(seed).child(str(number)))
        rows.append(Row(params, score(params, noise * rng.normal())))
    return rows


OPTIMISERS = {
    "ours": lambda: SamplerProposer(),
    "tpe": lambda: FromOptuna(optuna.samplers.TPESampler(seed=1, n_startup_trials=5)),
    "gp": lambda: FromOptuna(optuna.samplers.GPSampler(seed=1, n_startup_trials=8)),
    "cma": lambda: FromOptuna(optuna.samplers.CmaEsSampler(seed=1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_proposer_improves_on_its_first_runs(name):
    rows = survey(OPTIMISERS[name](), runs=25)
    best = np.maximum.accumulate([row.score for row in rows])
    assert best[-1] >= 0.9
    assert np.mean([row.score for row in rows[-8:]]) > np.mean([row.score for row in rows[:8]])


def test_ours_finds_the_top_in_twenty_noisy_runs():
    """Ten seeds; the posterior mean's best loses little where the best noisy score would lose more on average."""
    lost = []
    for seed in range(10):
        rows = survey(SamplerProposer(), noise=0.02, seed=seed)
        chosen = posterior_mean(SPACE, rows, maximize=True)
        lost.append(0.97 - score(chosen))
    assert np.mean(lost) < 0.01


def test_directions_are_respected():
    rows = survey(SamplerProposer())
    flipped = [Row(row.params, -row.score) for row in rows]
    up = posterior_mean(SPACE, rows, maximize=True)
    down = posterior_mean(SPACE, flipped, maximize=False)
    assert up == down


def test_runs_made_side_by_side_spread_out():
    rows = survey(SamplerProposer(), runs=10)
    history = history_of(SPACE, rows, maximize=True)
    pending: list[dict[str, float]] = []
    for number in range(4):
        pending.append(SamplerProposer().propose(SPACE, history, pending, Seeded(number)))
    assert len({tuple(one.values()) for one in pending}) == 4
    assumed = with_pending(SPACE, history, pending)
    assert len(assumed) == 14
    assert not assumed.failed.any()


def test_the_first_runs_cover_the_space():
    empty = history_of(SPACE, [], maximize=True)
    first: list[dict[str, float]] = []
    for _ in range(5):
        first.append(SamplerProposer().propose(SPACE, empty, first, SYSTEM))
    unit = SPACE.to_unit(first)
    assert (np.ptp(unit, axis=0) > 0.5).all()


def test_failed_runs_are_avoided_and_all_failed_is_refused():
    space = Space({"x": uniform()})
    rows = [Row({"x": x}, None if x > 0.5 else x) for x in np.linspace(0.02, 0.98, 9)]
    assert posterior_mean(space, rows, maximize=True)["x"] < 0.6
    with pytest.raises(ValueError, match="no published run has a score"):
        posterior_mean(space, [Row({"x": 0.5}, None)], maximize=True)
    # With nothing but failures the search goes on.
    failed = history_of(space, [Row({"x": 0.5}, None)] * 6, maximize=True)
    assert 0 < SamplerProposer().propose(space, failed, [{"x": 0.1}], Seeded(0))["x"] < 1


def test_the_middle_of_the_prior_and_points_that_are_not_of_the_space():
    assert middle(SPACE) == {"lr": 0.1, "clip": 1.0}
    assert point_of(SPACE, {"lr": 0.1, "clip": 1.0}) == {"lr": 0.1, "clip": 1.0}
    with pytest.raises(ValueError, match="lr"):
        point_of(SPACE, {"lr": 1e6, "clip": 1.0})


def test_a_run_is_given_the_values_that_were_declared():
    space = Space({"width": [64, 128], "layers": [(64,), (64, 64)], "lr": uniform(0, 1), "seed": randint(0, 10**9)})
    given = {"width": np.float64(64), "layers": [64, 64], "lr": np.float32(0.5), "seed": np.int64(7)}
    point = point_of(space, given)
    assert point == {"width": 64, "layers": (64, 64), "lr": 0.5, "seed": 7}
    assert [type(value) for value in point.values()] == [int, tuple, float, int]
    whole = point_of(space, given | {"lr": 1, "seed": 7.0})
    assert (type(whole["lr"]), type(whole["seed"])) == (float, int)
    json.dumps(point)


DECLARED = (
    Space({"lr": loguniform(1e-3, 1), "width": [64, 128, 256, math.inf], "optimizer": ["sgd", "adam", None]})
    .when("optimizer", "sgd", {"momentum": uniform(0, 0.9)})
    .when("optimizer", "adam", {"beta": [0.9, 0.99, 0.999]})
)
NARROW = Space({"lr": loguniform(0.05, 0.2), "width": [128, math.inf], "optimizer": ["adam", None]}).when(
    "optimizer", "adam", {"beta": [0.99]}
)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"lr": 0.1, "width": 128, "optimizer": None}, {"lr": 0.1, "width": 128, "optimizer": None}),
        ({"lr": 0.1, "width": math.inf, "optimizer": None}, {"lr": 0.1, "width": math.inf, "optimizer": None}),
        ({"lr": 0.9, "width": 64, "optimizer": "adam", "beta": 0.9}, {"lr": 0.2, "width": 128, "beta": 0.99}),
        ({"lr": 0.01, "width": 256, "optimizer": "sgd", "momentum": 0.5}, {"lr": 0.05, "width": 128}),
    ],
)
def test_a_point_is_moved_into_a_narrower_prior(params, expected):
    moved = moved_into(NARROW, DECLARED, params)
    assert {name: moved[name] for name in expected} == pytest.approx(expected)
    assert point_of(NARROW, moved) == moved
    assert moved_into(DECLARED, DECLARED, params) == params
    shaped = DECLARED.around(params)
    assert moved_into(shaped, DECLARED, params) == params


def test_what_is_no_point_of_the_declared_space_is_not_moved():
    for params in ({"lr": 0.1}, {"lrr": 0.1, "width": 64, "optimizer": None}):
        with pytest.raises(ValueError, match=r"lr|width"):
            moved_into(NARROW, DECLARED, params)


def test_what_is_no_proposer_is_refused():
    assert isinstance(read_proposer(None), SamplerProposer)
    assert isinstance(read_proposer(optuna.samplers.RandomSampler()), FromOptuna)
    with pytest.raises(ValueError, match="proposer"):
        read_proposer("tpe")
