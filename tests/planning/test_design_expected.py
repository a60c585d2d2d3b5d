"""Quadrature of the winner against exact enumeration and against simulated searches."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from dphypo.entropy import Seeded
from dphypo.laws import Geometric, Law, NegativeBinomial, Pmf, Poisson
from dphypo.planning.landscape import winners

FAR = np.array([0.0, 30.0, 60.0])  # no noise ever changes the order


@pytest.mark.parametrize("law", [Pmf({1: 0.3, 2: 0.5, 4: 0.2}), Pmf({0: 0.5, 3: 0.5})])
def test_without_confusion_every_sequence_of_visits_can_be_counted(law: Law) -> None:
    prior = np.array([0.5, 0.3, 0.2])
    exact = np.zeros(3)
    for runs in range(1, 5):
        for visits in product(range(3), repeat=runs):
            exact[max(visits)] += float(law.pmf(runs)) * prior[list(visits)].prod()
    assert winners([prior], FAR, 1.0, law)[0] == pytest.approx(exact / exact.sum(), abs=1e-12)


def test_two_cells_and_two_visits_have_a_closed_form() -> None:
    gap, noise = 0.7, 0.5
    both = 2 * 0.6 * 0.4  # visited once each: the better one wins if its lead outlives the difference of two noises
    better = 0.6**2 + both * norm.cdf(gap / (noise * np.sqrt(2)))
    assert winners([[0.4, 0.6]], [0.1, 0.1 + gap], noise, Pmf({2: 1.0}))[0, 1] == pytest.approx(better, abs=1e-12)


@pytest.mark.parametrize("noise", [1e-6, 1e-12, 1e-90])
def test_noise_far_below_the_differences_ranks_as_no_noise_does(noise: float) -> None:
    """A grid over the whole range would have as many points as the range has standard deviations."""
    prior = np.array([0.5, 0.3, 0.2])
    expected = winners([prior], FAR, 1.0, Geometric(mean=5))
    assert winners([prior], FAR, noise, Geometric(mean=5)) == pytest.approx(expected, abs=1e-6)


def test_one_visit_is_a_draw_from_the_prior() -> None:
    priors = np.random.default_rng(1).dirichlet(np.ones(7), size=5)
    assert winners(priors, np.linspace(0, 1, 7), 0.1, Pmf({1: 1.0})) == pytest.approx(priors, abs=1e-12)


def test_cells_may_have_noise_of_their_own() -> None:
    better = 0.6**2 + 2 * 0.6 * 0.4 * norm.cdf(0.7 / np.hypot(0.5, 0.2))
    found = winners([[0.4, 0.6]], [0.1, 0.8], np.array([0.5, 0.2]), Pmf({2: 1.0}))
    assert found[0, 1] == pytest.approx(better, abs=1e-12)


def test_small_noise_takes_more_scores_and_stays_exact() -> None:
    prior = np.full((1, 40), 1 / 40)
    many = winners(prior, np.arange(40.0), 1e-3, Geometric(mean=50))
    exact = Geometric(mean=50).pgf(np.arange(41) / 40)
    assert many[0] == pytest.approx(np.diff(exact), abs=1e-12)


def _simulated(prior: np.ndarray, means: np.ndarray, noise: float, law: Law, count: int, seed: int) -> np.ndarray:
    entropy, random = Seeded(seed), np.random.default_rng(seed)
    found = np.zeros(len(means))
    for _ in range(count):
        visits = random.choice(len(means), size=law.sample(entropy), p=prior)
        if len(visits):
            found[visits[np.argmax(random.normal(means[visits], noise))]] += 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("law", [Poisson(2.0), Geometric(mean=6), NegativeBinomial(8, mean=6)])
def test_agrees_with_simulated_searches(law: Law) -> None:
    random = np.random.default_rng(7)
    prior, means = random.dirichlet(np.ones(9)), random.random(9)
    count = 8_000
    found = _simulated(prior, means, 0.2, law, count, seed=3)
    expected = winners([prior], means, 0.2, law)[0]
    deviation = np.sqrt(expected * (1 - expected) / found.sum())
    assert (abs(found / found.sum() - expected) < 5.6 * deviation).all()  # 9 cells: false alarms below 2e-7
