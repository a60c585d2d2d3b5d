"""The explicit history-only attack: what a real policy achieves, so never above the exact δ, nor above Theorem H."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.history_oracle import exact_history_delta
from support.oracle import World

from benchmarks import history_attack
from benchmarks.history_attack import HistoryAttack, Thresholds, merged
from benchmarks.sharp_pair import dp_sgd_pair
from dphypo.accounting import PureDp, account
from dphypo.accounting.lower_bound import Pair
from dphypo.band import Band
from dphypo.laws import NegativeBinomial, Pmf

BAND = Band(0.75, 2)
ONE_LEVEL = Thresholds((0.0,), (-math.inf,), (math.inf,))


def coin(loss: float) -> Pair:
    p = 1.0 / (1.0 + math.exp(-loss))
    return Pair(-1, np.array([1 - p, 0.0, p]), 0.0, loss)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5, 2.5])
def test_it_is_what_the_world_that_it_describes_has(first, epsilon):
    """Three groups of λ; the oracle looks for the best event and policy, of which the attack is one."""
    pair, law = coin(1.0), Pmf({2: 0.5, 4: 0.5})
    on, off = np.tile(pair.masses[[0, 2]], (3, 1)), np.tile(pair.masses[[2, 0]], (3, 1))
    ranks = np.array([[0, 3], [4, 5], [1, 2]])  # targets, killers, the rest; each with its small loss first
    world = World(np.array([BAND.p, BAND.p, 1 - 2 * BAND.p]), on, off, ranks)
    pmf = law.pmf(np.arange(5))
    hit = np.zeros((1, 6))
    hit[0, 3] = 1.0
    exact = exact_history_delta(world, pmf, BAND, [epsilon], first_from_prior=first, events=hit)[0]
    found = HistoryAttack(pair, law, BAND, first).delta(epsilon, ONE_LEVEL)
    assert found <= exact + 1e-12
    assert found == pytest.approx(exact, abs=0.02)


def test_it_stays_below_the_bound():
    bound = account(PureDp(1.0), Pmf({4: 1.0}), BAND, policy="history", first_from_prior=1)
    attack = HistoryAttack(coin(1.0), Pmf({4: 1.0}), BAND, 1)
    for epsilon in (0.0, 1.0, 2.0, 3.0):
        assert attack.delta(epsilon, ONE_LEVEL) <= bound.delta(epsilon)


def test_merged_outcomes_have_the_losses_that_they_say():
    pair = merged(dp_sgd_pair(1.0, 0.02, 200), 0.1)
    assert 1 - 1e-6 < pair.masses.sum() <= 1 + 1e-9
    assert 1 - 1e-6 < (pair.masses * np.exp(-pair.losses)).sum() <= 1 + 1e-6


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 2.0])
def test_two_levels_are_what_the_world_that_they_describe_has(epsilon):
    """Four losses: a target with the largest outranks all but killers with the smallest."""
    low, high = np.array([0.2, 0.8]), np.array([0.4, 0.6])  # of losses −2 and −1, and of 1 and 2
    more, less = (low * np.exp([2, 1])).sum(), (high * np.exp([-1, -2])).sum()
    share = (more - 1) / (more - less)  # so that the masses on D′ sum to one, too
    pair = Pair(-2, np.array([*((1 - share) * low), 0.0, *(share * high)]), 0.0, 1.0)
    at = Thresholds((0.3, 1.2), (-0.6, -math.inf), (0.3, -0.6))
    law = Pmf({2: 0.5, 4: 0.5})
    used = pair.masses > 0
    on, off = pair.masses[used], (pair.masses * np.exp(-pair.losses))[used]
    assert off.sum() == pytest.approx(1.0)
    ranks = history_attack._ranks(pair.losses[used], at)
    order = np.lexsort((np.arange(3 * used.sum()), np.concatenate(ranks)))
    world_ranks = np.empty(len(order), dtype=np.int64)
    world_ranks[order] = np.arange(len(order))
    world = World(
        np.array([BAND.p, BAND.p, 1 - 2 * BAND.p]),
        np.tile(on, (3, 1)),
        np.tile(off, (3, 1)),
        world_ranks.reshape(3, -1),
    )
    hit = np.zeros((1, len(order)))
    hit[0, world_ranks[: used.sum()][ranks[0] % 2 == 1]] = 1.0
    exact = exact_history_delta(world, law.pmf(np.arange(5)), BAND, [epsilon], first_from_prior=1, events=hit)[0]
    found = HistoryAttack(pair, law, BAND, 1).delta(epsilon, at)
    assert exact - 0.03 <= found <= exact + 1e-12


@pytest.mark.parametrize(
    "lines",
    [((1.0, 0.0), (0.5, -0.5), (1.0, 1.0)), ((0.0, 1.0), (-0.5, 0.5), (1.0, 1.0)), ((0.0,), (0.5, -0.5), (1.0, 1.0))],
)
def test_levels_that_are_no_ranks_are_refused(lines):
    with pytest.raises(ValueError, match="thresholds"):
        Thresholds(*lines)


@pytest.mark.slow
def test_it_comes_near_the_bound_of_a_search():
    """Shape 8, ten runs, the band (0.25, 8): the bound is 6.17, and one level alone shows 5.1."""
    pair = merged(dp_sgd_pair(0.71, 256 / 60_000, 2344, grid=5e-4), 0.2)
    found = HistoryAttack(pair, NegativeBinomial(8, mean=10), Band(0.25, 8), 1).epsilon(1e-5, 6.169)
    assert 5.5 < found < 6.169
