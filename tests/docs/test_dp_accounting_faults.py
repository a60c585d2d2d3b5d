"""The faults of dp_accounting that docs/dp-accounting-faults.md reports, reproduced with dp_accounting alone.

A test here fails when a new version mends a fault: then the page says so, and what works around it can go.
"""

from __future__ import annotations

import importlib.metadata
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy.special import ndtr

pytestmark = pytest.mark.slow

ADD = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE
Gaussian, Poisson = dp_accounting.GaussianDpEvent, dp_accounting.PoissonSampledDpEvent
Repeated, Composed = dp_accounting.SelfComposedDpEvent, dp_accounting.ComposedDpEvent


def rdp(event, relation=ADD, delta=1e-5):
    return RdpAccountant(neighboring_relation=relation).compose(event).get_epsilon(delta)


def pld(event, relation=ADD, delta=1e-5):
    return PLDAccountant(relation).compose(event).get_epsilon(delta)


def test_the_page_names_the_version():
    assert importlib.metadata.version("dp-accounting").startswith("0.6.")


@pytest.mark.parametrize("sigma", [3, np.float32(3), np.int64(3)])
def test_1_a_noise_multiplier_that_is_no_float_ends_the_count(sigma):
    """Nine Gaussians under one subsample are counted as one; of two different ones, only the first counts."""
    assert rdp(Poisson(0.3, Repeated(Gaussian(3.0), 9))) == pytest.approx(3.2906, abs=1e-3)
    assert rdp(Poisson(0.3, Repeated(Gaussian(sigma), 9))) == pytest.approx(0.5999, abs=1e-3)
    assert rdp(Poisson(0.3, Composed([Gaussian(100.0), Gaussian(0.5)]))) == pytest.approx(8.9778, abs=1e-3)
    assert rdp(Poisson(0.3, Composed([Gaussian(100), Gaussian(0.5)]))) == pytest.approx(0.0082, abs=1e-3)


def test_1_sampling_without_replacement_is_hit_too():
    sampled = dp_accounting.SampledWithoutReplacementDpEvent
    assert rdp(sampled(100, 30, Repeated(Gaussian(3.0), 9)), REPLACE) == pytest.approx(3.4857, abs=1e-3)
    assert rdp(sampled(100, 30, Repeated(Gaussian(3), 9)), REPLACE) == pytest.approx(0.6717, abs=1e-3)


def test_2_noise_that_is_not_a_number_costs_nothing():
    assert rdp(Gaussian(math.nan)) == 0


def test_3_the_rdp_accountant_does_not_double_the_sensitivity_under_replacement():
    assert rdp(Gaussian(2.0), ADD, 1e-6) == pytest.approx(2.419, abs=1e-3)
    assert rdp(Gaussian(2.0), REPLACE, 1e-6) == pytest.approx(2.419, abs=1e-3)  # as if a record were removed
    assert pld(Gaussian(2.0), REPLACE, 1e-6) == pytest.approx(4.887, abs=1e-3)  # a shift of 2, noise 2


def test_4_repeated_randomised_response_is_counted_once():
    response = dp_accounting.dp_event.RandomizedResponseDpEvent(0.3, 2)
    once = pld(response, REPLACE)
    assert once == pytest.approx(1.7347, abs=1e-3)
    assert pld(Repeated(response, 10), REPLACE) == pytest.approx(once, abs=1e-9)
    assert PLDAccountant(REPLACE).compose(response, 10).get_epsilon(1e-5) == pytest.approx(once, abs=1e-9)
    assert pld(Composed([response] * 10), REPLACE) == pytest.approx(17.347, abs=1e-2)
    assert rdp(Repeated(response, 10), REPLACE) == pytest.approx(17.348, abs=1e-2)


def test_5_long_compositions_lose_mass_in_the_tail():
    """Sampling every record, DP-SGD is one Gaussian, whose δ is known; some of the PLD accountant's are smaller.

    Which ones, and by how much, depends on how a processor rounds.
    """
    ratios = []
    for steps, noise, epsilon in ((300, 5.0, 31.834), (500, 6.4, 32.5), (700, 7.6, 33.0), (1000, 9.0, 33.0)):
        sigma = noise / math.sqrt(steps)
        exact = ndtr(1 / (2 * sigma) - epsilon * sigma) - math.exp(epsilon) * ndtr(-1 / (2 * sigma) - epsilon * sigma)
        assert 1e-15 < exact < 2e-14
        accountant = PLDAccountant(ADD, value_discretization_interval=1e-3)
        accountant.compose(Repeated(Poisson(1 - 1e-13, Gaussian(noise)), steps))
        ratios.append(accountant.get_delta(epsilon) / exact)
    assert min(ratios) < 0.97


@pytest.mark.parametrize("rate", [30, 1.5, -0.2])
@pytest.mark.parametrize("account", [rdp, pld])
def test_rates_outside_the_unit_interval_are_refused_by_dp_accounting_itself(rate, account):
    """Nested rates that gave ε = 0 in dphypo 0.1 were dphypo's own fault."""
    for event in (Poisson(rate, Gaussian(1.0)), Poisson(rate, Repeated(Gaussian(1.0), 3))):
        with pytest.raises((ValueError, dp_accounting.UnsupportedEventError)):
            account(event)
