"""One subsample and then a whole mechanism on it: against closed forms, dp_accounting and brute force."""

from __future__ import annotations

import dp_accounting as dp
import numpy as np
import pytest

from dphypo.accounting import PureDp, account
from dphypo.accounting.one_run import added, describe, removed
from dphypo.accounting.profiles import Discrete, epsilon_for
from dphypo.errors import UnaccountableError
from dphypo.laws import Geometric, Pmf

BOTH = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
ONE = Pmf({1: 1.0})


def once(rate: float, event: dp.DpEvent) -> dp.DpEvent:
    """The same event behind a composition of one, which dp_accounting does not look through."""
    return dp.PoissonSampledDpEvent(rate, dp.SelfComposedDpEvent(event, 1))


@pytest.mark.parametrize("rate", [0.01, 0.2, 0.9])
@pytest.mark.parametrize("inner", [dp.GaussianDpEvent(0.8), dp.PoissonSampledDpEvent(0.3, dp.GaussianDpEvent(0.8))])
def test_a_subsample_of_one_step_is_the_step_at_the_product_of_the_rates(rate, inner):
    gaussian = inner if isinstance(inner, dp.GaussianDpEvent) else inner.event
    step = dp.PoissonSampledDpEvent(rate * getattr(inner, "sampling_probability", 1.0), gaussian)
    found, exact = describe([once(rate, inner)], BOTH), describe([step], BOTH)
    for ours, theirs in zip(found.profiles, exact.profiles, strict=True):
        for delta in (1e-3, 1e-5, 1e-8):
            assert epsilon_for(ours, delta) == pytest.approx(epsilon_for(theirs, delta), abs=4e-3)
        epsilons = np.linspace(-3, 6, 400)
        np.testing.assert_allclose(ours.delta(epsilons), theirs.delta(epsilons), atol=3e-4)


def test_both_directions_against_brute_force():
    rng = np.random.default_rng(0)
    for _ in range(300):
        p, q = rng.dirichlet(np.full(5, 0.5), size=2) + 1e-9
        p, q = p / p.sum(), q / q.sum()
        rate = float(rng.uniform(0.01, 0.99))
        mixed = (1 - rate) * q + rate * p
        epsilons = np.concatenate([rng.normal(0, 2, 40), [0.0, np.log1p(-rate), -np.log1p(-rate)]])
        for profile, one, other in ((removed(_profile(p, q), rate), mixed, q), (added(_profile(q, p), rate), q, mixed)):
            exact = np.maximum(one[:, None] - np.exp(epsilons) * other[:, None], 0.0).sum(axis=0)
            found = profile.delta(epsilons)
            assert (found >= exact - 1e-16).all()
            np.testing.assert_allclose(found, exact, atol=1e-7)
            assert profile.bottom <= profile.top


def _profile(p, q) -> Discrete:
    order = np.argsort(np.log(p / q))
    return Discrete(np.log(p / q)[order], p[order], 0.0)


def test_profiles_hold_far_out():
    inner = describe([dp.GaussianDpEvent(1.0)], BOTH).profiles
    for profile in (removed(inner[0], 0.1), added(inner[1], 0.1)):
        far = profile.delta(np.array([-1e4, -50.0, 50.0, 1e4]))
        assert np.isfinite(far).all()
        assert (far[:2] >= 1 - 1e-12).all()
        assert (np.diff(far) <= 0).all()


def test_a_subsample_makes_a_training_run_cheaper_and_the_search_with_it():
    training = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(1.0)), 100)
    whole, part = account(training, Geometric(mean=10)), account(once(0.1, training), Geometric(mean=10))
    assert part.epsilon(1e-6) < 0.6 * whole.epsilon(1e-6)
    assert set(part.bounds(1e-6)) == {"profile"}


def test_pure_dp_is_amplified_too():
    run = describe([dp.PoissonSampledDpEvent(0.25, dp.SelfComposedDpEvent(dp.LaplaceDpEvent(1.0), 1))], BOTH)
    assert run.pure == pytest.approx(np.log1p(0.25 * np.expm1(1.0)))


def test_other_relations_are_refused():
    event = once(0.1, dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(1.0)))
    for relation in set(dp.NeighboringRelation) - {BOTH}:
        with pytest.raises(UnaccountableError, match="cannot be accounted"):
            account(event, ONE, relation=relation)
    assert account(PureDp(0.1), ONE).epsilon(1e-6) <= 0.1
