"""Privacy profiles of one run, against closed forms and dp_accounting; the lower convex hull against its definition."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.rdp.rdp_privacy_accountant import compute_delta
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import ConvexHull
from scipy.special import ndtr

from dphypo.accounting.one_run import DEFAULT_ORDERS
from dphypo.accounting.profiles import (
    Curve,
    Discrete,
    epsilon_for,
    falling_part,
    infimum,
    lower_hull,
    randomised_response,
    round_up,
    show_epsilon,
    smallest,
    supremum,
)

EPSILONS = np.linspace(-6, 6, 49)


def direct(profile: Discrete, epsilon: float) -> float:
    return profile.infinity + math.fsum(profile.masses * np.maximum(0.0, -np.expm1(epsilon - profile.losses)))


@given(st.integers(0, 10_000))
def test_a_discrete_profile_is_its_definition(seed):
    rng = np.random.default_rng(seed)
    losses = np.cumsum(rng.exponential(0.3, 30)) - 4.0 if seed % 2 else np.arange(-15, 15) * 0.25
    masses = rng.dirichlet(np.full(30, 0.2)) * (1 - 1e-3)
    profile = Discrete(losses, masses, 1e-3)
    expected = np.array([direct(profile, e) for e in EPSILONS])
    found = profile.delta(EPSILONS)
    assert (found >= expected - 1e-15).all()
    np.testing.assert_allclose(found, np.minimum(expected, 1.0), rtol=1e-8, atol=1e-9)


def test_missing_mass_counts_as_infinite_loss():
    profile = Discrete(np.array([0.0]), np.array([0.75]), 0.05)
    assert profile.infinity == pytest.approx(0.25)
    assert float(profile.delta(50.0)) == pytest.approx(0.25)


def test_losses_too_large_for_a_float_exponential_are_no_problem():
    profile = Discrete(np.array([-900.0, 900.0]), np.array([0.25, 0.75]), 0.0)
    np.testing.assert_allclose(profile.delta([-1000.0, 0.0, 899.0, 900.0]), [1.0, 0.75, 0.75 * (1 - math.exp(-1)), 0.0])


def test_randomised_response_is_the_profile_of_pure_dp():
    profile = randomised_response(1.5)
    expected = np.maximum(0.0, (math.exp(1.5) - np.exp(EPSILONS)) / (1 + math.exp(1.5)))
    inside = np.abs(EPSILONS) <= 1.5
    np.testing.assert_allclose(profile.delta(EPSILONS)[inside], expected[inside], atol=1e-9)
    np.testing.assert_allclose(profile.delta([-2.0, 2.0]), [1 - math.exp(-2), 0.0], atol=1e-9)
    assert float(randomised_response(0.0).delta(0.0)) == pytest.approx(0.0, abs=1e-9)


def test_negative_epsilon_goes_through_the_exchanged_pair():
    """δ(−ε) = 1 − e^(−ε) + e^(−ε) δ^rev(ε), for a pair that is its own reverse."""
    profile = randomised_response(1.0, 0.0)
    eps = np.linspace(0, 3, 13)
    np.testing.assert_allclose(profile.delta(-eps), 1 - np.exp(-eps) + np.exp(-eps) * profile.delta(eps), atol=1e-9)


def test_an_rdp_curve_gives_dp_accountings_delta():
    orders = DEFAULT_ORDERS
    rdp = 0.02 * orders
    profile = Curve(orders, rdp)
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        expected, _ = compute_delta(orders, rdp, epsilon)
        assert float(profile.delta(epsilon)) == pytest.approx(expected, rel=1e-9)


def test_an_rdp_profile_lies_above_the_gaussian_it_comes_from():
    """RDP αρ with ρ = 1/2σ² is a Gaussian's: its exact profile is known, also for negative ε."""
    sigma = 1.3
    profile = Curve(DEFAULT_ORDERS, DEFAULT_ORDERS / (2 * sigma**2))
    exact = ndtr(1 / (2 * sigma) - EPSILONS * sigma) - np.exp(EPSILONS) * ndtr(-1 / (2 * sigma) - EPSILONS * sigma)
    assert (profile.delta(EPSILONS) >= exact).all()
    assert (profile.delta(EPSILONS) <= 1.0).all()


@pytest.mark.parametrize("order", [1024.0, 1e10, 1e13, 1e17, 1e300])
def test_an_rdp_profile_is_not_below_its_formula_at_a_large_order(order):
    """(α−1)(r − ε) is then a small difference of large numbers."""

    def curve(r):
        return Curve(np.array([order]), np.array([r]))

    for r in (0.1, 1.0, 7.3, 100.0):
        with ctx.workprec(2500):
            alpha, rest = arb(order), 1 - 1 / arb(order)
            for exponent in np.linspace(0.0, 60.0, 61).tolist():
                epsilon = max(0.0, float(r + (exponent - math.log(order)) / (order - 1)))
                exact = ((alpha - 1) * (arb(r) - arb(epsilon) + rest.log())).exp() / alpha
                found = float(curve(r).delta(epsilon))
                assert found >= exact or found >= (1 - (-arb(r)).exp()).sqrt() * (1 - arb(2) ** -50)
    assert float(curve(1.0).delta(math.inf)) == 0.0


def test_supremum_and_infimum_are_pointwise():
    a, b = randomised_response(1.0), randomised_response(0.3, 0.01)
    both = np.stack([a.delta(EPSILONS), b.delta(EPSILONS)])
    np.testing.assert_array_equal(supremum((a, b)).delta(EPSILONS), both.max(axis=0))
    np.testing.assert_array_equal(infimum((a, b)).delta(EPSILONS), both.min(axis=0))
    assert supremum((a, b)).top == infimum((a, b)).top == 1.0
    assert supremum((a, b)).bottom == infimum((a, b)).bottom == -1.0


def test_epsilon_for_rounds_up_and_knows_when_there_is_none():
    profile = randomised_response(1.0, 1e-3)
    assert epsilon_for(profile, 1e-4) == math.inf
    assert epsilon_for(profile, 1.0 - 1e-9) == 0.0
    found = epsilon_for(profile, 0.01)
    assert float(profile.delta(found)) <= 0.01 < float(profile.delta(found - 3e-6))
    assert epsilon_for(randomised_response(1.0), 0.0) == pytest.approx(1.0, abs=3e-6)


@given(st.floats(0.0, 1e9), st.integers(1, 15))
def test_what_is_shown_of_an_epsilon_is_never_less_and_hardly_more(epsilon, digits):
    shown = float(show_epsilon(epsilon, digits))
    assert epsilon <= shown <= epsilon * (1 + 10.0 ** (1 - digits)) * (1 + 1e-15)
    assert show_epsilon(shown, digits) == show_epsilon(epsilon, digits), "what has no more digits is left alone"


@given(st.floats(-1e9, 1e12), st.integers(0, 6))
def test_a_number_is_rounded_up_whatever_its_last_digits_are(value, decimals):
    up = round_up(value, decimals)
    assert value <= up
    assert Fraction(repr(up)) - Fraction(repr(value)) < Fraction(1, 10**decimals)
    assert round_up(up, decimals) == up
    assert round_up(1.0000000001, 3) == 1.001


def test_the_search_steps_up_until_the_bound_holds():
    """A function that jumps: the answer is at or above the jump, never below it."""
    assert 2.0 <= smallest(lambda e: 1.0 if e < 2.0 else 1e-9, 1e-5, top=10.0) <= 2.0 + 1e-5


def test_the_smallest_delta_of_all_is_searched_too():
    assert epsilon_for(randomised_response(1.0), math.ulp(0.0)) == pytest.approx(1.0, abs=3e-6)


def test_many_bins_are_summed_to_the_safe_side():
    """The allowance for rounding grows with the number of terms, and is next to nothing for few."""
    masses = np.full(300_000, 1 / 300_000)
    profile = Discrete(np.arange(300_000) * 1e-5, masses, 0.0)
    for epsilon in (0.0, 1.0, 2.9999):
        assert 0 <= float(profile.delta(epsilon)) - direct(profile, epsilon) <= 1e-9
    few = Discrete(np.array([-1.0, 0.0]), np.array([0.5, 0.5]), 0.0)
    assert 0 <= float(few.delta(-1.5)) - direct(few, -1.5) <= 1e-14


points = st.lists(st.tuples(st.integers(0, 20), st.integers(-20, 20)), min_size=1, max_size=12).map(sorted)


@given(points)
def test_the_hull_is_below_every_point_and_touches_its_own(given_points):
    x, y = np.array(given_points, dtype=np.float64).T
    hull = lower_hull(x, y)
    below = np.interp(x, x[hull], y[hull])
    assert (below <= y + 1e-9).all()
    assert (np.diff(x[hull]) > 0).all()
    slopes = np.diff(y[hull]) / np.diff(x[hull])
    assert (np.diff(slopes) > 0).all()


@given(points, st.integers(0, 40))
def test_a_minimum_of_lines_is_attained_on_the_falling_part(given_points, v):
    slopes, intercepts = np.array(given_points, dtype=np.float64).T
    kept = falling_part(slopes, intercepts)
    assert np.min(slopes[kept] * v + intercepts[kept]) == np.min(slopes * v + intercepts)


def test_very_small_coordinates_do_not_underflow():
    x, y = np.array([0.0, 1e-200, 2e-200, 3e-200]), np.array([1e-200, 1e-210, 0.9e-210, 0.0])
    np.testing.assert_array_equal(lower_hull(x, y), [0, 1, 3])


@pytest.mark.parametrize("points", [300, 5000])
@pytest.mark.parametrize("bend", [0.0, 1e-3, 1.0, -1.0])
def test_many_points_have_the_hull_that_quickhull_finds(points, bend):
    """So many that a rough hull is made first: convex, concave, and rough curves."""
    rng = np.random.default_rng(points)
    x = np.sort(rng.random(points))
    y = bend * (x - 0.5) ** 2 + 1e-4 * rng.random(points)
    both = ConvexHull(np.column_stack([x, y])).vertices
    line = np.interp(x[both], x[[0, -1]], y[[0, -1]])
    np.testing.assert_array_equal(lower_hull(x, y), np.sort(both[y[both] <= line]))


def test_coordinates_of_all_sizes_keep_every_corner():
    """δ falls by many orders of magnitude along a profile: a corner near the small end counts as much."""
    x = np.arange(2000.0)
    y = np.exp(-0.3 * x)
    np.testing.assert_array_equal(lower_hull(x, y), np.arange(2000))
