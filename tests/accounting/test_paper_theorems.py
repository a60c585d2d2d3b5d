"""Theorems 1 and 2 of the theorem1_2_paper, against dp_accounting's RepeatAndSelect and closed forms."""

from __future__ import annotations

import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant

from dphypo.accounting import PureDp, account, dp_library
from dphypo.accounting.profiles import Curve
from dphypo.accounting.theorems import theorem1_2_paper
from dphypo.band import Band
from dphypo.laws import Geometric, NegativeBinomial, Poisson

DP_SGD = dp_accounting.SelfComposedDpEvent(
    dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0)), 500
)
UNIFORM = Band(1, 1)
ADD = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 5.0])
@pytest.mark.parametrize("mean", [1.5, 10.0, 100.0, 1e4])
def test_theorem_1_is_papernot_and_steinkes_when_the_search_is_uniform(shape, mean):
    """On the same orders, with the γ that dp_accounting finds (to 1e-9 of ours)."""
    theirs = RdpAccountant()
    theirs.compose(dp_accounting.dp_event.RepeatAndSelectDpEvent(DP_SGD, mean, shape))
    ours = dp_library.curve(DP_SGD, ADD)
    assert ours is not None
    law = NegativeBinomial(shape, mean=mean)
    found = theorem1_2_paper.theorem_1(ours, law, UNIFORM)
    # dp_accounting solves for γ only to a relative 1e-9, and (1+θ) log(1/γ) carries that over.
    np.testing.assert_allclose(found.epsilons, theirs._rdp, rtol=1e-9, atol=1e-8)


def test_theorem_1_is_exact_where_gamma_is():
    theirs = RdpAccountant()
    theirs.compose(dp_accounting.dp_event.RepeatAndSelectDpEvent(DP_SGD, 64.0, 1.0))
    ours = dp_library.curve(DP_SGD, ADD)
    assert ours is not None
    found = theorem1_2_paper.theorem_1(ours, Geometric(gamma=1 / 64), UNIFORM)
    np.testing.assert_allclose(found.epsilons, theirs._rdp, rtol=1e-9)


def test_the_band_enters_theorem_1_as_the_paper_says():
    orders, rdp = np.array([2.0, 3.0, 8.0]), np.array([0.2, 0.3, 0.8])
    curve = Curve(orders, rdp)
    law, band = Geometric(gamma=0.1), Band(0.75, 2)
    without = theorem1_2_paper.theorem_1(curve, law, UNIFORM).epsilons
    found = theorem1_2_paper.theorem_1(curve, law, band).epsilons
    expected = rdp + (without - rdp) + (orders / (orders - 1) + 2) * band.log_ratio
    assert (found <= expected + 1e-9).all()
    assert found[-1] == pytest.approx(expected[-1], rel=1e-9)


def test_theorem_2_is_three_epsilon_for_the_geometric_law():
    assert theorem1_2_paper.theorem_2(0.4, shape=1.0, band=UNIFORM) == pytest.approx(1.2)
    assert theorem1_2_paper.theorem_2(0.4, shape=0.0, band=Band(0.5, 2)) == pytest.approx(2 * (0.4 + math.log(4)))
    bounds = account(PureDp(0.4), Geometric(mean=1e5)).bounds(0.0)
    assert bounds["paper"] == pytest.approx(1.2)
    assert bounds["profile"] <= bounds["paper"] + 5e-3  # a few cells


@pytest.mark.parametrize("event", [PureDp(0.4), DP_SGD], ids=["pure", "renyi"])
def test_a_capped_law_is_none_of_the_papers(event):
    """Theorems 1 and 2 are about the negative binomial law; T given T ≤ K has another one."""
    law = Geometric(mean=10)
    assert "paper" in account(event, law).bounds(1e-5)
    assert "paper" not in account(event, law.capped(15)).bounds(1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mean", [1.0, 3.0, 10.0, 100.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-8])
def test_for_poisson_we_are_never_above_dp_accounting(mean, delta):
    theirs = RdpAccountant()
    theirs.compose(dp_accounting.dp_event.RepeatAndSelectDpEvent(DP_SGD, mean, math.inf))
    assert account(DP_SGD, Poisson(mean)).epsilon(delta) <= theirs.get_epsilon(delta)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0, 5.0])
@pytest.mark.parametrize("band", [UNIFORM, Band(0.75, 2), Band(0.25, 4)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_profile_of_a_pure_run_is_never_above_theorem_2(shape, band, epsilon):
    law = NegativeBinomial(shape, mean=20)
    bounds = account(PureDp(epsilon), law, band).bounds(0.0)
    assert bounds["profile"] <= theorem1_2_paper.theorem_2(epsilon, shape=shape, band=band) + 5e-3  # a few cells


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 0.01, 0.5, 3.0, 2000.0])
def test_the_renyi_divergence_of_a_pure_run_is_randomised_responses(epsilon):
    """Neither lost to rounding where it is tiny, nor to overflow where it is not."""
    curve = account(PureDp(epsilon), Geometric(mean=3)).run.curve
    assert curve is not None
    with mpmath.workdps(60):
        for alpha, found in zip(curve.orders, curve.epsilons, strict=True):
            a, e = mpmath.mpf(float(alpha)), mpmath.mpf(epsilon)
            exact = mpmath.log(mpmath.cosh((a - 0.5) * e) / mpmath.cosh(e / 2)) / (a - 1)
            assert exact <= mpmath.mpf(float(found)) * (1 + 1e-15) <= exact * (1 + 3e-12)
