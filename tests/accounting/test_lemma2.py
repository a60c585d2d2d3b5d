"""Lemma 2 and τ, against brute force over densities of the band."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from support.oracle import extreme_points
from support.worlds import BANDS, random_world

from dphypo.accounting.profiles import Discrete, randomised_response, supremum
from dphypo.accounting.theorems.lemma2 import Tau, corners, transform, transformed
from dphypo.band import Band

EPSILONS = np.linspace(-4, 6, 21)


@pytest.mark.parametrize("band", [band for band in BANDS if band.c < band.C])
def test_the_corner_masses_are_two_densities(band):
    """At ε → −∞ the transform is total mass one, and at ε = 0 with δ ≡ 1 likewise: the weights sum to one."""
    assert sum(weight for weight, _ in transform(band)) == pytest.approx(1.0, abs=1e-9)
    # On the second data set the same corners have weight · e^(−log ratio): they sum to one as well.
    assert sum(weight * np.exp(shift) for weight, shift in transform(band)) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("C", [1 + 2**-52, 1 + 4.29e-9, 1.25, 1e12])
@pytest.mark.parametrize("c", [0.19923613832933318, 1 - 2**-53, 1e-12])
def test_weights_are_rounded_up(c: float, C: float):
    """1 − p is rounding alone where C is close to 1: with it the weights were up to a fifth too small."""
    low, high = Fraction(c), Fraction(C)
    p = (1 - low) / (high - low)
    q, rest = min(p, 1 - p), low if p <= Fraction(1, 2) else high
    exact = (high * q, rest * (1 - 2 * q), low * q)
    assert all(Fraction(found) >= weight for (found, _), weight in zip(transform(Band(c, C)), exact, strict=True))
    masses = (q, 1 - 2 * q, q)
    assert all(Fraction(found) >= mass for (*_, found), mass in zip(corners(Band(c, C)), masses, strict=True))


def test_a_uniform_search_pays_nothing_for_adaptivity():
    profile = randomised_response(0.7)
    np.testing.assert_array_equal(transformed(profile.delta, Band(1, 1))(EPSILONS), profile.delta(EPSILONS))


@pytest.mark.parametrize("band", BANDS)
def test_lemma_2_bounds_every_pair_of_densities(band):
    rng = np.random.default_rng(5)
    for _ in range(40):
        world = random_world(rng, band)
        forward = supremum(world.profiles[0])
        bound = transformed(forward.delta, band)(EPSILONS)
        corners = extreme_points(world.prior, band)
        for here in corners:
            for there in corners:
                on, off = (here[:, None] * world.runs_on).ravel(), (there[:, None] * world.runs_on_neighbour).ravel()
                exact = np.maximum(0.0, on[:, None] - np.exp(EPSILONS) * off[:, None]).sum(axis=0)
                assert (bound >= exact - 1e-12).all()


@pytest.mark.parametrize("band", BANDS)
def test_tau_bounds_every_event(band):
    rng = np.random.default_rng(6)
    for _ in range(25):
        world = random_world(rng, band)
        tau = Tau(supremum(world.profiles[1]), band)
        corners = extreme_points(world.prior, band)
        outcomes = world.ranks.size
        events = ((np.arange(2**outcomes)[:, None] >> np.arange(outcomes)) & 1).reshape(-1, *world.ranks.shape)
        here = np.einsum("cl,lk,elk->ce", corners, world.runs_on, events).min(axis=0)
        there = np.einsum("cl,lk,elk->ce", corners, world.runs_on_neighbour, events).max(axis=0)
        assert (tau(here) >= there - 1e-12).all()


def test_tau_is_concave_increasing_and_at_most_one():
    tau = Tau(randomised_response(1.0), Band(0.75, 2))
    v = np.linspace(0, 1, 400)
    values = tau(v)
    assert (np.diff(values) >= 0).all()
    assert (np.diff(values, 2) <= 1e-12).all()
    assert values.max() == 1.0


def test_tau_of_a_pure_run_is_the_slope_of_its_odds():
    """P′⁺(S) ≤ e^(ε+L) P⁻(S)."""
    band = Band(0.5, 2)
    tau = Tau(randomised_response(0.8), band)
    v = 1e-5
    assert float(tau(v)) == pytest.approx(v * np.exp(0.8 + band.log_ratio), rel=1e-3)


def test_losses_beyond_what_a_float_can_exponentiate_leave_a_tau_that_is_no_help():
    tau = Tau(Discrete(np.array([700.0, 900.0]), np.array([0.5, 0.5]), 0.0), Band(0.75, 2))
    np.testing.assert_array_equal(tau([1e-3, 0.5, 1.0]), 1.0)


@pytest.mark.parametrize("band", [Band(1, 1), Band(0.75, 2), Band(0.6, 1.2), Band(0.5, 2)], ids=repr)
def test_the_corners_have_mean_one(band):
    found = corners(band)
    assert sum(mass for *_, mass in found) == pytest.approx(1.0, abs=1e-9)
    assert sum(w * mass for w, _, mass in found) == pytest.approx(1.0, abs=1e-9)
    assert sum(w * mass for _, w, mass in found) == pytest.approx(1.0, abs=1e-9)
