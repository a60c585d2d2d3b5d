"""The lower bound, and the tests' upper one, share no code with the accountant, and catch one that is wrong."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from scipy.special import ndtr
from support import upper_bound
from support.slow import mostly_slow
from support.upper_bound import NoBound, epsilon_from_above

from dphypo.accounting import ApproximateDp, PureDp, RdpCurve, account, dp_library, one_run, verify
from dphypo.accounting.composition import Composition, Split, Term, account_published
from dphypo.accounting.lower_bound import epsilon_from_below, from_below, run_epsilon_from_below
from dphypo.accounting.lower_bound import one_run as lower_run
from dphypo.accounting.profiles import Curve
from dphypo.accounting.theorems import phi, theorem4_profile
from dphypo.band import Band
from dphypo.errors import UnaccountableError
from dphypo.laws import Geometric, NegativeBinomial, Pmf, Poisson

DELTA = 1e-5
ADD = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE
Gaussian = dp_accounting.GaussianDpEvent


def sgd(noise: float, steps: int, rate: float = 0.01) -> dp_accounting.DpEvent:
    return dp_accounting.SelfComposedDpEvent(dp_accounting.PoissonSampledDpEvent(rate, Gaussian(noise)), steps)


def gaussian_delta(sigma: float, epsilon: float) -> float:
    return ndtr(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * ndtr(-0.5 / sigma - epsilon * sigma)


@pytest.mark.parametrize(("sigma", "count", "half"), [(1.0, 1, 1), (6.0, 9, 1), (3.0, 1, 2)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_gaussians_lie_between_the_bounds(sigma, count, half, epsilon):
    """The Gaussian mechanism has a closed form; a replaced record moves its sum twice as far."""
    event = dp_accounting.SelfComposedDpEvent(Gaussian(sigma), count)
    exact = gaussian_delta(sigma / math.sqrt(count) / half, epsilon)
    relation = REPLACE_ONE if half == 2 else ADD
    for pair in lower_run(event, relation, grid=1e-3):
        assert exact * (1 - 1e-3) <= pair.delta(epsilon) <= exact + 1e-15
    for pair in upper_bound.one_run(event, relation, 1e-3):
        assert exact <= pair.delta(epsilon) <= exact * (1 + 1e-3)


@pytest.mark.parametrize("removed", [0, 1])
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.3])
def test_a_sampled_step_lies_between_the_bounds(removed, epsilon):
    """Both directions of one subsampled step, by quadrature of the hockey stick."""
    rate, sigma = 0.1, 1.0
    x = np.linspace(-12, 13, 2_000_001)
    q = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    p = (1 - rate) * q + rate * np.exp(-((x - 1) ** 2) / 2) / math.sqrt(2 * math.pi)
    on, off = (p, q) if removed == 0 else (q, p)
    exact = float(np.sum(np.maximum(on - math.exp(epsilon) * off, 0.0)) * (x[1] - x[0]))
    event = sgd(sigma, 1, rate)
    low = lower_run(event, ADD, grid=1e-4)[removed].delta(epsilon)
    high = upper_bound.one_run(event, ADD, 1e-4)[removed].delta(epsilon)
    assert exact * 0.999 - 1e-9 <= low <= exact + 1e-9
    assert exact - 1e-9 <= high <= exact * 1.001 + 1e-9


GUARANTEES = {
    "dp-sgd": lambda: account(sgd(1.0, 300), Geometric(mean=10)),
    "dp-sgd in a band": lambda: account(sgd(1.0, 300), Geometric(mean=10), Band(0.75, 2)),
    "concentrated": lambda: account(sgd(1.0, 300), NegativeBinomial(8, mean=10)),
    "none or some": lambda: account(Gaussian(3.0), Poisson(5)),
    "replaced": lambda: account(Gaussian(6.0), Geometric(mean=5), relation=REPLACE_ONE),
    "laplace": lambda: account(dp_accounting.LaplaceDpEvent(4.0), Geometric(mean=5)),
    "pure": lambda: account(PureDp(0.4), Geometric(mean=10), Band(0.5, 2)),
    "approximate": lambda: account(ApproximateDp(0.4, 1e-8), Geometric(mean=3)),
    "stages": lambda: account(sgd(3.0, 50), Geometric(mean=10)).compose(account(sgd(1.0, 300), Poisson(4))),
    "published": lambda: Composition(
        (
            Term(account_published(sgd(3.0, 50), 10), Split("odd numbers score").sides.training),
            Term(account_published(Gaussian(20.0), 10)),
        )
    ),
}


@pytest.mark.parametrize("name", mostly_slow(GUARANTEES, 2))
def test_every_kind_of_guarantee_lies_between_the_bounds_and_close_to_the_upper(name):
    found = GUARANTEES[name]()
    epsilon = found.epsilon(DELTA)
    assert 0.3 * epsilon < epsilon_from_below(found, DELTA) <= epsilon
    assert epsilon * 0.98 <= epsilon_from_above(found, DELTA) <= epsilon * 1.02


@pytest.mark.parametrize(
    "event", [PureDp(2.9), PureDp(20.0), ApproximateDp(5.0, 1e-8), dp_accounting.LaplaceDpEvent(0.1)]
)
def test_a_run_of_few_losses_is_attacked(event):
    found = account(event, Geometric(mean=10))
    assert 0.6 * found.epsilon(DELTA) < epsilon_from_below(found, DELTA) <= found.epsilon(DELTA)


@pytest.mark.parametrize("event", [PureDp(800.0), PureDp(1e300), ApproximateDp(1e5, 1e-8)])
def test_losses_beyond_any_grid_are_attacked_as_smaller_ones(event):
    assert 20 < epsilon_from_below(account(event, Geometric(mean=10)), DELTA) <= 100
    assert 99 < epsilon_from_below(account_published(event, 3), DELTA) <= 100


def test_what_has_no_loss_distribution_is_bounded_from_below_by_a_gaussian_that_it_allows():
    curve = RdpCurve([2.0, 4.0, 8.0, 32.0, 64.0], lambda alpha: 0.02 * alpha)
    found = account(curve, Geometric(mean=10))
    assert 0.5 * found.epsilon(DELTA) < epsilon_from_below(found, DELTA) <= found.epsilon(DELTA)
    with pytest.raises(NoBound, match="RdpCurve"):
        epsilon_from_above(found, DELTA)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "count"), [(5, 4), (6, 40)])
def test_random_searches_never_contradict_the_accountant(seed, count):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        event = [Gaussian(float(rng.uniform(1, 10))), sgd(float(rng.uniform(0.8, 3)), int(rng.integers(1, 60)), 0.05)][
            int(rng.integers(2))
        ]
        law = [Geometric(mean=float(rng.uniform(1.1, 30))), Poisson(float(rng.uniform(0.5, 9))), Pmf({3: 1.0})][
            int(rng.integers(3))
        ]
        c = float(rng.uniform(0.4, 1.0))
        band = Band(1, 1) if rng.uniform() < 0.5 else Band(c, 1 / c)
        delta = 10.0 ** float(rng.uniform(-9, -3))
        found = account(event, law, band)
        lower, upper = epsilon_from_below(found, delta), epsilon_from_above(found, delta)
        assert lower <= found.epsilon(delta) <= upper * (1 + 5e-3) + 1e-3, (event, law, band, delta)


def test_verify_catches_an_accountant_that_forgets_the_number_of_runs(monkeypatch):
    """Issued and recomputed by the same broken code, which the attack does not share."""

    def without_mean(runs, tau):
        valid = phi.phi(runs, tau)
        return phi.Phi(valid.weights / runs.mean**2, valid.shifts - math.log(runs.mean), valid.cells)

    monkeypatch.setattr(theorem4_profile, "phi", without_mean)
    result = verify(account(Gaussian(4.0), Geometric(mean=100)).certificate(DELTA))
    assert not result
    assert "explicit attack" in str(result)


def test_an_accountant_that_says_less_than_a_test_achieves_is_not_certified(monkeypatch):
    halved = dp_library.curve

    def too_small(event, relation, *more):
        found = halved(event, relation, *more)
        return Curve(found.orders, found.epsilons / 2)

    monkeypatch.setattr(dp_library, "curve", too_small)
    with pytest.raises(UnaccountableError, match="the rdp accountant says"):
        account(Gaussian(2.5), Geometric(mean=10)).certificate(DELTA)


def test_without_the_gate_the_skipped_gaussian_would_not_be_certified(monkeypatch):
    """The second line of defence: dp_accounting's RDP accountant skips noise that is an integer."""
    monkeypatch.setattr(one_run, "canonical", lambda event: event)
    event = dp_accounting.PoissonSampledDpEvent(0.3, dp_accounting.SelfComposedDpEvent(Gaussian(3), 9))
    found = account(event, Pmf({1: 1.0}))
    assert found.epsilon(DELTA) < 1.0  # the hole, reopened
    with pytest.raises(UnaccountableError, match="the rdp accountant says"):
        found.certificate(DELTA)


def test_the_test_of_one_run_is_a_lower_bound():
    for event in (Gaussian(2.0), sgd(1.0, 200), dp_accounting.LaplaceDpEvent(2.0)):
        least = run_epsilon_from_below(event, ADD, DELTA)
        for epsilon in one_run.describe([event], ADD).epsilons(DELTA).values():
            assert 0.5 * epsilon < least <= epsilon
    assert (
        run_epsilon_from_below(dp_accounting.dp_event.SampledWithReplacementDpEvent(9, 3, Gaussian(1.0)), ADD, DELTA)
        == 0
    )
    assert from_below(lower_run(Gaussian(1e6), ADD, grid=1e-3)[0], DELTA) == 0.0
