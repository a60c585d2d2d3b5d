"""What docs/theory says is not covered really is not: the counterexamples, computed exactly."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from support.oracle import World, exact_delta

from dphypo.accounting import PureDp, account, dp_library
from dphypo.accounting.dp_library import to_pld
from dphypo.accounting.profiles import Discrete
from dphypo.accounting.theorems.theorem4_profile import SearchProfile
from dphypo.band import Band
from dphypo.laws import Geometric, Pmf

UNIFORM = Band(1, 1)


def randomised_response(epsilon: float) -> World:
    """One λ and two outcomes; the one that is likely on D ranks lower."""
    likely = 1 / (1 + math.exp(-epsilon))
    on, off = np.array([[likely, 1 - likely]]), np.array([[1 - likely, likely]])
    return World(np.array([1.0]), on, off, np.array([[0, 1]]))


def test_an_outage_that_takes_many_runs_is_not_covered_by_the_law_of_t():
    """The best of min(T, 5) is not the best of a geometric T: deaths that count as outcomes must be independent."""
    law = Geometric(mean=100)
    claimed = account(PureDp(1.0), law).epsilon(0.0)
    assert claimed < 3.0
    cut = np.array([float(law.pmf(k)) for k in range(6)])
    cut[5] = 1 - cut[:5].sum()
    delta = float(exact_delta(randomised_response(1.0), cut, UNIFORM, [3.0])[0])
    assert delta == pytest.approx(0.119, abs=5e-4)


@pytest.mark.parametrize("runs", [2, 5, 9])
def test_the_best_of_a_known_number_of_runs_costs_as_much_as_all_of_them(runs):
    """T ≡ k: ε is k times that of a run. So T is secret."""
    known = np.zeros(runs + 1)
    known[runs] = 1.0
    below, at = exact_delta(randomised_response(0.5), known, UNIFORM, [0.5 * runs - 1e-3, 0.5 * runs + 1e-9])
    assert below > 1e-12 >= at


def test_the_largest_probabilities_over_a_band_do_not_add_up():
    """P⁺(≤ y) = P⁺(< y) + P⁺(y) is false: the suprema are attained by different densities."""
    band, prior = Band(0.75, 2), 0.2  # two λ: the first, of mass 0.2, ends below y, the second at y
    largest = lambda mass: min(band.C * mass, 1 - band.c * (1 - mass))  # noqa: E731
    assert largest(prior) + largest(1 - prior) > 1.15


def test_a_count_is_private_under_replacement_until_a_record_changes_sides():
    """Publishing how many records a side has is 0-DP when a record of that side is replaced, and not under a split."""
    side = lambda record: record % 2  # noqa: E731
    records, replaced = [0, 1, 2, 3], [0, 1, 2, 4]  # one record replaced by another, which is on the other side
    assert sum(map(side, records)) != sum(map(side, replaced))


def losses(p: np.ndarray, q: np.ndarray) -> Discrete:
    rank = np.argsort(p / q)
    return Discrete(np.log(p / q)[rank], p[rank], 0.0)


def test_under_replacement_a_search_is_not_two_searches_one_for_training_and_one_for_scoring():
    """The exact δ of a search whose runs train and score exceeds the composition of a search for each part."""
    law = Pmf({1: 2 / 3, 2: 1 / 3})
    train = np.array([0.8848, 0.1152]), np.array([0.9985, 0.0015])
    score = np.array([0.538, 0.462]), np.array([0.8958, 0.1042])
    parts = []
    for p, q in (train, score):
        there, back = losses(p, q), losses(q, p)
        searches = [SearchProfile(there, back, law, UNIFORM), SearchProfile(back, there, law, UNIFORM)]
        parts.append(to_pld(searches, 2e-3))
    composed = dp_library.directions(parts[0].compose(parts[1]), 2)[0]
    on, off = (np.outer(train[i], score[i]).reshape(1, 4) for i in (0, 1))
    pmf = np.array([0.0, 2 / 3, 1 / 3])
    exact = max(
        float(exact_delta(World(np.array([1.0]), on, off, np.array([order])), pmf, UNIFORM, [3.5])[0])
        for order in itertools.permutations(range(4))
    )
    assert exact > 1.01 * float(composed.delta(3.5)) > 0.01
    # As one term, whose run is the product of both, it is covered.
    whole = SearchProfile(losses(on[0], off[0]), losses(off[0], on[0]), law, UNIFORM)
    assert float(whole.delta(3.5)) >= exact
