"""The one solver for noise: published figures, settings with noise of their own, and answers that are kept."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
from support.slow import mostly_slow
from support.solver_tries import watch

from dphypo.accounting import Guarantee, account, calibrate
from dphypo.accounting.calibrate import equal_noise, run_alone, solve_noise, solve_settings
from dphypo.accounting.composition import Composition, Term, account_published
from dphypo.accounting.events import RoundedDp
from dphypo.errors import UnreachableError
from dphypo.laws import Geometric

RECORDS, DELTA = 60_000, 1e-5


def dp_sgd(batch: int, steps: float, noise: float) -> dp.DpEvent:
    step = dp.PoissonSampledDpEvent(batch / RECORDS, dp.GaussianDpEvent(noise))
    return dp.SelfComposedDpEvent(step, round(steps))


def plan(survey: list[dp.DpEvent], count: int, last: list[dp.DpEvent], grid: float = 1e-3) -> Composition:
    terms = [Term(account_published(survey, count, grid=grid))] if count else []
    return Composition((*terms, Term(account_published(last, 1, grid=grid))))


def noise(batch: int, steps: int, epsilon: float, fraction: float = 0.1, count: int = 0, start: float = 1.0) -> float:
    """The noise of a full run after so many matched short ones."""

    def at(sigma: float) -> Composition:
        short = dp_sgd(batch, math.ceil(fraction * steps), sigma / math.sqrt(fraction))
        grid = 1e-3 if epsilon > 1 else 2e-4  # at a small ε the default grid rounds noise up by 0.2 per cent
        return plan([short], count, [dp_sgd(batch, steps, sigma)], grid)

    return solve_noise(at, epsilon=epsilon, delta=DELTA, start=start).value


@pytest.mark.slow
def test_a_survey_of_the_paper_s_task_costs_a_third_of_a_per_cent():
    """Theory, section 10.1, to three digits."""
    alone = noise(256, 2344, 4.25, start=0.627)
    tuned = noise(256, 2344, 4.25, 0.1, 20, start=0.629)
    assert alone == pytest.approx(0.6268, abs=5e-4)
    assert tuned == pytest.approx(0.6287, abs=5e-4)
    assert 0.2 < 100 * (tuned / alone - 1) < 0.4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "steps", "survey", "full"),
    [
        (20, 70, 3.63, 0.6270),
        (10, 234, 1.99, 0.6278),
        (20, 234, 1.99, 0.6287),
        (40, 234, 2.0, 0.6307),
        (10, 703, 1.17, 0.6387),
    ],
)
def test_the_first_table_of_published_figures(count, steps, survey, full):
    def at(sigma: float) -> Composition:
        return plan([dp_sgd(256, steps, survey)], count, [dp_sgd(256, 2344, sigma)])

    found = solve_noise(at, epsilon=4.25, delta=DELTA, start=full)
    assert found.value == pytest.approx(full, abs=5e-4)
    assert 4.249 <= found.guarantee.epsilon(DELTA) <= 4.25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "steps", "epsilon", "alone", "added"),
    [
        (256, 2344, 1.0, 1.050, (0.27, 0.75, 1.6, 3.2)),
        (256, 2344, 4.25, 0.627, (0.02, 0.07, 0.15, 0.31)),
        (1024, 586, 4.25, 0.801, (0.10, 0.25, 0.55, 1.1)),
        (2048, 2344, 4.25, 1.859, (0.62, 1.7, 3.5, 7.0)),
        (256, 2344, 8.0, 0.524, (0.01, 0.04, 0.08, 0.17)),
    ],
)
def test_the_second_table_of_published_figures(batch, steps, epsilon, alone, added):
    one = noise(batch, steps, epsilon, start=alone)
    assert one == pytest.approx(alone, abs=1e-3)
    for (fraction, count), per_cent in zip([(0.03, 20), (0.05, 20), (0.1, 10), (0.1, 20)], added, strict=True):
        tuned = noise(batch, steps, epsilon, fraction, count, start=one)
        assert 100 * (tuned / one - 1) == pytest.approx(per_cent, rel=0.1, abs=0.06)


SETTINGS = {(256, 2344): 0.627, (2048, 2344): 1.86}


@pytest.mark.slow
def test_settings_calibrated_one_by_one_cost_more_than_declared():
    """The mutant of theory, section 10.6: each setting as if all runs were at it costs 4.46 for 4.25."""
    alone = {(batch, steps): noise(batch, steps, 4.25, 0.1, 20, start) for (batch, steps), start in SETTINGS.items()}
    survey = [dp_sgd(b, 0.1 * steps, sigma / math.sqrt(0.1)) for (b, steps), sigma in alone.items()]
    last = [dp_sgd(b, steps, sigma) for (b, steps), sigma in alone.items()]
    assert all(plan([s], 20, [full]).epsilon(DELTA) <= 4.26 for s, full in zip(survey, last, strict=True))
    together = plan(survey, 20, last)
    assert together.epsilon(DELTA) > 4.4  # any run at any setting: what the one-by-one calibration misses
    assert plan(survey[1:], 20, last[:1]).epsilon(DELTA) == pytest.approx(4.46, abs=0.02)


@pytest.mark.slow
def test_settings_calibrated_together_cost_what_was_declared():
    alone = {key: run_alone(lambda sigma, key=key: dp_sgd(*key, sigma)) for key in SETTINGS}
    assert equal_noise(alone, epsilon=4.25, delta=DELTA) == pytest.approx(SETTINGS, rel=5e-3)

    def at(noise: Mapping[tuple[int, int], float]) -> Composition:
        survey = [dp_sgd(b, 0.1 * steps, sigma / math.sqrt(0.1)) for (b, steps), sigma in noise.items()]
        return plan(survey, 20, [dp_sgd(*key, sigma) for key, sigma in noise.items()])

    noise, found = solve_settings(alone, at, epsilon=4.25, delta=DELTA)
    assert 4.249 <= found.epsilon <= 4.25
    for short_at in SETTINGS:
        for last_at in SETTINGS:
            short = dp_sgd(short_at[0], 0.1 * short_at[1], noise[short_at] / math.sqrt(0.1))
            assert plan([short], 20, [dp_sgd(*last_at, noise[last_at])]).epsilon(DELTA) <= 4.25


def test_what_cannot_be_reached_is_said_with_a_remedy():
    def at(sigma: float) -> Composition:
        return plan([dp.GaussianDpEvent(0.5)], 3, [dp.GaussianDpEvent(sigma)])

    with pytest.raises(UnreachableError, match="fewer runs"):
        solve_noise(at, epsilon=1.0, delta=1e-6)


def test_an_epsilon_that_exact_runs_cannot_have_is_given_up_quickly():
    """e^ε times the slack of an exact run exceeds δ from some ε on: from there on its ε is infinite."""
    tried: list[float] = []

    def at(sigma: float) -> Composition:
        tried.append(sigma)
        run = RoundedDp(dp_sgd(64, 100, sigma), 1e-14)
        return Composition.of(account_published(run, 1))

    found = solve_noise(at, epsilon=50.0, delta=1e-6)
    assert 17 < found.epsilon < math.log(1e-6 / 1e-14)
    assert at(found.value / 1.002).epsilon(1e-6) == math.inf
    assert len(tried) < 40


class Kept:
    """Keeps answers in a dictionary, as a journal does in a table."""

    def __init__(self) -> None:
        self.answers: dict[str, float] = {}

    def __call__(self, question: Mapping[str, Any], solve: Any) -> float:
        text = json.dumps(question, sort_keys=True)
        if text not in self.answers:
            self.answers[text] = solve()
        return self.answers[text]


def gaussian(noise: float) -> Composition:
    return plan([dp.GaussianDpEvent(10 * noise)], 10, [dp.GaussianDpEvent(noise)])


def search(noise: float) -> Guarantee:
    return account(dp.GaussianDpEvent(noise), Geometric(mean=5))


@pytest.mark.parametrize("at", [gaussian, search])
@pytest.mark.parametrize("factor", [0.9, 0.999, 1.01, 30.0, -1.0, math.nan, math.inf])
def test_a_kept_answer_is_used_once_it_is_checked_and_solved_for_again_where_it_is_wrong(at, factor):
    keep, tried = Kept(), list[float]()
    with watch(tried.append):
        first = solve_noise(at, epsilon=2.0, delta=1e-6, keep=keep)
        tries = len(tried)
        assert solve_noise(at, epsilon=2.0, delta=1e-6, keep=keep).value == first.value
        assert len(tried) == tries > 0
        (question,) = keep.answers
        keep.answers[question] *= factor
        assert solve_noise(at, epsilon=2.0, delta=1e-6, keep=keep).value == first.value
        assert len(tried) == 2 * tries


@pytest.mark.parametrize("at", [gaussian, search])
def test_an_answer_is_remembered_and_checked(at):
    tried = list[float]()
    with watch(tried.append):
        first = solve_noise(at, epsilon=2.0, delta=1e-6)
        tries = len(tried)
        assert solve_noise(at, epsilon=2.0, delta=1e-6).value == first.value
        assert len(tried) == tries > 0
        at_two = lambda noise: at(noise if noise == 1 else 2 * noise)  # noqa: E731 - the same question, wrongly
        other = solve_noise(at_two, epsilon=2.0, delta=1e-6)
        assert len(tried) > tries
        assert 1.99 <= other.epsilon <= 2.0


@pytest.mark.parametrize("kind", [np.float32, np.int64, Fraction])
def test_numbers_of_every_kind_ask_the_same_question(kind):
    tried = list[float]()
    with watch(tried.append):
        first = solve_noise(gaussian, epsilon=2.0, delta=1e-6, start=1.0)
        tries = len(tried)
        assert solve_noise(gaussian, epsilon=kind(2), delta=1e-6, start=kind(1)).value == first.value
    assert len(tried) == tries > 0


@pytest.mark.parametrize("at", [gaussian, search])
def test_another_question_has_another_answer(at):
    keep = Kept()
    first = solve_noise(at, epsilon=2.0, delta=1e-6, keep=keep)
    assert solve_noise(at, epsilon=2.1, delta=1e-6, keep=keep).value < first.value
    assert solve_noise(lambda noise: at(1.1 * noise), epsilon=2.0, delta=1e-6, keep=keep).value < first.value


def test_a_kept_answer_at_the_end_of_the_range_is_believed():
    keep, tried = Kept(), list[float]()
    found = solve_noise(gaussian, epsilon=2.0, delta=1e-6, smallest=7.0, keep=keep)
    assert found.value == 7.0
    with watch(tried.append):
        assert solve_noise(gaussian, epsilon=2.0, delta=1e-6, smallest=7.0, keep=keep).value == 7.0
    assert tried == []


@pytest.mark.parametrize("epsilon", mostly_slow([1e300, 1e3, 1e5], 2))
def test_an_absurd_budget_is_answered_at_once(epsilon):
    """The losses of so little noise have millions of values: a Rényi bound stands in."""
    found = calibrate(lambda sigma: dp_sgd(256, 2344, sigma), Geometric(mean=10), epsilon=epsilon, delta=DELTA)
    assert found.epsilon <= epsilon
    assert found.value < 0.2
