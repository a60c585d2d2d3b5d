"""The explicit history-only attack: what a real policy achieves, so never above the exact δ, nor above Theorem H."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dphypo.accounting import PureDp, account
from dphypo.audit import HistoryAttack, World, exact_history_delta, merged
from dphypo.audit.pair import Pair, dp_sgd_pair
from dphypo.band import Band
from dphypo.laws import Pmf

BAND = Band(0.75, 2)


def coin(loss: float) -> Pair:
    p = 1.0 / (1.0 + math.exp(-loss))
    return Pair(np.array([-loss, 0.0, loss]), np.array([1 - p, 0.0, p]), np.array([p, 0.0, 1 - p]))


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5, 2.5])
def test_it_is_what_the_world_that_it_describes_has(first, epsilon):
    """Three groups of λ; the oracle looks for the best event and policy, of which the attack is one."""
    pair, law = coin(1.0), Pmf({2: 0.5, 4: 0.5})
    on, off = np.tile(pair.on[[0, 2]], (3, 1)), np.tile(pair.off[[0, 2]], (3, 1))
    ranks = np.array([[0, 3], [4, 5], [1, 2]])  # targets, killers, the rest; each with its small loss first
    world = World(np.array([BAND.p, BAND.p, 1 - 2 * BAND.p]), on, off, ranks)
    pmf = law.pmf(np.arange(5))
    hit = np.zeros((1, 6))
    hit[0, 3] = 1.0
    exact = exact_history_delta(world, pmf, BAND, [epsilon], first_from_prior=first, events=hit)[0]
    found = HistoryAttack(pair, law, BAND, first).delta(epsilon, 0.0, -math.inf, math.inf)
    assert found <= exact + 1e-12
    assert found == pytest.approx(exact, abs=0.02)


def test_it_stays_below_the_bound():
    bound = account(PureDp(1.0), Pmf({4: 1.0}), BAND, policy="history", first_from_prior=1)
    attack = HistoryAttack(coin(1.0), Pmf({4: 1.0}), BAND, 1)
    for epsilon in (0.0, 1.0, 2.0, 3.0):
        assert attack.delta(epsilon, 0.0, -math.inf, math.inf) <= bound.delta(epsilon)


def test_merged_outcomes_have_the_losses_that_they_say():
    pair = merged(dp_sgd_pair(1.0, 0.02, 200), 0.1)
    used = pair.on > 1e-12
    np.testing.assert_allclose(np.log(pair.on[used] / pair.off[used]), pair.losses[used], atol=1e-12)
    assert 1 - 1e-6 < pair.on.sum() <= 1 + 1e-9
