"""The adapter to dp_accounting: these tests fail when a new version moves what it reaches into."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy.special import ndtr

from dphypo.accounting import dp_library
from dphypo.accounting.one_run import describe
from dphypo.errors import UnaccountableError

ADD = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE
DP_SGD = dp_accounting.SelfComposedDpEvent(
    dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0)), 500
)


@pytest.mark.parametrize(
    "event",
    [
        DP_SGD,
        dp_accounting.GaussianDpEvent(2.0),
        dp_accounting.LaplaceDpEvent(3.0),
        dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(2.0), dp_accounting.LaplaceDpEvent(3.0)]),
    ],
)
def test_profiles_read_what_the_accountant_holds(event):
    accountant = PLDAccountant(ADD, value_discretization_interval=1e-3)
    accountant.compose(event)
    remove, add = dp_library.losses(event, ADD)
    for epsilon in (0.0, 0.1, 0.5, 1.0):
        ours = max(float(remove.delta(epsilon)), float(add.delta(epsilon)))
        theirs = float(accountant.get_delta(epsilon))
        assert theirs * (1 - 1e-9) <= ours <= theirs * (1 + 1e-6) + 1e-11


def test_the_two_directions_of_a_subsampled_gaussian_differ_and_are_not_exchanged():
    """Removing a record can have a loss without bound; adding one at most −log(1−q) a step."""
    step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
    remove, add = dp_library.losses(step, ADD, 1e-4)
    assert float(remove.delta(0.05)) > 1e-4
    assert float(add.delta(-math.log1p(-0.01) + 1e-3)) < 1e-12


def test_the_rdp_curve_is_the_accountants():
    accountant = RdpAccountant(neighboring_relation=ADD)
    accountant.compose(DP_SGD)
    curve = dp_library.curve(DP_SGD, ADD)
    assert curve is not None
    assert curve.epsilon(1e-5)[0] == accountant.get_epsilon(1e-5)
    more = np.array([2.5, 7.7])
    assert curve.at is not None
    np.testing.assert_array_equal(curve.at(more), RdpAccountant(more).compose(DP_SGD)._rdp)


def test_bins_of_negative_mass_are_rounded_up():
    class Pmf:
        _probs = np.array([0.5, -1e-6, 0.5])
        _lower_loss, _discretization, _infinity_mass = -1, 0.5, 1e-9

        def to_dense_pmf(self):
            return self

    clean = dp_library._clean(Pmf(), 1)
    assert (clean.masses >= 0).all()
    assert clean.infinity == pytest.approx(2e-6 + 1e-9)
    np.testing.assert_allclose(clean.losses, [-0.5, 0.0, 0.5])


def test_an_event_that_only_the_rdp_accountant_knows_has_a_curve_and_no_losses():
    event = dp_accounting.ZCDpEvent(0.1)
    with pytest.raises(dp_accounting.UnsupportedEventError):
        dp_library.losses(event, ADD)
    assert dp_library.curve(event, ADD) is not None
    assert not describe([event], ADD).has_losses


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (dp_accounting.NonPrivateDpEvent(), "not private"),
        (dp_accounting.GaussianDpEvent(0.0), "not private"),
        (dp_accounting.UnsupportedDpEvent(), "cannot be accounted"),
    ],
)
def test_what_cannot_be_accounted_says_so(event, words):
    with pytest.raises(UnaccountableError, match=words):
        describe([event], ADD)


def test_a_relation_that_the_event_does_not_allow_is_named():
    with pytest.raises(UnaccountableError, match="REPLACE_ONE"):
        describe([dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.LaplaceDpEvent(1.0))], REPLACE)


def test_pure_epsilon_is_known_for_laplace_and_its_compositions():
    laplace = dp_accounting.LaplaceDpEvent(4.0)
    assert dp_library.pure_epsilon(laplace) == 0.25
    assert dp_library.pure_epsilon(dp_accounting.SelfComposedDpEvent(laplace, 3)) == 0.75
    both = dp_accounting.ComposedDpEvent([laplace, dp_accounting.NoOpDpEvent(), laplace])
    assert dp_library.pure_epsilon(both) == 0.5
    assert dp_library.pure_epsilon(dp_accounting.GaussianDpEvent(1.0)) == math.inf


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (dp_accounting.GaussianDpEvent(5.0), lambda alpha: alpha / (2 * 2.5**2)),
        (
            dp_accounting.SelfComposedDpEvent(
                dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(5.0), dp_accounting.GaussianDpEvent(5.0)]),
                3,
            ),
            lambda alpha: 6 * alpha / (2 * 2.5**2),
        ),
        (
            dp_accounting.SampledWithoutReplacementDpEvent(10, 10, dp_accounting.GaussianDpEvent(5.0)),
            lambda alpha: alpha / (2 * 2.5**2),
        ),
        (dp_accounting.ZCDpEvent(0.1), lambda alpha: 0.1 * alpha),  # a statement about the relation at hand
    ],
)
def test_replacing_a_record_moves_a_sum_by_twice_its_norm(event, expected):
    """dp_accounting's RDP accountant forgets this; when a version of it no longer does, we would count it twice."""
    curve = dp_library.curve(event, REPLACE)
    assert curve is not None
    np.testing.assert_allclose(curve.epsilons, expected(curve.orders), rtol=1e-9)


def test_both_accountants_speak_of_the_same_sensitivity():
    for relation in dp_accounting.NeighboringRelation:
        alone = describe([dp_accounting.GaussianDpEvent(2.0)], relation).epsilons(1e-6)
        assert alone["pld"] < alone["rdp"] < 1.15 * alone["pld"]
    laplace = describe([dp_accounting.LaplaceDpEvent(2.0)], REPLACE).epsilons(1e-30)
    assert 0.9 < laplace["rdp"] < 1.1  # ε = 2/2: the sensitivity is 2


def test_repeated_randomised_response_is_counted_as_often_as_it_is_repeated():
    """dp_accounting's PLD accountant counts it once."""
    response = dp_accounting.dp_event.RandomizedResponseDpEvent(0.3, 2)
    once = describe([response], REPLACE).epsilons(1e-5)
    for event in (
        dp_accounting.SelfComposedDpEvent(response, 10),
        dp_accounting.SelfComposedDpEvent(dp_accounting.ComposedDpEvent([response]), 10),
        dp_accounting.ComposedDpEvent([response] * 10),
    ):
        assert min(describe([event], REPLACE).epsilons(1e-5).values()) > 9 * once["pld"]


@pytest.mark.parametrize(("steps", "noise"), [(300, 5.0), (1000, 60.0), (2344, 80.0)])
def test_the_rounding_of_the_fourier_transform_never_makes_a_small_delta_smaller(steps, noise):
    """Sampling every record, DP-SGD is one Gaussian, whose profile is known. Unaided, δ = 1e-14 was 10 % low."""
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(1 - 1e-13, dp_accounting.GaussianDpEvent(noise)), steps
    )
    directions = dp_library.losses(event, ADD)
    sigma = noise / math.sqrt(steps)
    for epsilon in np.linspace(0.5 / sigma**2, 0.5 / sigma**2 + 8 / sigma, 30):
        exact = ndtr(1 / (2 * sigma) - epsilon * sigma) - np.exp(epsilon) * ndtr(-1 / (2 * sigma) - epsilon * sigma)
        for direction in directions:
            assert float(direction.delta(epsilon)) >= exact
