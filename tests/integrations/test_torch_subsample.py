"""A subsample of the records, drawn once a run: what is charged is what is run. False alarms: 1e-6 a test."""

from __future__ import annotations

from itertools import product
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
from scipy import stats
from support.torch_witness import FALSE_ALARM, Net, no_gradient, numbered, watching

import dphypo
from dphypo.accounting.events import ideal
from dphypo.mechanisms import over_space
from dphypo.torch import DPSGD, PrivateAccuracy

COUNT = 200
RUNS = 40


def mechanism(**changes: Any) -> DPSGD:
    arguments: dict[str, Any] = {
        "model": Net,
        "data": numbered(COUNT),
        "score": lambda model: 0.0,
        "noise_multiplier": 1.0,
        "loss": no_gradient,
        "epochs": 8,
        "batch_size": 15,
        "subsample": 0.3,
        "device": "cpu",
    }
    return DPSGD(**{**arguments, **changes})


def test_the_event_is_a_sampled_run() -> None:
    run = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.25, dp.GaussianDpEvent(1.0)), 32)
    assert ideal(mechanism().event({})) == dp.PoissonSampledDpEvent(0.3, run)
    assert ideal(mechanism(subsample=1.0).event({})) == dp.SelfComposedDpEvent(
        dp.PoissonSampledDpEvent(15 / COUNT, dp.GaussianDpEvent(1.0)), 107
    )
    assert mechanism(subsample=1.0).at(subsample=0.3).event({}) == mechanism().event({})


def test_a_score_on_the_same_records_forgoes_the_amplification() -> None:
    score = PrivateAccuracy(numbered(COUNT), noise_multiplier=5.0, split="same")
    assert ideal(mechanism(score=score).event({})) == ideal(mechanism().event({})).event


@pytest.mark.slow
def test_each_run_uses_a_subsample_and_each_step_a_part_of_it() -> None:
    ours, steps = mechanism(), 0
    used, met = np.zeros((RUNS, COUNT)), 0
    for seed in range(RUNS):
        with watching() as seen:
            ours({}, seed=seed)
        for batch in seen.batches:
            used[seed, batch] = 1
            met += len(batch)
        steps += seen.steps
    assert steps == 32 * RUNS
    # A record of the subsample is met in none of 32 steps with probability 0.75³² = 1e-4: counted in.
    once = 0.3 * (1 - 0.75**32)
    assert stats.binomtest(int(used.sum()), used.size, once).pvalue > FALSE_ALARM
    by_record = ((used.sum(0) - RUNS * once) ** 2).sum() / (RUNS * once * (1 - once))
    assert stats.chi2(COUNT).sf(by_record) > FALSE_ALARM / 10
    # Given the subsample the batches are Poisson at rate 0.25.
    assert stats.binomtest(met, round(used.sum()) * 32, 0.25).pvalue > FALSE_ALARM / 10


def test_a_batch_must_fit_the_subsample() -> None:
    with pytest.raises(ValueError, match="at most the declared 60 records"):
        mechanism(batch_size=61)
    with pytest.raises(ValueError, match="subsample"):
        mechanism(subsample=1.5)


@pytest.mark.slow
def test_a_subsampled_search_is_accounted_and_calibrated() -> None:
    space, law = dphypo.Space({"learning_rate": [0.1, 1.0]}), dphypo.Geometric(mean=5)
    study = dphypo.Study(space, mechanism(), law, delta=1e-5, journal=None)
    whole = dphypo.Study(space, mechanism(subsample=1.0, batch_size=50), law, delta=1e-5, journal=None)
    assert study.guarantee.epsilon(1e-5) < whole.guarantee.epsilon(1e-5)
    assert not dphypo.verify(study.guarantee.certificate(1e-5)).problems
    found = mechanism(noise_multiplier="calibrate").calibrated(space, law, epsilon=2.0, delta=1e-5)
    solved = dphypo.Study(space, found, law, delta=1e-5, journal=None).guarantee.epsilon(1e-5)
    assert 1.99 < solved <= 2.0


def test_a_fraction_of_the_epochs_also_where_they_are_tuned() -> None:
    full = mechanism(subsample=1.0, epochs=30)
    assert full.at(fraction=0.1).event({}) == mechanism(subsample=1.0, epochs=3).event({})
    assert full.at(fraction=0.1).event({"epochs": 60}) == mechanism(subsample=1.0, epochs=6).event({})
    with watching() as seen:
        full.at(fraction=0.1)({"epochs": 60}, seed=1)
    assert seen.steps == 80
    with pytest.raises(ValueError, match="fraction"):
        full.at(fraction=1.1)


@pytest.mark.parametrize("subsample", [1.0, 0.3])
@pytest.mark.parametrize("fraction", [0.37, 0.003])
def test_every_setting_is_charged_for_the_steps_it_trains(fraction: float, subsample: float) -> None:
    ours = mechanism(subsample=subsample, fraction=fraction)
    space = dphypo.Space({"epochs": [1, 2.7, 8], "batch_size": [7, 15]})
    charged = {repr(event) for event in over_space.events(ours, space)}
    for epochs, batch_size in product([1, 2.7, 8], [7, 15]):
        params = {"epochs": epochs, "batch_size": batch_size}
        with watching() as seen:
            ours(params, seed=1)
        event = ours.event(params)
        assert repr(event) in charged
        assert (ideal(event) if subsample == 1 else ideal(event).event).count == seen.steps > 0
