"""Execution plans of jax_privacy as mechanisms: their events, their noise, and what is refused."""

from __future__ import annotations

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy
from jax.scipy.special import ndtri
from jax_privacy.batch_selection import PartitionType
from scipy.stats import loguniform
from support.plans import FLAGS, NEW, OF_GRADIENT, made_plan
from support.plans import plan_config as config

import dphypo
from dphypo.jax import from_execution_plan
from dphypo.jax.execution_plan import normal
from dphypo.testing import check_mechanism

ZEROS = jnp.zeros(4000)
EQUAL_SPLIT = {"num_examples": 100} if NEW else {"partition_type": PartitionType.EQUAL_SPLIT}


def first_noise(params, *, seed, plan):
    """The noise that a plan adds to zeros in its first two steps."""
    state = plan.noise_addition_transform.init(ZEROS)
    one, state = plan.noise_addition_transform.update(ZEROS, state)
    two, _ = plan.noise_addition_transform.update(ZEROS, state)
    steps = sum(1 for _ in plan.batch_selection_strategy.batch_iterator(50, rng=seed))
    return {"one": np.asarray(one), "two": np.asarray(two), "steps": steps}, 0.5


@pytest.mark.parametrize("bands", [1, 4])
def test_the_event_is_that_of_the_plan(bands):
    given = config(strategy=0.5 ** np.arange(bands))
    mechanism = from_execution_plan(given, first_noise, scores="public")
    step = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(2.0))
    assert mechanism.event == made_plan(given).dp_event == dp_accounting.SelfComposedDpEvent(step, 20 // bands)
    short = mechanism.at(fraction=0.5, match=True)
    model, _ = short({}, seed=1)
    assert model["steps"] == -(-(20 // bands) // 2) * bands
    assert short.event.count == -(-(20 // bands) // 2)


def test_the_noise_of_a_plan_is_the_declared_one_and_each_runs_own():
    mechanism = from_execution_plan(config(l2_clip_norm=3.0, rescale_to_unit_norm=False), first_noise, scores="public")
    (one, _), (again, _), (other, _) = (mechanism({}, seed=seed) for seed in (1, 1, 1 + 2**32))
    louder = mechanism.at(noise_multiplier=4.0)({}, seed=1)[0]
    assert one["one"].std() == pytest.approx(6.0, rel=0.06)
    assert louder["one"].std() == pytest.approx(12.0, rel=0.06)
    np.testing.assert_array_equal(one["one"], again["one"])
    assert abs(np.corrcoef(one["one"], other["one"])[0, 1]) < 0.1
    assert abs(np.corrcoef(one["one"], one["two"])[0, 1]) < 0.1


def test_correlated_noise_stays_that_of_the_plan():
    """With a key of ours, a banded plan's noise is what jax_privacy makes of it: C⁻¹ times independent noise."""
    given = config(strategy=np.array([1.0, 0.5]))
    model, _ = from_execution_plan(given, first_noise, scores="public")({}, seed=3)
    deviation = 2.0 * np.linalg.norm([1.0, 0.5])
    assert model["one"].std() == pytest.approx(deviation, rel=0.06)
    assert model["two"].std() == pytest.approx(deviation * np.linalg.norm([1.0, 0.5]), rel=0.06)
    assert np.corrcoef(model["one"], model["two"])[0, 1] == pytest.approx(-0.5 / np.linalg.norm([1.0, 0.5]), abs=0.1)


def test_it_conforms_and_is_calibrated():
    space = dphypo.Space({"learning_rate": loguniform(0.1, 1.0)})
    mechanism = from_execution_plan(config(), first_noise, scores="public")
    check_mechanism(mechanism, space, points=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: made_plan(config()), "DPExecutionPlan: give the BandMFConfig or BandMFExecutionPlanConfig"),
        (
            lambda: config(truncated_batch_size=9, num_examples=100),
            "truncated_batch_size = 9 .* is not accounted",
        ),
        (
            lambda: config(strategy=np.ones(4), **EQUAL_SPLIT),
            "partition_type = 'EQUAL_SPLIT' is not valid: with 4 bands",
        ),
        (lambda: config(column_normalize=True), "column_normalize = True is not valid"),
        (lambda: config(noise_multiplier=0.0), "noise_multiplier = 0"),
    ],
)
def test_what_is_not_accounted_is_refused_by_name(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        from_execution_plan(given(), first_noise, scores="public")


@pytest.mark.slow
def test_our_normals_are_normal():
    """Kolmogorov's distance of 4e6 draws, and tails: false alarms with a probability below 1e-6."""
    drawn = np.abs(np.asarray(jax.jit(lambda key: normal(key, (4_000_000,)))(jax.random.key(1)), dtype=np.float64))
    assert scipy.stats.kstest(drawn, scipy.stats.halfnorm.cdf).pvalue > 1e-7
    for far in (3.0, 4.0):
        expected = 4e6 * 2 * scipy.stats.norm.sf(far)
        assert abs((drawn > far).sum() - expected) < 6 * np.sqrt(expected)


def test_the_quantiles_of_our_normals_are_right_in_the_tail():
    tails = np.geomspace(2.0**-65, 0.5, 200).astype(np.float32)
    np.testing.assert_allclose(ndtri(tails), scipy.special.ndtri(tails.astype(np.float64)), rtol=2e-6, atol=1e-6)


def test_noise_can_be_carried_through_a_program():
    given = config(strategy=np.array([1.0, 0.5]))

    def script(params, *, seed, plan):
        noisy, start = plan.noise_addition_transform, jnp.zeros(5)

        def step(state, _):
            made, state = noisy.update(start, state)
            return state, made

        _, inside = jax.jit(lambda state: jax.lax.scan(step, state, length=3))(noisy.init(start))
        state, outside = noisy.init(start), []
        for _ in range(3):
            state, made = step(state, None)
            outside.append(made)
        return {"inside": np.asarray(inside), "outside": np.asarray(jnp.stack(outside))}, 0.0

    model, _ = from_execution_plan(given, script, scores="public")({}, seed=3)
    np.testing.assert_allclose(model["inside"], model["outside"], rtol=1e-6)
    assert model["inside"].dtype == np.float32


@pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated")  # jax_privacy calls it
@pytest.mark.slow
def test_batches_are_padded_to_few_sizes_and_padding_counts_for_nothing():
    traced = []

    def loss(weights, record):
        traced.append(record)
        return jnp.sum(jnp.square(weights - record))

    def script(params, *, seed, plan):
        weights, records = jnp.ones(3), np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
        ours, theirs = plan.clipped_grad(loss, **OF_GRADIENT), made_plan_gradient(loss)
        assert ours.sensitivity() == theirs.sensitivity()
        traced.clear()
        sums = [ours(weights, records[:count]) for count in range(100, 130)]
        programs = len(traced)
        for count, made in zip(range(100, 130), sums, strict=True):
            np.testing.assert_allclose(made, theirs(weights, records[:count]), rtol=1e-4, atol=1e-5)
        assert np.array_equal(ours(weights, records[:0]), np.zeros(3))
        known = jax.jit(lambda some: ours(weights, some))(jnp.asarray(records[:7]))
        np.testing.assert_allclose(known, theirs(weights, records[:7]), rtol=1e-5)
        return {"programs": programs}, 0.0

    def made_plan_gradient(loss):
        return (config().make(**FLAGS) if NEW else config().plan).clipped_grad(loss, **OF_GRADIENT)

    model, _ = from_execution_plan(config(), script, **FLAGS, scores="public")({}, seed=3)
    assert model["programs"] <= 3, "112, 128 and 160 records"


@pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated")
def test_outputs_of_single_records_are_those_of_the_batch():
    def script(params, *, seed, plan):
        gradient = plan.clipped_grad(lambda w, x: jnp.sum(w * x), return_values=True, **OF_GRADIENT)
        _, aux = gradient(jnp.ones(2), jnp.ones((5, 2)))
        return {"values": np.asarray(jax.tree.leaves(aux)[0])}, 0.0

    model, _ = from_execution_plan(config(), script, **FLAGS, scores="public")({}, seed=3)
    assert model["values"].tolist() == [2.0] * 5


@pytest.mark.skipif(NEW, reason="configurations are calibrated before they are given, since jax_privacy 2.2")
@pytest.mark.slow
def test_a_plan_by_its_budget_has_the_noise_that_jax_privacy_finds():
    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    given = config(
        epsilon=4.0, delta=1e-5, noise_multiplier=None, accountant=accountant, partition_type=PartitionType.INDEPENDENT
    )
    mechanism = from_execution_plan(given, first_noise, scores="public")
    epsilon = dphypo.account(mechanism.event, dphypo.Pmf({1: 1.0})).epsilon(1e-5)
    assert epsilon == pytest.approx(4.0, rel=0.01)
    assert jax.config.jax_enable_x64 is False
