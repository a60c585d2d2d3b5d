"""Several searches on the same data: composition by dominating pairs, against dp_accounting and an exact oracle."""

from __future__ import annotations

import json
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld.pld_pmf import create_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from scipy.stats import binom
from support.oracle import World, exact_delta, two_stage_delta
from support.worlds import BANDS, pmf_of, random_law, random_world

from dphypo.accounting import ApproximateDp, Certificate, Composition, PureDp, RdpCurve, account, dp_library, verify
from dphypo.accounting.composition import account_published
from dphypo.accounting.dp_library import _convolve, to_pld
from dphypo.accounting.profiles import supremum
from dphypo.accounting.theorems.theorem4_profile import SearchProfile
from dphypo.band import Band
from dphypo.laws import Geometric, Law, NegativeBinomial, Pmf

DELTA = 1e-5
EPSILONS = np.array([0.0, 0.3, 1.0, 2.0, 4.0, 7.0, 11.0])


def dp_sgd(noise: float, steps: int) -> dp_accounting.DpEvent:
    step = dp_accounting.PoissonSampledDpEvent(256 / 60_000, dp_accounting.GaussianDpEvent(noise))
    return dp_accounting.SelfComposedDpEvent(step, steps)


def test_a_cheap_first_stage_costs_little():
    last = account(dp_sgd(0.71, 2344), Geometric(mean=10))
    alone = last.epsilon(DELTA)
    for noise, most in ((1.0, 0.36), (1.5, 0.22), (2.0, 0.17)):
        first = account(dp_sgd(noise, 235), Geometric(mean=30))
        both = first.compose(last)
        assert alone < both.epsilon(DELTA) < alone + most
        assert both.delta(both.epsilon(DELTA)) <= DELTA
        assert both.bounds(DELTA) == {both.bound(DELTA): both.epsilon(DELTA)}


def test_composition_is_no_looser_than_dp_accountings_own():
    parts = [account(dp_sgd(2.0, 235), NegativeBinomial(8, mean=30)), account(dp_sgd(1.0, 800), Geometric(mean=10))]
    ours = parts[0].compose(parts[1]).epsilon(DELTA)
    theirs = parts[0].pld.compose(parts[1].pld).get_epsilon_for_delta(DELTA)
    assert ours <= theirs + 1e-5
    assert parts[0].compose(parts[1]).compose(parts[0]).epsilon(DELTA) > ours


def test_the_order_of_the_stages_does_not_matter():
    first, second = account(dp_sgd(2.0, 235), Geometric(mean=30)), account(dp_sgd(1.0, 800), Geometric(mean=10))
    assert first.compose(second).epsilon(DELTA) == pytest.approx(second.compose(first).epsilon(DELTA), abs=1e-5)


def test_searches_of_different_kinds_do_not_compose():
    law = Geometric(mean=3)
    replace = account(PureDp(0.1), law, relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    with pytest.raises(ValueError, match="ADD_OR_REMOVE_ONE, REPLACE_ONE"):
        account(PureDp(0.1), law).compose(replace)
    with pytest.raises(ValueError, match="grid"):
        account(PureDp(0.1), law).compose(account(PureDp(0.1), law, grid=1e-2))


@pytest.mark.parametrize(("long", "short"), [(30_000, 20_000), (20_000, 16_384), (20_000, 8193), (900, 3)])
def test_convolution_in_pieces(long, short):
    rng = np.random.default_rng(long)
    one, other = rng.random(long), rng.random(short) * (rng.random(short) < 0.01)
    np.testing.assert_allclose(_convolve(one, other), np.convolve(one, other, mode="valid"), rtol=1e-12)


def test_a_composition_is_certified_and_verified(tmp_path):
    both = account(dp_sgd(2.0, 235), Geometric(mean=30)).compose(account(dp_sgd(1.0, 500), Geometric(mean=5)))
    path = both.certificate(DELTA).save(tmp_path / "c.json")
    assert verify(path)
    document = json.loads(path.read_text())
    assert len(document["terms"]) == 2
    assert "the best run of each of 2 searches" in document["statement"]
    document["terms"][0]["events"][0]["count"] = 100
    assert not verify(Certificate.from_dict(document))


def test_releases_that_are_almost_never_private_compose():
    hopeless = PrivacyLossDistribution(create_pmf({0: 1e-8}, 1e-2, 1 - 1e-8, pessimistic_estimate=True))
    with pytest.raises(IndexError):
        hopeless.compose(hopeless)
    both = dp_library.compose([hopeless, hopeless])
    assert dp_library.directions(both, 2)[0].delta(1.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("event", "expected"),
    [(PureDp(700.0), 1400.0), (ApproximateDp(1.0, 1 - 2.0**-53), math.inf), (RdpCurve((2.0,), (1e5,)), math.inf)],
)
def test_published_runs_that_are_almost_never_private_have_an_epsilon(event, expected):
    assert Composition.of(account_published(event, 2)).epsilon(1e-6) == pytest.approx(expected)


def both_directions(world: World, law: Law, band: Band) -> list[SearchProfile]:
    forward, reverse = (supremum(profiles) for profiles in world.profiles)
    return [SearchProfile(forward, reverse, law, band), SearchProfile(reverse, forward, law, band)]


def composed(*stages: list[SearchProfile]) -> dp_library.Discrete:
    return dp_library.directions(dp_library.compose(to_pld(stage, 1e-2) for stage in stages))[0]


def two_stages(seed: int, count: int):
    """A first stage, and for each of its releases a second one that differs in its prior."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        bands = BANDS[i % len(BANDS)], BANDS[(i // 2) % len(BANDS)]
        first, second = _small(rng, bands[0]), _small(rng, bands[1])
        priors = rng.dirichlet(np.ones(2), size=first.ranks.size + 1)
        seconds = [World(prior, second.runs_on, second.runs_on_neighbour, second.ranks) for prior in priors]
        yield first, random_law(rng), bands[0], seconds, random_law(rng), bands[1]


def _small(rng: np.random.Generator, band: Band) -> World:
    while True:
        world = random_world(rng, band)
        if world.ranks.shape == (2, 2):
            return world


def test_no_two_stage_world_exceeds_the_composition():
    for first, law, band, seconds, second_law, second_band in two_stages(seed=1, count=2):
        exact = two_stage_delta(first, pmf_of(law), band, seconds, pmf_of(second_law), second_band, EPSILONS)
        bound = composed(both_directions(first, law, band), both_directions(seconds[0], second_law, second_band))
        assert (bound.delta(EPSILONS) >= exact - 1e-12).all(), (law, band, second_law, second_band)


@pytest.mark.slow
def test_no_two_stage_world_exceeds_the_composition_long():
    for first, law, band, seconds, second_law, second_band in two_stages(seed=2, count=150):
        exact = two_stage_delta(first, pmf_of(law), band, seconds, pmf_of(second_law), second_band, EPSILONS)
        bound = composed(both_directions(first, law, band), both_directions(seconds[0], second_law, second_band))
        assert (bound.delta(EPSILONS) >= exact - 1e-12).all(), (law, band, second_law, second_band)


def test_charging_only_the_last_stage_is_caught():
    def excess(first, law, band, seconds, second_law, second_band):
        exact = two_stage_delta(first, pmf_of(law), band, seconds, pmf_of(second_law), second_band, EPSILONS)
        only_last = composed(both_directions(seconds[0], second_law, second_band))
        return float(np.max(exact - only_last.delta(EPSILONS)))

    assert any(excess(*case) > 0.05 for case in two_stages(seed=1, count=12))


def test_a_rule_that_sees_the_losing_runs_is_caught():
    """Each run shows one bit by randomised response; the rule turns the number of ones into the next λ.

    The second stage reveals its λ and nothing else, so an honest rule would leave the cost at the first stage's.
    """
    law = Geometric(mean=10).capped(60)
    likely = np.exp(1.0) / (1 + np.exp(1.0))
    counts, pmf = np.arange(61), pmf_of(law)
    on, off = (
        sum(weight * binom.pmf(counts, total, chance) for total, weight in enumerate(pmf))
        for chance in (likely, 1 - likely)
    )
    exact = np.maximum(0.0, on[:, None] - np.exp(EPSILONS) * off[:, None]).sum(axis=0)
    world = World(np.ones(1), np.array([[1 - likely, likely]]), np.array([[likely, 1 - likely]]), np.array([[0, 1]]))
    bound = composed(both_directions(world, law, Band(1, 1)))
    honest = exact_delta(world, pmf, Band(1, 1), EPSILONS)
    assert (bound.delta(EPSILONS) >= honest - 1e-12).all()
    assert np.max(exact - bound.delta(EPSILONS)) > 0.01


def test_the_two_stage_oracle_is_the_one_stage_oracle_when_the_second_says_nothing():
    rng = np.random.default_rng(4)
    band = Band(0.75, 2)
    first, law = _small(rng, band), Geometric(mean=3).capped(20)
    silent = World(np.ones(1), np.ones((1, 1)), np.ones((1, 1)), np.array([[0]]))
    found = two_stage_delta(first, pmf_of(law), band, [silent] * 5, np.array([0.0, 1.0]), Band(1, 1), EPSILONS)
    np.testing.assert_allclose(found, exact_delta(first, pmf_of(law), band, EPSILONS), atol=1e-12)
    with pytest.raises(ValueError, match="5 releases"):
        two_stage_delta(first, pmf_of(law), band, [silent], np.array([0.0, 1.0]), Band(1, 1), EPSILONS)


@pytest.mark.parametrize("law", [Geometric(mean=3), Pmf({1: 0.5, 3: 0.5}), Pmf({2: 1.0})], ids=repr)
def test_pure_dp_composes_at_delta_zero_whatever_the_law(law):
    """A grid leaves a trace of δ: before, ε was infinite at δ = 1e-6 where the law is not one of the paper's."""
    search = account([PureDp(0.069), PureDp(0.0971)], law)
    together = Composition.of(account_published(PureDp(0.36), 2), search)
    assert search.epsilon(0.0) == pytest.approx(search.pure)
    for delta in (0.0, 1e-9, 1e-6):
        assert 0.7 < together.epsilon(delta) <= 2 * 0.36 + search.pure + 1e-9


@pytest.mark.parametrize("scale", [4.9357, 5.0, 18.98765])
def test_a_search_over_pure_runs_composes_with_noise_at_a_small_delta(scale: float) -> None:
    """On the grid its losses end one bin later: what lay there was lost, so that ε was infinite below δ = 1.3e-5."""
    search = account(dp_accounting.LaplaceDpEvent(scale), Geometric(mean=3))
    noisy = account_published(dp_accounting.GaussianDpEvent(30.0), 1)
    for delta in (1e-6, 1e-9):
        alone = [Composition.of(one).epsilon(delta) for one in (search, noisy)]
        together = search.compose(noisy).epsilon(delta)
        assert max(alone) < together <= search.epsilon(0.0) + alone[1] + 2e-3  # two steps of the grid
