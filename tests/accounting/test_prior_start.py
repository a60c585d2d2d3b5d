"""Theorem 4′: the first runs from the prior, a policy that may know the data."""

from __future__ import annotations

import dp_accounting
import numpy as np
import pytest
from support.oracle import exact_delta
from support.worlds import BANDS, attacked_world, pmf_of, random_law, random_world

from dphypo.accounting import account
from dphypo.accounting.one_run import describe
from dphypo.accounting.profiles import epsilon_for, supremum
from dphypo.accounting.theorems.theorem4_profile import SearchProfile
from dphypo.band import Band
from dphypo.laws import Geometric, NegativeBinomial

EPSILONS = np.array([-1.0, -0.2, 0.0, 0.2, 0.7, 1.5, 3.0, 5.0, 8.0])


def shortfall(world, law, band, *, first, claimed):
    """By how much the exact δ, with ``first`` runs from the prior, exceeds the bound for ``claimed`` of them."""
    exact = exact_delta(world, pmf_of(law), band, EPSILONS, first_from_prior=first)
    forward, reverse = world.profiles
    bound = SearchProfile(supremum(forward), supremum(reverse), law, band, claimed).delta(EPSILONS)
    return float(np.max((exact - bound - 1e-13) / np.maximum(exact, 1e-13)))


def cases(seed, count):
    rng = np.random.default_rng(seed)
    for i in range(count):
        band = BANDS[1 + i % (len(BANDS) - 1)]
        yield (attacked_world if i % 2 else random_world)(rng, band), random_law(rng), band, int(rng.integers(0, 4))


def test_it_holds_on_small_worlds():
    for world, law, band, first in cases(1, 8):
        assert shortfall(world, law, band, first=first, claimed=first) <= 1e-9, (law, band, first)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 10))
def test_it_holds_on_thousands_of_small_worlds(seed):
    for world, law, band, first in cases(seed, 300):
        assert shortfall(world, law, band, first=first, claimed=first) <= 1e-9, (law, band, first)


@pytest.mark.slow
def test_one_run_too_many_from_the_prior_is_caught():
    assert any(
        shortfall(world, law, band, first=first, claimed=first + 1) > 0.01 for world, law, band, first in cases(1, 80)
    )


def test_without_a_band_it_is_theorem_4():
    step = dp_accounting.PoissonSampledDpEvent(256 / 60_000, dp_accounting.GaussianDpEvent(0.71))
    profiles = describe(
        [dp_accounting.SelfComposedDpEvent(step, 2344)], dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    ).profiles
    law, band, epsilons = Geometric(mean=10), Band(1, 1), np.array([0.0, 2.0, 5.0])
    found = SearchProfile(*profiles, law, band, 1).delta(epsilons)
    np.testing.assert_allclose(found, SearchProfile(*profiles, law, band).delta(epsilons), rtol=0.01)


@pytest.mark.parametrize(
    ("band", "published"), [(Band(0.75, 2), 5.983), (Band(0.5, 4), 8.815), (Band(0.25, 8), 11.398)]
)
def test_published_figures(band, published):
    """Published on a coarse lattice, here on the run's own losses: a little less."""
    step = dp_accounting.PoissonSampledDpEvent(256 / 60_000, dp_accounting.GaussianDpEvent(0.71))
    profiles = describe(
        [dp_accounting.SelfComposedDpEvent(step, 2344)], dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    ).profiles
    bound = SearchProfile(*profiles, NegativeBinomial(8, mean=10), band, 1)
    assert published - 0.03 <= epsilon_for(bound, 1e-5) <= published


def test_a_law_with_too_many_runs_to_sum_over_is_left_to_theorem_4():
    event = dp_accounting.GaussianDpEvent(4.0)
    for mean, offered in ((5, True), (1e5, False)):
        guarantee = account(event, Geometric(mean=mean), Band(0.75, 2), first_from_prior=1)
        assert ("prior start" in guarantee.sharper) is offered
    assert "prior start" not in guarantee.bounds(1e-5)
