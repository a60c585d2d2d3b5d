"""Simulated and planned surveys: the noise against the library's accountant, the process against a plain one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dphypo.accounting import Composition, Term
from dphypo.accounting.composition import account_published
from dphypo.samplers.gaussian_process import Hyperparameters, covariance
from paper.experiments import trained_surveys
from paper.experiments.survey_plans import DELTA, EPSILON, FILE, PAPER, RECORDS, event, full_event
from paper.simulate.survey_costs import Steps, noise
from paper.simulate.survey_optimiser import Optimiser, Surveys, even
from paper.simulate.surveys import Plan, picked
from paper.train.settings import Setting

PLANS = json.loads(FILE.read_text())
ARMS = [
    pytest.param(
        name, number, marks=[pytest.mark.slow] if len(plan["settings"]) > 1 else []
    )  # each setting is an event
    for name, plan in PLANS.items()
    for number, arm in enumerate(plan["arms"])
    if arm["count"] > 2
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), ARMS)
def test_no_planned_survey_costs_more_than_it_says(name: str, number: int) -> None:
    plan = PLANS[name]
    arm, records = plan["arms"][number], RECORDS[plan["data"]]
    short = zip(arm["short_batch"], arm["short_steps"], arm["short_noise"], strict=True)
    full = zip(plan["settings"], arm["noise"], strict=True)
    survey = account_published([event(batch, steps, records, level) for batch, steps, level in short], arm["count"])
    last = account_published([full_event(Setting(**one), records, level) for one, level in full], 1)
    spent = Composition.of(survey, last).epsilon(DELTA)
    assert EPSILON - 5e-3 < spent < EPSILON + 1e-4  # noise is written with eight decimals


@pytest.mark.slow
def test_the_noise_of_a_simulated_survey_is_the_librarys() -> None:
    level = noise(Steps(256 / 60_000, 2344), EPSILON, 235, 20)
    short = event(256, 235, 60_000, level * (2344 / 235) ** 0.5)
    plan = Composition(
        (Term(account_published(short, 20)), Term(account_published(full_event(PAPER[0], 60_000, level), 1)))
    )
    assert EPSILON - 2e-3 < plan.epsilon(DELTA) <= EPSILON


def test_the_posterior_of_many_surveys_is_that_of_each() -> None:
    random = np.random.default_rng(0)
    features = random.random((40, 3))
    surveys = Surveys(features, Optimiser(), 2)
    for _ in range(7):
        surveys.observe(random.integers(0, 40, 2), random.standard_normal(2))
    mean, deviation = surveys.posterior()
    for n in range(2):
        scales, level = tuple(surveys._scales[n]), surveys._noise[n]
        here = features[surveys.cells[n]]
        fitted = Hyperparameters(1.0, scales, float(level))
        prior, cross = covariance(here, here, fitted) + level * np.eye(7), covariance(here, features, fitted)
        values = (surveys.scores[n] - surveys.scores[n].mean()) / surveys.scores[n].std()
        solved = np.linalg.solve(prior, values)
        assert mean[n] == pytest.approx(cross.T @ solved)
        left = 1 - np.einsum("tc,tc->c", cross, np.linalg.solve(prior, cross))
        assert deviation[n] == pytest.approx(np.sqrt(left * (values @ solved) / 7), abs=1e-6)


def test_a_survey_finds_the_top_of_a_smooth_landscape() -> None:
    axis = (np.arange(12) + 0.5) / 12
    features = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    mean = -((features - [0.3, 0.7]) ** 2).sum(axis=1)
    chosen = picked(features, mean, 0.02, Plan(), 30, seed=3)
    reached = mean[chosen].mean()
    assert reached > -0.02  # the mean cell has -0.25; a cell next to the top has -0.01


def test_an_even_design_spreads() -> None:
    features = np.random.default_rng(1).random((500, 2))
    shift = np.random.default_rng(2).random((4, 2))
    cells = np.stack([even(features, t, shift) for t in range(10)], axis=1)
    for row in cells:
        place = features[row]
        gaps = np.sqrt(((place[:, None] - place[None]) ** 2).sum(axis=2)) + np.eye(10)
        assert gaps.min() > 0.08


@pytest.mark.slow
def test_the_results_are_made_from_what_was_trained() -> None:
    found = trained_surveys.measured()
    assert all(row["searches"] >= 80 for row in found["rows"])
    assert all(row["low"] < row["ratio"] < row["high"] for row in found["held out"])
