"""The guarantee of a whole search: the numbers to hit, what is refused, and composition with other releases."""

from __future__ import annotations

import dataclasses
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as pld
from support.slow import mostly_slow

from dphypo.accounting import ApproximateDp, PureDp, RdpCurve, account
from dphypo.accounting.dp_library import to_pld
from dphypo.accounting.lower_bound import epsilon_from_below
from dphypo.accounting.profiles import smallest
from dphypo.band import Band
from dphypo.errors import UnaccountableError
from dphypo.laws import Geometric, Logarithmic, NegativeBinomial, Pmf, Poisson

DELTA = 1e-5


def dp_sgd(noise_multiplier: float, steps: int = 2344) -> dp_accounting.DpEvent:
    step = dp_accounting.PoissonSampledDpEvent(256 / 60_000, dp_accounting.GaussianDpEvent(noise_multiplier))
    return dp_accounting.SelfComposedDpEvent(step, steps)


# noise multiplier, law, band, Theorem 1, two prototypes' Theorem 4, an explicit attack's lower bound
TABLE = [
    (0.71, Geometric(mean=100), Band(1, 1), 7.952, 5.087, 4.99),
    (0.71, Geometric(mean=100), Band(0.75, 2), 11.151, 6.948, 6.86),
    (0.71, Geometric(mean=10), Band(0.75, 2), 9.334, 5.374, 5.32),
    (0.71, Logarithmic(gamma=0.01), Band(0.75, 2), None, 5.436, 5.38),
    (0.71, Geometric(mean=100), Band(0.75, 4 / 3), None, 6.176, 6.08),
    (0.71, Geometric(mean=100), Band(0.5, 4), None, 9.857, 9.74),
    (0.64, Geometric(gamma=0.001), Band(1, 1), None, 8.254, 0.0),
    (0.71, Geometric(gamma=0.001), Band(0.75, 2), None, 8.246, 0.0),
    (0.64, Geometric(gamma=0.01), Band(1, 1), None, 6.910, 0.0),
]


@pytest.mark.parametrize(("noise", "law", "band", "by_paper", "prototype", "attack"), TABLE)
def test_the_numbers_to_hit(noise, law, band, by_paper, prototype, attack):
    guarantee = account(dp_sgd(noise), law, band)
    bounds = guarantee.bounds(DELTA)
    assert guarantee.bound(DELTA) == "profile"
    assert guarantee.epsilon(DELTA) == bounds["profile"]
    assert attack < bounds["profile"] <= prototype + 0.01
    if by_paper is not None:
        assert bounds["paper"] == pytest.approx(by_paper, abs=1e-3)


def test_one_run_alone_is_what_dp_accounting_says():
    guarantee = account(dp_sgd(0.71), Geometric(mean=100))
    alone = guarantee.one_run(DELTA)
    assert alone["rdp"] == pytest.approx(3.433, abs=1e-3)
    assert alone["pld"] == pytest.approx(2.775, abs=1e-3)
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp_sgd(0.71))
    assert alone["pld"] == pytest.approx(accountant.get_epsilon(DELTA), abs=1e-5)


def test_epsilon_and_delta_are_inverse_to_each_other():
    guarantee = account(dp_sgd(1.0, 500), NegativeBinomial(8, mean=10), Band(0.75, 2))
    for delta in (1e-3, 1e-5, 1e-8):
        epsilon = guarantee.epsilon(delta)
        assert guarantee.delta(epsilon) <= delta
        assert guarantee.delta(epsilon - 1e-4) > delta * 0.9


def test_a_search_of_one_run_costs_one_run():
    guarantee = account(dp_sgd(0.71), Pmf({1: 1.0}))
    assert guarantee.epsilon(DELTA) == pytest.approx(guarantee.one_run(DELTA)["pld"], abs=2e-3)


def test_more_runs_a_wider_band_and_less_noise_all_cost_more():
    def epsilon(noise=1.0, mean=10.0, band=Band(0.75, 2)):  # noqa: B008
        return account(dp_sgd(noise, 200), Geometric(mean=mean), band).epsilon(DELTA)

    base = epsilon()
    assert epsilon(noise=0.9) > base
    assert epsilon(mean=20.0) > base
    assert epsilon(band=Band(0.5, 2)) > base
    assert epsilon(band=Band(1, 1)) < base


def test_the_supremum_of_several_events_is_at_least_each_of_them():
    events = [dp_sgd(0.9, 100), dp_sgd(1.4, 1500)]
    law, band = NegativeBinomial(3, mean=8), Band(0.75, 2)
    apart = [account(event, law, band).epsilon(DELTA) for event in events]
    together = account(events, law, band)
    assert together.epsilon(DELTA) >= max(apart) - 1e-5
    assert account([events[0], events[0]], law, band).epsilon(DELTA) == pytest.approx(apart[0], abs=1e-3)
    assert set(together.one_run(DELTA)) == {"rdp", "pld"}


def test_the_supremum_of_an_event_and_a_bare_statement_has_no_rdp_curve():
    mixed = account([dp_sgd(1.0, 100), ApproximateDp(0.1, 1e-9)], Geometric(mean=3))
    assert set(mixed.bounds(DELTA)) == {"profile"}
    assert np.isinf(mixed.rdp([2.0])).all()


def test_a_bare_delta_is_charged_once_for_every_run():
    """With no ε to speak of, the search fails when any run does: δ = E[T] · δ₀."""
    guarantee = account(ApproximateDp(0.0, 1e-7), Geometric(mean=50))
    assert guarantee.delta(5.0) == pytest.approx(50 * 1e-7, rel=1e-3)
    assert guarantee.epsilon(1e-6) == math.inf


def test_zero_concentrated_dp_and_an_rdp_curve_of_the_same_values_agree():
    orders = np.array([1.5, 2, 3, 5, 8, 12, 20, 40, 80, 200])
    law = Geometric(mean=10)
    curve = account(RdpCurve(orders, lambda alpha: 0.02 * alpha), law)
    concentrated = account(dp_accounting.ZCDpEvent(0.02), law)
    assert curve.epsilon(DELTA) == pytest.approx(concentrated.epsilon(DELTA), rel=0.05)
    gaussian = account(dp_accounting.GaussianDpEvent(5.0), law)  # ρ = 1/2σ² = 0.02
    assert gaussian.epsilon(DELTA) <= concentrated.epsilon(DELTA)


def test_laplace_is_pure_and_keeps_its_pure_guarantee():
    guarantee = account(dp_accounting.LaplaceDpEvent(2.0), Geometric(mean=10), Band(0.75, 2))
    pure = guarantee.epsilon(0.0)
    assert pure <= 3 * (0.5 + math.log(2 / 0.75)) + 1e-5
    assert guarantee.epsilon(1e-6) <= pure
    assert guarantee.delta(pure + 1e-3) == 0.0


def test_pure_dp_lets_nothing_through_at_delta_zero():
    assert account(dp_sgd(1.0, 100), Geometric(mean=3)).epsilon(0.0) == math.inf


def test_rdp_of_the_search_does_not_decrease_and_is_below_theorem_1():
    guarantee = account(dp_sgd(0.71), Geometric(mean=100), Band(0.75, 2))
    alphas = np.linspace(1.2, 60, 50)
    curve = guarantee.rdp(alphas)
    assert (np.diff(curve) >= -1e-12).all()
    with pytest.raises(ValueError, match="alpha"):
        guarantee.rdp([1.0])


def test_the_profile_curve_is_for_plotting():
    epsilons, deltas = account(dp_sgd(1.0, 100), Poisson(4.0)).profile(30)
    assert len(epsilons) == len(deltas) == 30
    assert (np.diff(deltas) <= 0).all()
    assert deltas[-1] <= 1.1e-12


@pytest.mark.parametrize("band", [Band(1, 1), Band(0.75, 2)], ids=repr)
@pytest.mark.parametrize("law", [Geometric(mean=10), Poisson(5.0)], ids=repr)
def test_a_search_exported_to_dp_accounting_keeps_its_guarantee(law, band):
    guarantee = account(dp_sgd(1.0, 300), law, band)
    exported = guarantee.pld
    for delta in (1e-3, 1e-5, 1e-7):
        epsilon = exported.get_epsilon_for_delta(delta)
        expected = max(0.0, guarantee.bounds(delta)["profile"])
        assert expected - 1e-5 <= epsilon <= expected + 3e-3


def test_a_search_composes_with_other_releases():
    guarantee = account(dp_sgd(1.0, 300), Geometric(mean=10))
    other = pld.from_gaussian_mechanism(10.0, value_discretization_interval=1e-3)
    both = guarantee.pld.compose(other).get_epsilon_for_delta(DELTA)
    assert guarantee.epsilon(DELTA) < both < guarantee.epsilon(DELTA / 2) + other.get_epsilon_for_delta(DELTA / 2)
    twice = guarantee.pld.self_compose(2).get_epsilon_for_delta(DELTA)
    assert guarantee.epsilon(DELTA) < twice < 2 * guarantee.epsilon(DELTA / 2)


def test_the_exported_search_is_kept_and_stays_what_it_was():
    guarantee = account(dp_sgd(1.0, 300), Geometric(mean=10))
    kept, epsilons = guarantee.pld, np.linspace(0, 5, 11)
    before = [kept.get_delta_for_epsilon(epsilon) for epsilon in epsilons]
    kept.compose(kept).compose(account(dp_sgd(2.0, 30), Poisson(5.0)).pld)
    guarantee.compose(guarantee).epsilon(DELTA)
    assert guarantee.pld is kept
    assert [to_pld(guarantee.searches, guarantee.grid).get_delta_for_epsilon(epsilon) for epsilon in epsilons] == before
    assert [kept.get_delta_for_epsilon(epsilon) for epsilon in epsilons] == before
    more = dataclasses.replace(guarantee, runs=Geometric(mean=100))
    assert more.pld.get_epsilon_for_delta(DELTA) == pytest.approx(more.bounds(DELTA)["profile"], abs=3e-3)


def test_a_symmetric_event_needs_one_direction_only():
    guarantee = account(dp_accounting.GaussianDpEvent(3.0), Geometric(mean=10))
    assert len(guarantee.searches) == 1
    assert guarantee.pld._symmetric


def test_the_replace_relation_costs_more():
    law = Geometric(mean=10)
    add = account(dp_accounting.GaussianDpEvent(5.0), law)
    replace = account(dp_accounting.GaussianDpEvent(5.0), law, relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    assert replace.epsilon(DELTA) > add.epsilon(DELTA)


def test_means_up_to_a_million_are_accounted():
    guarantee = account(dp_sgd(2.0, 100), Geometric(mean=1e6))
    assert 0 < guarantee.epsilon(DELTA) < guarantee.bounds(DELTA)["paper"]


def test_an_rdp_curve_whose_best_order_is_its_last_is_worth_a_warning():
    with pytest.warns(UserWarning, match="larger orders"):
        account(RdpCurve([1.5, 2.0], [1e-6, 2e-6]), Geometric(mean=10)).epsilon(1e-9)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RdpCurve([2.0, math.nan], [0.1, 0.2]), "orders"),
        (lambda: RdpCurve([0.5, 2.0], [0.1, 0.2]), "orders"),
        (lambda: RdpCurve([], []), "orders"),
        (lambda: RdpCurve([1.0], [0.1]), "greater than 1"),
        (lambda: RdpCurve([2.0, 2.0], [0.1, 0.1]), "twice"),
        (lambda: RdpCurve([2.0, 3.0], [0.2, 0.1]), "never decreases"),
        (lambda: RdpCurve([2.0, 3.0], [0.2, -0.1]), "epsilons"),
        (lambda: RdpCurve([2.0, 3.0], [0.2]), "one for each order"),
        (lambda: RdpCurve([2.0, 3.0], [math.inf, math.inf]), "finite"),
        (lambda: PureDp(-1.0), "epsilon = -1.0"),
        (lambda: ApproximateDp(1.0, 1.0), "delta = 1.0"),
    ],
)
def test_a_bad_statement_about_a_run_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_bad_arguments_are_named():
    law = Geometric(mean=3)
    good = account(PureDp(1.0), law)
    for delta in (-1e-9, 1.0, math.nan):
        with pytest.raises(ValueError, match="delta"):
            good.epsilon(delta)
    with pytest.raises(ValueError, match="epsilon"):
        good.delta(-1.0)
    with pytest.raises(TypeError, match="event"):
        account("dp-sgd", law)
    with pytest.raises(TypeError, match="runs"):
        account(PureDp(1.0), 10)
    with pytest.raises(ValueError, match="band"):
        account(PureDp(1.0), law, 0.75)
    with pytest.raises(TypeError, match="relation"):
        account(PureDp(1.0), law, relation="add")
    with pytest.raises(ValueError, match="at least one event"):
        account([], law)
    with pytest.raises(UnaccountableError):
        account(dp_accounting.NonPrivateDpEvent(), law)
    with pytest.raises(ValueError, match="grid"):
        account(PureDp(1.0), law, grid=0.0)


GAUSSIAN = dp_accounting.GaussianDpEvent(3.0)


@pytest.mark.parametrize("law", [Pmf({2: 0.5, 100: 0.5}), Pmf({2: 1.0}), Pmf({3: 0.1, 40: 0.9})], ids=repr)
@pytest.mark.parametrize("delta", mostly_slow([1e-12, 1e-5, 1e-9]))
def test_a_law_that_never_runs_once_has_a_finite_cost_at_tiny_delta(law, delta):
    """1 − τ has to be known where τ itself rounds to 1; before, the first law cost infinity from δ = 1e-8 on."""
    guarantee = account(GAUSSIAN, law)
    assert epsilon_from_below(guarantee, delta) <= guarantee.epsilon(delta) < 12.0


@pytest.mark.slow
@pytest.mark.parametrize(("mean", "delta"), [(1e5, 1e-8), (1e7, 1e-6)])
def test_a_very_large_mean_has_a_finite_profile_bound_at_tiny_delta(mean, delta):
    """The trace of infinite loss of a distribution, times E[T], is more than δ: the RDP curve has none."""
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(2.0)), 300
    )
    guarantee = account(event, NegativeBinomial(8, mean=mean))
    bounds = guarantee.bounds(delta)
    assert bounds["profile"] <= bounds["renyi"] < 10.0
    assert guarantee.one_run(delta)["pld"] < bounds["profile"]


def test_a_pure_run_is_pure_for_any_law():
    """Theorem 4 at δ = 0: ε₀ + L + max h."""
    law = Pmf({1: 0.5, 2: 0.5})
    found = account(PureDp(1.0), law).epsilon(0.0)
    exact = max(math.log(on / off) for on, off in extremes(law))
    assert exact <= found <= 1.0 + math.log(1.5 / 0.5)


def extremes(law):
    """The probabilities that the winner of randomised response, ranked either way, is the less likely answer."""
    p, q = 1 / (1 + math.exp(-1.0)), 1 / (1 + math.exp(1.0))
    top = lambda x: 1 - float(law.pgf(1 - x))  # noqa: E731
    below = lambda x: float(law.pgf(x))  # noqa: E731
    return [(top(p), top(q)), (below(p), below(q))]


def test_a_profile_that_is_not_a_number_costs_infinity():
    assert smallest(lambda eps: math.nan, 1e-5, top=10.0) == math.inf
    assert smallest(lambda eps: 1.0 if eps < 2 else math.nan, 1e-5, top=10.0) == math.inf


def test_two_numbers_stand_for_a_band():
    stated = account(PureDp(0.5), Geometric(mean=5), (0.5, 2))
    assert stated.band == Band(0.5, 2)
    assert stated.epsilon(DELTA) == account(PureDp(0.5), Geometric(mean=5), Band(0.5, 2)).epsilon(DELTA)
    with pytest.raises(ValueError, match=r"c = 2"):
        account(PureDp(0.5), Geometric(mean=5), (2, 0.5))
