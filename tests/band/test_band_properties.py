"""What every projection does, on inputs that hypothesis looks for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as hs
from support.band_reference import PROJECTIONS, assert_in_band

from dphypo.band import KL, L2, Band, Greedy, Mixed

ANY = settings(max_examples=40, deadline=None)


@hs.composite
def instances(draw, ordinary=False):
    """A band, weights and a prior; ordinary ones are such that rounding hides no difference."""
    size = draw(hs.integers(1, 12))
    c = draw(hs.floats(0.05, 0.95) if ordinary else hs.floats(1e-12, 1 - 1e-9))
    C = draw(hs.floats(1.05, 20) if ordinary else hs.floats(1 + 1e-9, 1e12))
    weight = hs.floats(0, 1e3, allow_subnormal=False) if ordinary else hs.floats(0, 1.7e308)
    weights = np.array(draw(hs.lists(weight, min_size=size, max_size=size)))
    assume(weights.max() > (1e-3 if ordinary else 0))
    part = hs.floats(0.01, 1) if ordinary else hs.floats(1e-300, 1)
    prior = draw(hs.none() | hs.lists(part, min_size=size, max_size=size))
    if prior is not None:
        prior = np.array(prior) / np.sum(prior)
        assume(prior.min() > 0)
    return Band(c, C), weights, prior


@pytest.mark.parametrize("projection", PROJECTIONS, ids=repr)
@given(instance=instances())
@ANY
def test_in_the_band_and_sums_to_one(projection, instance):
    band, weights, prior = instance
    assert_in_band(band.project(weights, prior, projection), band.c, band.C, prior)


@pytest.mark.parametrize("projection", PROJECTIONS, ids=repr)
@given(instance=instances(ordinary=True), seed=hs.integers(0, 2**32))
@ANY
def test_the_order_of_the_candidates_does_not_matter(projection, instance, seed):
    band, weights, prior = instance
    order = np.random.default_rng(seed).permutation(len(weights))
    shuffled = band.project(weights[order], None if prior is None else prior[order], projection)
    np.testing.assert_allclose(shuffled, band.project(weights, prior, projection)[order], rtol=1e-9)


@pytest.mark.parametrize("projection", [one for one in PROJECTIONS if not isinstance(one, Greedy)], ids=repr)
@given(instance=instances(ordinary=True))
@ANY
def test_masses_in_the_band_stay_as_they_are(projection, instance):
    band, weights, prior = instance
    once = band.project(weights, prior, projection)
    np.testing.assert_allclose(band.project(once, prior, projection), once, rtol=1e-9)


@pytest.mark.parametrize("projection", PROJECTIONS, ids=repr)
@given(instance=instances())
@ANY
def test_no_candidate_overtakes_one_of_greater_weight(projection, instance):
    band, weights, _ = instance
    masses = band.project(weights, projection=projection)
    ranked = masses[np.argsort(weights, kind="stable")]
    assert np.all(np.diff(ranked) >= -1e-12 * ranked[1:])
    equal = weights == weights[0]
    assert np.ptp(masses[equal]) == 0.0


@pytest.mark.parametrize("projection", [L2(), KL(), Greedy()], ids=repr)
@given(instance=instances(ordinary=True), share=hs.floats(0, 1), growth=hs.floats(1, 100))
@ANY
def test_a_greater_weight_never_costs_mass(projection, instance, share, growth):
    band, weights, prior = instance
    index = int(share * (len(weights) - 1))
    more = weights.copy()
    more[index] *= growth
    before, after = (band.project(w, prior, projection)[index] for w in (weights, more))
    assert after >= before * (1 - 1e-9)


@given(instance=instances(ordinary=True), nu=hs.floats(0, 100))
@ANY
def test_mixed_beats_every_density_of_the_band(instance, nu):
    band, weights, prior = instance
    p = np.full(len(weights), 1 / len(weights)) if prior is None else prior
    target = weights / weights.sum()

    def value(masses):
        divergence = np.sum(target[target > 0] * np.log((target / masses)[target > 0]))
        return np.sqrt(np.sum((masses - target) ** 2 / p)) + nu * divergence

    best = band.project(weights, prior, Mixed(nu))
    rng = np.random.default_rng(0)
    for other in (L2(), KL(), Greedy(), Mixed(nu / 2), Mixed(2 * nu + 0.01)):
        rival = band.project(weights, prior, other)
        assert value(best) <= value(rival) + 1e-8 * (1 + nu)
    for _ in range(10):
        rival = band.project(rng.random(len(weights)), prior, KL())
        nearby = best + rng.random() * 1e-3 * (rival - best)
        assert value(best) <= value(nearby) + 1e-8 * (1 + nu)
