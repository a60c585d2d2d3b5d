"""Who wins a search on a grid of cells: the quadrature against exact enumeration and against simulated searches."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from dphypo import PriorAround, Space
from dphypo.entropy import Seeded
from dphypo.laws import Geometric, Law, NegativeBinomial, Pmf, Poisson
from paper.simulate import worlds
from paper.simulate.staged_plan import priors_around
from paper.simulate.winners import winners, winners_of_stages

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


@pytest.mark.slow
def test_stages_agree_with_simulated_stages() -> None:
    random = np.random.default_rng(5)
    first, last = random.random(6), random.random(6)
    around = random.dirichlet(np.ones(6), size=6)
    laws = (Poisson(1.5), NegativeBinomial(8, mean=3))  # the first stage often makes no run and leaves the prior
    entropy, found, count = Seeded(2), np.zeros(6), 8_000
    for _ in range(count):
        prior = np.full(6, 1 / 6)
        for means, law in zip((first, last), laws, strict=True):
            visits = random.choice(6, size=law.sample(entropy), p=prior)
            if len(visits):
                winner = int(visits[np.argmax(random.normal(means[visits], 0.3))])
                prior = around[winner]
        found[winner] += 1
    expected = winners_of_stages((first, last), laws, [around], 0.3)
    assert expected.sum() == pytest.approx(1)
    assert (abs(found / count - expected) < 5.6 * np.sqrt(expected * (1 - expected) / count)).all()


def test_a_stage_without_a_run_leaves_the_prior_as_it_was() -> None:
    once, half = Pmf({1: 1.0}), Pmf({0: 0.5, 1: 0.5})
    means, to = [0.0, 1.0, 2.0], np.eye(3)
    two = winners_of_stages([means, means], [half, once], [np.tile(to[0], (3, 1))], 0.1)
    assert two == pytest.approx([1 / 2 + 1 / 6, 1 / 6, 1 / 6])
    around = [np.tile(to[0], (3, 1)), np.tile(to[1], (3, 1))]
    three = winners_of_stages([means] * 3, [half, half, half], around, 0.1)
    assert three == pytest.approx([1 / 4 + 1 / 12, 1 / 2 + 1 / 12, 1 / 12])


def test_a_single_stage_is_a_uniform_search() -> None:
    means = np.linspace(0, 1, 5)
    one = winners_of_stages([means], [Geometric(mean=4)], [], 0.1)
    assert one == pytest.approx(winners(np.full((1, 5), 0.2), means, 0.1, Geometric(mean=4))[0])


def test_priors_that_do_not_fit_are_refused() -> None:
    law = Geometric(mean=2)
    for around in ([[0.5, 0.5]], np.eye(3)):  # a prior is missing; others have too many cells
        with pytest.raises(ValueError, match="give a prior of 2 masses for each of 2 cells"):
            winners_of_stages([[0, 1], [0, 1]], [law, law], [around], 0.1)
    with pytest.raises(ValueError, match="priors one less"):
        winners_of_stages([[0, 1]], [law], [np.eye(2)], 0.1)


@pytest.mark.parametrize(("spread", "floor"), [(0.05, 0.1), (0.3, 0.4)])
def test_priors_are_those_of_the_rule_between_stages(spread: float, floor: float) -> None:
    shape = (4, 6)
    space = Space({f"axis {k}": [float(10**-i) for i in reversed(range(count))] for k, count in enumerate(shape)})
    grid = space.grid()
    rule = PriorAround(spread=spread, floor=floor)
    expected = [rule(grid.params(cell), space).grid().masses for cell in range(24)]
    assert priors_around(shape, spread, floor) == pytest.approx(np.array(expected), abs=1e-12)


def test_interpolation_is_exact_for_a_quadratic_in_log_noise() -> None:
    levels = np.geomspace(0.5, 4, 9)

    def truth(level: float) -> np.ndarray:
        x = np.log(level)
        return np.array([1.0, 2 - x, x + 0.3 * x**2])

    trained = worlds.Trained({level: truth(level)[None] for level in levels}, (-9.0, 9.0))
    for level in (0.5, 0.9, 2.2, 4.1):
        assert trained.at(level) == pytest.approx(truth(level), abs=1e-9)
    with pytest.raises(ValueError, match="was not trained"):
        trained.at(0.4)


def test_levels_trained_more_often_count_more() -> None:
    levels = dict(zip([0.9, 1.0, 1.1, 1.2, 1.3], [0.0, 1.0, 0.0, 0.0, 0.0], strict=True))
    once = {level: np.full((1, 1), value) for level, value in levels.items()}
    (plain,), (often,) = (worlds.Trained(one).at(1.0) for one in (once, once | {1.0: np.ones((50, 1))}))
    assert plain < 0.7
    assert 0.9 < often < 1.0
