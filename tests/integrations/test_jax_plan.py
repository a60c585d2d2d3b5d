"""Execution plans of jax_privacy as mechanisms: their events, their noise, and what is refused."""

from __future__ import annotations

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_privacy.batch_selection import PartitionType
from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig
from scipy.stats import loguniform

import dphypo
from dphypo.integrations.jax import from_execution_plan
from dphypo.testing import check_mechanism

ZEROS = jnp.zeros(4000)


def config(**changes):
    given = {"iterations": 20, "strategy": np.ones(1), "epsilon": None, "delta": None, "noise_multiplier": 2.0}
    return BandMFExecutionPlanConfig(**{**given, "sampling_prob": 0.1, **changes})


def first_noise(params, *, seed, plan):
    """The noise that a plan adds to zeros in its first two steps."""
    state = plan.noise_addition_transform.init(ZEROS)
    one, state = plan.noise_addition_transform.update(ZEROS, state)
    two, _ = plan.noise_addition_transform.update(ZEROS, state)
    steps = sum(1 for _ in plan.batch_selection_strategy.batch_iterator(50, rng=seed))
    return {"one": np.asarray(one), "two": np.asarray(two), "steps": steps}, 0.5


@pytest.mark.parametrize("bands", [1, 4])
def test_the_event_is_that_of_the_plan(bands):
    partition = PartitionType.INDEPENDENT if bands > 1 else PartitionType.EQUAL_SPLIT
    given = config(strategy=0.5 ** np.arange(bands), partition_type=partition)
    mechanism = from_execution_plan(given, first_noise)
    step = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(2.0))
    assert mechanism.event == given.plan.dp_event == dp_accounting.SelfComposedDpEvent(step, 20 // bands)
    short = mechanism.at(fraction=0.5, match=True)
    model, _ = short({}, seed=1)
    assert model["steps"] == -(-(20 // bands) // 2) * bands
    assert short.event.count == -(-(20 // bands) // 2)


def test_the_noise_of_a_plan_is_the_declared_one_and_each_runs_own():
    mechanism = from_execution_plan(config(l2_clip_norm=3.0, rescale_to_unit_norm=False), first_noise)
    (one, _), (again, _), (other, _) = (mechanism({}, seed=seed) for seed in (1, 1, 1 + 2**32))
    louder = mechanism.at(noise_multiplier=4.0)({}, seed=1)[0]
    assert one["one"].std() == pytest.approx(6.0, rel=0.06)
    assert louder["one"].std() == pytest.approx(12.0, rel=0.06)
    np.testing.assert_array_equal(one["one"], again["one"])
    assert abs(np.corrcoef(one["one"], other["one"])[0, 1]) < 0.1
    assert abs(np.corrcoef(one["one"], one["two"])[0, 1]) < 0.1


def test_correlated_noise_stays_that_of_the_plan():
    """With a key of ours, a banded plan's noise is what jax_privacy makes of it: C⁻¹ times independent noise."""
    given = config(strategy=np.array([1.0, 0.5]), partition_type=PartitionType.INDEPENDENT)
    model, _ = from_execution_plan(given, first_noise)({}, seed=3)
    deviation = 2.0 * np.linalg.norm([1.0, 0.5])
    assert model["one"].std() == pytest.approx(deviation, rel=0.06)
    assert model["two"].std() == pytest.approx(deviation * np.linalg.norm([1.0, 0.5]), rel=0.06)
    assert np.corrcoef(model["one"], model["two"])[0, 1] == pytest.approx(-0.5 / np.linalg.norm([1.0, 0.5]), abs=0.1)


def test_it_conforms_and_is_calibrated():
    space = dphypo.Space({"learning_rate": loguniform(0.1, 1.0)})
    mechanism = from_execution_plan(config(), first_noise)
    check_mechanism(mechanism, space, points=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: config().plan, "DPExecutionPlan: give the BandMFExecutionPlanConfig"),
        (
            lambda: config(truncated_batch_size=9, num_examples=100),
            "truncated_batch_size = 9 .* is not accounted",
        ),
        (lambda: config(strategy=np.ones(4)), "partition_type = 'EQUAL_SPLIT' is not valid: with 4 bands"),
        (lambda: config(column_normalize=True), "column_normalize = True is not valid"),
        (lambda: config(noise_multiplier=0.0), "noise_multiplier = 0"),
    ],
)
def test_what_is_not_accounted_is_refused_by_name(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        from_execution_plan(given(), first_noise)


@pytest.mark.slow
def test_a_plan_by_its_budget_has_the_noise_that_jax_privacy_finds():
    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    given = config(
        epsilon=4.0, delta=1e-5, noise_multiplier=None, accountant=accountant, partition_type=PartitionType.INDEPENDENT
    )
    mechanism = from_execution_plan(given, first_noise)
    epsilon = dphypo.account(mechanism.event, dphypo.Pmf({1: 1.0})).epsilon(1e-5)
    assert epsilon == pytest.approx(4.0, rel=0.01)
    assert jax.config.jax_enable_x64 is False
