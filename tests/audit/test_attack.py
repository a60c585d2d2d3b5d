"""Explicit attacks: true lower bounds, within a few per cent of the profile bound."""

from __future__ import annotations

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from dphypo.accounting import PureDp, account
from dphypo.audit import WorstCase
from dphypo.audit.attack import attack_delta, attack_epsilon
from dphypo.audit.pair import Pair, dp_sgd_pair
from dphypo.band import Band
from dphypo.laws import Geometric, Logarithmic, Pmf, Poisson

DELTA = 1e-5


@pytest.fixture(scope="module")
def pair():
    return dp_sgd_pair(0.71, 256 / 60_000, 2344)


def event(noise=0.71, rate=256 / 60_000, steps=2344):
    return dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise)), steps
    )


@pytest.mark.parametrize(
    ("noise", "rate", "steps"), [(0.71, 256 / 60_000, 2344), (1.0, 1.0, 1), (1.0, 0.02, 200), (3.0, 0.5, 40)]
)
def test_the_pair_lies_just_below_the_pessimistic_distribution(noise, rate, steps):
    """Merging outcomes can only lose; here it loses next to nothing."""
    found = dp_sgd_pair(noise, rate, steps)
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(event(noise, rate, steps))
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        lower = np.maximum(0.0, found.on - np.exp(epsilon) * found.off).sum()
        upper = float(accountant.get_delta(epsilon))
        assert lower <= upper * (1 + 1e-9) + 1e-11
        assert lower >= 0.97 * upper - 1e-7


def test_the_losses_are_what_the_masses_say(pair):
    likely = pair.on > 1e-10
    np.testing.assert_allclose(
        np.log(pair.on[likely] / pair.off[likely]), pair.losses[likely], atol=1e-4
    )  # as far as the FFT is accurate


@pytest.mark.parametrize(
    ("law", "band", "listed"),
    [
        (Geometric(mean=100), Band(1, 1), 5.00),
        (Geometric(mean=100), Band(0.75, 2), 6.87),
        (Geometric(mean=10), Band(0.75, 2), 5.33),
        (Logarithmic(gamma=0.01), Band(0.75, 2), 5.39),
        (Geometric(mean=100), Band(0.75, 4 / 3), 6.09),
    ],
)
def test_the_attack_comes_close_to_the_bound_and_never_above(pair, law, band, listed):
    lower = attack_epsilon(pair, law, band, DELTA)
    upper = account(event(), law, band).epsilon(DELTA)
    assert lower == pytest.approx(listed, abs=0.02)
    assert lower <= upper <= 1.03 * lower


@pytest.mark.parametrize("law", [Poisson(10), Pmf({5: 1.0}), Geometric(mean=30).capped(50)], ids=repr)
@pytest.mark.parametrize("band", [Band(1, 1), Band(0.5, 4), Band(0.6, 1.2)], ids=repr)
def test_no_attack_beats_the_bound_for_other_laws(pair, law, band):
    guarantee = account(event(), law, band)
    for epsilon in (0.5, 2.0, 4.0, 7.0):
        assert attack_delta(pair, law, band, epsilon) <= guarantee.delta(epsilon)


def test_an_attack_on_one_run_is_the_hockey_stick(pair):
    single = Pmf({1: 1.0})
    epsilon = attack_epsilon(pair, single, Band(1, 1), DELTA)
    assert epsilon == pytest.approx(2.774, abs=0.01)


def test_the_policy_keeps_the_band():
    small = dp_sgd_pair(1.0, 1.0, 1)
    for band in (Band(0.75, 2), Band(0.6, 1.2)):
        shifted = small.with_policy(band)
        assert shifted.on.sum() == pytest.approx(small.on.sum())
        assert shifted.off.sum() == pytest.approx(small.off.sum())
        assert (np.diff(shifted.losses) >= 0).all()


@pytest.mark.parametrize("band", [Band(1, 1), Band(0.5, 2.0), Band(0.75, 3.0)])
def test_the_attack_on_a_study_is_what_enumeration_gives(band: Band) -> None:
    """All outcomes of at most three runs, the first with λ from the prior: no run is in S, and one is in E."""
    truth = 0.7
    losses = np.array([-1.0, 1.0]) * math.log(truth / (1 - truth))
    pair = Pair(losses, np.array([1 - truth, truth]), np.array([truth, 1 - truth]))
    runs = Pmf({0: 0.1, 1: 0.3, 2: 0.2, 3: 0.4})
    later, first = pair.with_policy(band), pair.with_policy(band, from_prior=True)
    assert first.on.sum() == pytest.approx(1.0)
    for epsilon in (0.0, 0.4, 1.0, 2.0):
        best = 0.0
        for s, t in itertools.combinations_with_replacement(range(len(later.losses)), 2):
            found = []
            for one, others in ((first.on, later.on), (first.off, later.off)):
                total = 0.0
                for count in (1, 2, 3):
                    for seen in itertools.product(range(len(later.losses)), repeat=count):
                        if min(seen) >= s and max(seen) >= t:
                            total += runs.pmf(count) * one[seen[0]] * math.prod(others[i] for i in seen[1:])
                found.append(total)
            best = max(best, found[0] - math.exp(epsilon) * found[1])
        assert attack_delta(pair, runs, band, epsilon, first_from_prior=True) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("band", [Band(0.75, 2), Band(0.5, 4)])
def test_the_attack_on_a_study_is_below_what_the_study_claims(band: Band) -> None:
    truth = math.exp(0.5) / (1 + math.exp(0.5))
    pair = Pair(np.array([-0.5, 0.5]), np.array([1 - truth, truth]), np.array([truth, 1 - truth]))
    law = Geometric(mean=2)
    achieved = attack_epsilon(pair, law, band, 1e-3, first_from_prior=True)
    claimed = WorstCase(pair, PureDp(0.5), law, band, 1e-3).study(1).guarantee.epsilon(1e-3)
    assert 0.5 * claimed < achieved <= claimed
    assert achieved <= attack_epsilon(pair, law, band, 1e-3) + 1e-6
