"""What searches in stages find, by quadrature and by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from dphypo.entropy import Seeded
from dphypo.laws import Geometric, NegativeBinomial, Pmf, Poisson
from dphypo.planning.landscape import winners
from paper.simulate.staged_winners import winners_of_stages


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
