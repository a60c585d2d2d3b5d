"""Theorem H never lies below the exact δ of a small world under history-only policies; broken versions of it do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog
from support.history_known import HistoryProfile
from support.history_mutants import MUTANTS, NO_HULL
from support.history_oracle import exact_history_delta
from support.history_worlds import EPSILONS, Case, climb, deep_case, random_case
from support.oracle import World, exact_delta, extreme_points
from support.slow import mostly_slow

from dphypo.accounting.theorems import theorem_h_history_only
from dphypo.accounting.theorems.theorem_h_history_only import Lattice, Payoff, Survivors, lattice_pair, payoff
from dphypo.band import Band
from dphypo.laws import NegativeBinomial, Pmf, Poisson


def cases(seed: int, count: int, **options):
    rng = np.random.default_rng(seed)
    return [random_case(rng, **options) for _ in range(count)]


def check_many(seed: int, count: int, **options) -> None:
    for index, case in enumerate(cases(seed, count, **options)):
        for one in (case, case.swapped()):
            assert one.shortfall() <= 1e-9, (seed, index, one)


def test_the_bound_holds_on_small_worlds():
    check_many(seed=1, count=10)


def test_the_bound_holds_with_up_to_eight_runs():
    check_many(seed=2, count=4, most_runs=8)


SHARDS, IN_A_SHARD = range(100, 141), 250  # each world in both directions


@pytest.mark.slow
@pytest.mark.parametrize("seed", SHARDS)
def test_the_bound_holds_on_ten_thousand_worlds(seed):
    check_many(seed, count=IN_A_SHARD)


@pytest.mark.slow
def test_ten_thousand_of_the_worlds_are_different():
    """The smallest worlds are few: one in ten thousand comes twice."""
    found = {case.digest() for seed in SHARDS for case in cases(seed, IN_A_SHARD)}
    assert len(found) >= 10_000


def ratio(case: Case) -> float:
    exact, bound = case.exact(), case.bound(cells=20).delta(EPSILONS)
    return float(np.max(np.where(exact > 1e-7, exact / bound, 0.0)))


@pytest.mark.slow
def test_hill_climbing_finds_no_violation():
    rng = np.random.default_rng(7)
    assert climb(random_case(rng), ratio, rng, steps=40)[1] <= 1 + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_hill_climbing_finds_no_violation_from_many_starts(seed):
    rng = np.random.default_rng(seed)
    assert climb(random_case(rng), ratio, rng, steps=250)[1] <= 1 + 1e-9


def test_the_oracle_lies_below_the_one_for_policies_that_know_the_data():
    for case in cases(3, 30):
        aware = exact_delta(case.world, case.pmf(), case.band, EPSILONS, first_from_prior=case.first_from_prior)
        assert (case.exact() <= aware + 1e-12).all()


def test_without_a_band_both_oracles_agree():
    for case in cases(4, 10):
        found = exact_history_delta(case.world, case.pmf(), Band(1, 1), EPSILONS)
        np.testing.assert_allclose(found, exact_delta(case.world, case.pmf(), Band(1, 1), EPSILONS), atol=1e-12)


ON_RANDOM_WORLDS = (
    "kills from the upper tail",
    "cells the wrong way round",
    "only the middle corner",
    "negative part of the hull reversed",
    "infinite loss dropped",
    "directions exchanged",
    "largest T forgotten",
    "v = 0 only",
    "first run not from the prior",
    "kills only where forced",
)


def apply(monkeypatch, mutant) -> type[HistoryProfile]:
    if isinstance(mutant, tuple):
        monkeypatch.setattr(*mutant)
        return HistoryProfile
    return mutant


@pytest.mark.parametrize("name", mostly_slow(ON_RANDOM_WORLDS, 2))
def test_the_oracle_catches(name, monkeypatch):
    kind = apply(monkeypatch, MUTANTS[name])
    assert any(case.shortfall(kind=kind) > 1e-3 for case in cases(5, 150))


@pytest.mark.slow
def test_the_oracle_catches_edges_that_are_clipped_instead_of_absorbed(monkeypatch):
    """A lattice that is too short is safe as it is, and not if sums beyond its top count as the top."""
    few = cases(6, 40)
    assert max(case.shortfall(depth=0.5) for case in few) <= 1e-9
    monkeypatch.setattr(*MUTANTS["edges clipped instead of absorbed"])
    assert any(case.shortfall(depth=0.5) > 1e-3 for case in few)


@pytest.mark.slow
def test_the_bound_holds_where_sums_leave_the_lattice_and_it_is_made_deeper(monkeypatch):
    """In ten of these forty worlds the first lattice is too short to get below 0.9, and the deeper one is not."""
    rng, epsilons = np.random.default_rng(8), np.arange(0.0, 40.0, 2.5)
    worlds = [deep_case(rng) for _ in range(40)]
    deeper = [case.bound(depth=3.0).delta(epsilons) for case in worlds]
    monkeypatch.setattr(theorem_h_history_only, "_DEEPEST", 0.0)
    shallow = [case.bound(depth=3.0).delta(epsilons) for case in worlds]
    for case, found, before in zip(worlds, deeper, shallow, strict=True):
        exact = case.exact(epsilons)
        assert np.all(exact <= found + 1e-13 + 1e-9 * exact), case
        assert found[-1] <= before[-1]
    assert sum(found[-1] < 0.5 * before[-1] for found, before in zip(deeper, shallow, strict=True)) >= 8


def test_the_bound_holds_where_one_run_too_many_from_the_prior_would_show():
    """One of the worlds above: with the second run taken as from the prior, the bound is less than half the exact δ."""
    case = cases(5, 106)[-1]
    assert case.first_from_prior == 1
    assert case.shortfall() <= 1e-9
    assert case.shortfall(first_from_prior=2) > 0.5


def test_the_oracle_catches_a_visible_number_of_runs():
    """A world that hill climbing found."""
    p = np.array([0.3499320087587726, 0.6500679912412274])
    q = np.array([0.16529617667111998, 0.83470382332888])
    world = World(np.array([3 / 31, 28 / 31]), np.tile(p, (2, 1)), np.tile(q, (2, 1)), np.array([[1, 2], [0, 3]]))
    law = NegativeBinomial(8, mean=2.355387711).capped(2)
    case = Case(world, law, Band(0.25, 8), 0, True, 0.25)
    assert case.shortfall() <= 1e-9
    exact = case.exact()
    assert np.max(exact / case.bound(knows_runs=False).delta(EPSILONS)) > 1.1


def test_the_oracle_catches_a_winner_without_the_band(monkeypatch):
    """A world that hill climbing found."""
    on = np.array([[0.06287342785721291, 0.6652409557748219, 0.2718856163679652]])
    off = np.array([[0.17090769643719256, 0.09003057317038046, 0.739061730392427]])
    on, off = np.vstack([on, on[:, [1, 2, 0]]]), np.vstack([off, off[:, [1, 2, 0]]])
    world = World(np.array([28 / 31, 3 / 31]), on, off, np.array([[5, 0, 3], [2, 1, 4]]))
    case = Case(world, Poisson(2.184558468).capped(3), Band(0.25, 8), 0, False, 1.0)
    assert case.shortfall() <= 1e-9
    monkeypatch.setattr(*MUTANTS["winner without the band"])
    assert case.shortfall() > 0.1


def test_the_oracle_catches_finished_first_order():
    """Which results have arrived depends on how long runs take, and that on the data: the policy sees more than y.

    Here y says nothing (its loss is zero) and the duration of a run nearly all: a policy that sees which run came
    first steers by it, and the release of y alone tells the data sets apart.
    """
    y = np.array([0.5, 0.5])
    quick_on, quick_off = 0.9, 0.1
    on = np.concatenate([y * quick_on, y * (1 - quick_on)])
    off = np.concatenate([y * quick_off, y * (1 - quick_off)])
    prior, band, pmf = np.array([0.2, 0.8]), Band(0.75, 2), np.array([0.0, 0.0, 0.0, 1.0])
    ranks = np.array([[4, 6, 5, 7], [0, 2, 1, 3]])  # the first λ on top; equal y, quick or slow, next to each other
    world = World(prior, np.tile(on, (2, 1)), np.tile(off, (2, 1)), ranks)
    by_y = np.repeat(np.array(list(itertools.product([0.0, 1.0], repeat=4))), 2, axis=1)  # events of y and λ alone
    exact = exact_history_delta(world, pmf, band, [0.0], events=by_y)
    blind = World(prior, np.tile(y, (2, 1)), np.tile(y, (2, 1)), np.array([[2, 3], [0, 1]]))
    case = Case(blind, Pmf({3: 1.0}), band, 0, False, 0.5)
    claimed = case.bound().delta([0.0])
    assert exact_history_delta(blind, pmf, band, [0.0])[0] <= claimed[0] < 1e-6
    assert exact[0] > 0.05


# Parts of the theorem that small worlds hardly feel, each against an oracle of its own.


def kill_problem(rng):
    """A pair on a lattice, a cell of v, and a payoff that meets both monotonicities."""
    from support.history_worlds import lattice_run

    from dphypo.accounting.profiles import Discrete

    on, off = lattice_run(rng, 4, 0.5, 0.0)
    order = np.argsort(np.log(on / off))
    losses, at = np.unique(np.round(np.log(on / off)[order], 9), return_inverse=True)
    forward = Discrete(losses, np.bincount(at, on[order]), 0.0)
    back = Discrete(-losses[::-1], np.bincount(at, off[order])[::-1], 0.0)
    pair = lattice_pair(forward, back, round((forward.top + back.top) / 0.5))
    lattice = Lattice(pair.step, -12, 25)
    up, down = np.cumsum(rng.exponential(size=26))[None, None], np.sort(rng.exponential(size=25))[::-1][None, None]
    return pair, lattice, payoff(lattice, up / up.max(), down * rng.choice([0.3, 1.0]))


def largest_kill(pair, value: Payoff, lattice: Lattice, v: float, tau: float) -> np.ndarray:
    """sup over k with ∫k dP ≥ v and ∫k dQ ≤ τ of E_P[(1 − k) X(s + ℓ)], by linear programming, at inner s."""
    x = value.plus[0, 0, :-1] - np.exp(-lattice.sums) * value.minus[0, 0]
    found = np.full(lattice.count, np.nan)
    for i in range(-pair.first, lattice.count - pair.last):
        ahead = x[i + pair.first : i + pair.last + 1]
        solved = linprog(pair.on * ahead, A_ub=[-pair.on, pair.off], b_ub=[-v, tau], bounds=(0.0, 1.0))
        if solved.success:
            found[i] = pair.on @ ahead - solved.fun
    return found


def kill_shortfall(seed: int) -> float:
    """By how much the largest payoff after a kill exceeds what ``Survivors`` makes of it."""
    rng, worst = np.random.default_rng(seed), -np.inf
    for _ in range(12):
        pair, lattice, value = kill_problem(rng)
        v = float(rng.uniform(0.05, 0.8))
        tau = float(min(1.0, v + rng.uniform(0.05, 0.6)))
        low, high = np.array([v]), np.array([v])
        up, down = Survivors(pair, lattice, low, high, np.array([tau]))(value)
        computed = up[0, 0, :-1] - np.exp(-lattice.sums) * down[0, 0]
        exact = largest_kill(pair, value, lattice, v, tau)
        told = pair.infinity * value.plus[0, 0, -1]
        worst = max(worst, float(np.nanmax((exact + told - computed) / (1.0 + np.exp(-lattice.sums)))))
    return worst


def test_no_kill_beats_the_closed_form():
    assert kill_shortfall(1) <= 1e-9


@pytest.mark.parametrize(
    "name", mostly_slow(["kills without τ", "kills only where forced", "kills from the upper tail"])
)
def test_linear_programming_catches(name, monkeypatch):
    monkeypatch.setattr(*MUTANTS[name])
    assert kill_shortfall(1) > 1e-3


def tau_shortfall(kind: type[HistoryProfile]) -> float:
    """By how much some event is likelier on D′ than the τ of the bound allows."""
    worst = -np.inf
    for case in cases(8, 60):
        if case.band.C == 1:
            continue
        corners = extreme_points(case.world.prior, case.band)
        tau = case.bound(kind=kind)._tau
        for event in itertools.product([0.0, 1.0], repeat=case.world.ranks.size):
            chosen = np.array(event).reshape(case.world.ranks.shape)
            least = (corners @ (case.world.runs_on * chosen).sum(axis=1)).min()
            most = (corners @ (case.world.runs_on_neighbour * chosen).sum(axis=1)).max()
            worst = max(worst, most - float(tau(least)))
    return worst


def test_no_event_is_likelier_than_tau():
    assert tau_shortfall(HistoryProfile) <= 1e-9


@pytest.mark.parametrize("name", ["τ without the band", "τ from the wrong direction"])
def test_brute_force_over_events_catches(name, monkeypatch):
    assert tau_shortfall(apply(monkeypatch, MUTANTS[name])) > 1e-3


def hull_holds() -> bool:
    """What the proof needs of F⁺ and F⁻: they bound R, and both fall as v grows."""
    rng = np.random.default_rng(9)
    for _ in range(20):
        x = rng.normal(size=(6, 1, 9))
        value = Payoff(np.maximum(x, 0.0), np.maximum(-x, 0.0)[..., :-1])
        upper, lower = theorem_h_history_only._hull(value)
        bounds = (upper >= value.plus[:, 0]).all() and (lower <= value.minus[:, 0]).all()
        if not bounds or (np.diff(upper, axis=0) > 0).any() or (np.diff(lower, axis=0) > 0).any():
            return False
    return True


def test_the_hull_is_monotone_in_v():
    assert hull_holds()


@pytest.mark.parametrize(
    "name", ["positive part of the hull reversed", "negative part of the hull reversed", "no hull"]
)
def test_the_monotonicity_that_the_proof_needs_catches(name, monkeypatch):
    """No world was found whose δ exceeds the bound without the hull; the proof needs it all the same."""
    monkeypatch.setattr(*(NO_HULL if name == "no hull" else MUTANTS[name]))
    assert not hull_holds()


def test_every_mutant_is_named_by_a_test():
    by_other_means = {
        "edges clipped instead of absorbed",
        "T visible",
        "winner without the band",
        "kills without τ",
        "τ without the band",
        "τ from the wrong direction",
        "positive part of the hull reversed",
    }
    assert set(MUTANTS) == set(ON_RANDOM_WORLDS) | by_other_means
    assert theorem_h_history_only.ROUNDING < 1e-12
