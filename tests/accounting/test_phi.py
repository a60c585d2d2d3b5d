"""φ by cells: never below the maximum over any grid of points, and equal to it in the limit."""

from __future__ import annotations

import numpy as np
import pytest

from dphypo.accounting.profiles import Discrete, randomised_response
from dphypo.accounting.theorems.lemma2 import Tau
from dphypo.accounting.theorems.phi import phi
from dphypo.band import Band
from dphypo.laws import Geometric, Logarithmic, NegativeBinomial, Pmf, Poisson

LAWS = [
    Geometric(mean=100),
    Logarithmic(mean=20),
    NegativeBinomial(-0.5, mean=5),
    NegativeBinomial(8, mean=10),
    Poisson(10),
    Poisson(300),
    Pmf({0: 0.5, 7: 0.5}),
    Geometric(mean=100).capped(150),
    Geometric(mean=1e6),
]
Z = np.exp(np.linspace(-12, 6, 200))


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("band", [Band(1, 1), Band(0.75, 2)], ids=repr)
def test_phi_bounds_the_maximum_and_is_close_to_it(law, band):
    tau = Tau(randomised_response(1.0, 1e-6), band)
    v = np.unique(np.concatenate([[0.0], np.geomspace(1e-15, 1, 20_000), np.linspace(0, 1, 20_000)]))
    a, b = np.exp(law.log_g(v)), np.exp(law.log_g(tau(v)))
    points = np.array([np.max(np.maximum(0.0, a - z * b)) for z in Z])
    found = phi(law, tau)
    cells = np.array([np.dot(found.weights, np.maximum(0.0, 1 - z * np.exp(-found.shifts))) for z in Z])
    assert (cells >= points * (1 - 1e-12)).all()
    np.testing.assert_allclose(cells, points, atol=0.01 * law.mean, rtol=0.02)
    assert found.weights.sum() == pytest.approx(law.mean, rel=1e-6)


def test_the_first_cell_is_not_forgotten():
    """At z = 0 only v = 0 counts, and φ(0) = E[T]: no grid may leave it out."""
    law = Geometric(mean=1e6)
    found = phi(law, Tau(randomised_response(0.1, 1e-12), Band(1, 1)))
    assert found.weights.sum() >= law.mean


def test_a_run_that_hides_nothing_costs_everything():
    """τ = 1 everywhere, and with P[T = 1] = 0 then g(τ) = 0 from the first cell on."""
    assert phi(Pmf({2: 1.0}), Tau(Discrete(np.zeros(1), np.zeros(1), 1.0), Band(0.75, 2))).largest_shift == np.inf


@pytest.mark.parametrize("runs", [22, 100, 1000])
@pytest.mark.parametrize("epsilon", [0.01, 1.0])
def test_lines_too_low_for_a_float_are_not_forgotten(runs, epsilon):
    """All of T = k runs of randomised response can come out worst: at δ = 0 no less than kε will do."""
    found = phi(Pmf({runs: 1.0}), Tau(randomised_response(epsilon), Band(1, 1)))
    assert epsilon + found.largest_shift >= runs * epsilon


def test_the_largest_ratio_of_a_concentrated_law_is_bounded():
    """max log(g(v)/g(τ(v))) of Poisson T is μ max(τ(v) − v), at a v where g(v) is no longer a float."""
    law, tau = Poisson(2000.0), Tau(randomised_response(1.0), Band(1, 1))
    v = np.linspace(0, 1, 10_001)
    assert phi(law, tau).largest_shift >= np.max(law.log_g(v) - law.log_g(tau(v)))
