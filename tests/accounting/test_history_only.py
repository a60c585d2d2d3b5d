"""Theorem H: a search whose policy sees only the history."""

from __future__ import annotations

import dp_accounting
import numpy as np
import pytest
from support import history_direct
from support.history_known import HistoryProfile
from support.slow import mostly_slow

from dphypo.accounting import account
from dphypo.accounting.one_run import describe
from dphypo.accounting.profiles import epsilon_for, randomised_response
from dphypo.accounting.theorems import theorem_h_history_only as theorem_h
from dphypo.accounting.theorems.lemma2 import corners
from dphypo.accounting.theorems.theorem4_profile import SearchProfile
from dphypo.accounting.theorems.theorem_h_history_only import Effort, Lattice, Payoff, Survivors, lattice_pair
from dphypo.band import Band
from dphypo.laws import Geometric, NegativeBinomial, Pmf, Poisson

DELTA = 1e-5
SHAPE_8 = NegativeBinomial(8, mean=10)


@pytest.fixture(scope="module")
def profiles():
    step = dp_accounting.PoissonSampledDpEvent(256 / 60_000, dp_accounting.GaussianDpEvent(0.71))
    event = dp_accounting.SelfComposedDpEvent(step, 2344)
    return describe([event], dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE).profiles


def epsilon(profiles, law, band, first=1, *, direction=0, **conditions):
    bound = HistoryProfile(
        profiles[direction], profiles[1 - direction], law, band, first_from_prior=first, **conditions
    )
    return epsilon_for(bound, DELTA)


@pytest.mark.parametrize(
    ("law", "band", "first", "published", "finer", "attack"),
    mostly_slow(
        [
            (SHAPE_8, Band(0.75, 2), 1, 4.689, 4.675, 4.39),
            (SHAPE_8, Band(0.25, 8), 1, 6.158, 6.141, 5.80),
            (SHAPE_8, Band(0.75, 2), 0, 4.707, 0.0, 0.0),
            (SHAPE_8, Band(0.5, 4), 1, 5.388, 5.369, 0.0),
            (Geometric(mean=10), Band(0.75, 2), 1, 4.340, 0.0, 0.0),
        ]
    ),
)
def test_the_published_figures(profiles, law, band, first, published, finer, attack):
    found = epsilon(profiles, law, band, first)
    assert found == pytest.approx(published, abs=0.03)
    assert found >= max(finer - 0.005, attack)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "band", "first", "published", "attack"),
    [
        (Geometric(mean=10), Band(0.5, 4), 1, 5.027, 0.0),
        (Geometric(mean=10), Band(0.25, 8), 1, 5.958, 5.74),
        (NegativeBinomial(8, mean=30), Band(0.75, 2), 0, 6.631, 6.06),
        (Geometric(mean=30), Band(0.75, 2), 0, 5.337, 0.0),
        (Geometric(mean=100), Band(0.75, 2), 0, 6.454, 0.0),
    ],
)
def test_more_published_figures(profiles, law, band, first, published, attack):
    found = epsilon(profiles, law, band, first)
    assert found == pytest.approx(published, abs=0.03)
    assert found >= attack


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "band", "found_once"),
    [(Poisson(30), Band(0.1, 20), 16.69), (Poisson(100), Band(0.75, 2), 22.44)],
)
def test_the_lattice_is_as_deep_as_many_runs_need(profiles, law, band, found_once):
    """At the first depth δ stays above 1e-4: there was no bound at δ = 1e-5."""
    found = epsilon(profiles, law, band)
    assert found == pytest.approx(found_once, abs=0.03)
    assert found < account_of(profiles, law, band)
    assert found > epsilon_for(SearchProfile(*profiles, law, Band(1, 1)), DELTA)


def account_of(profiles, law, band):
    """ε by Theorem 4, for a policy that knows the data."""
    return epsilon_for(SearchProfile(*profiles, law, band), DELTA)


@pytest.mark.slow
def test_a_lattice_that_begins_too_shallow_ends_near_the_same(profiles):
    deep, shallow = (epsilon(profiles, SHAPE_8, Band(0.5, 4), effort=Effort(depth=depth)) for depth in (14.0, 3.5))
    assert deep <= shallow < 1.03 * deep


@pytest.mark.slow
def test_the_other_direction_is_the_smaller_one(profiles):
    assert epsilon(profiles, SHAPE_8, Band(0.75, 2), direction=1) < epsilon(profiles, SHAPE_8, Band(0.75, 2))


@pytest.mark.parametrize(("law", "band"), [(SHAPE_8, Band(0.75, 2)), (Poisson(6), Band(0.5, 4))])
def test_points_that_are_left_out_change_nothing(monkeypatch, law, band):
    """The lattice ends where sums and payoffs are as good as 0: one that goes on gives the same bound."""
    step = dp_accounting.PoissonSampledDpEvent(0.0128, dp_accounting.GaussianDpEvent(3.0))
    run = describe([dp_accounting.SelfComposedDpEvent(step, 782)], dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    light = Effort(atoms=64, coarse_atoms=64, cells=24)
    bound = theorem_h.HistoryProfile(*run.profiles, law, band, effort=light)
    found, cells, pair = epsilon_for(bound, DELTA), bound.cells, bound._pair
    far = theorem_h.HistoryProfile(*run.profiles, law, band, effort=light)
    object.__setattr__(far, "_bottom", 14.0)
    object.__setattr__(far, "_reach", (14.0, 14.0))
    object.__setattr__(far, "_pair", pair)
    object.__setattr__(far, "cells", cells)
    monkeypatch.setattr(theorem_h, "_HIGHEST", 14.0)
    assert bound._lattice(pair, bound._bottom).count < far._lattice(pair, 14.0).count / 2
    assert found == pytest.approx(epsilon_for(far, DELTA), rel=1e-6)


def test_more_work_only_tightens(profiles):
    found = [
        epsilon(profiles, SHAPE_8, Band(0.5, 4), effort=Effort(atoms=atoms, coarse_atoms=64, cells=cells))
        for atoms, cells in ((64, 16), (128, 16), (128, 32))
    ]
    assert found[0] >= found[1] >= found[2]


def test_more_runs_from_the_prior_cost_less_and_a_policy_that_knows_t_costs_more(profiles):
    light = Effort(atoms=128, coarse_atoms=64, cells=24)
    ladder = [epsilon(profiles, SHAPE_8, Band(0.25, 8), first, effort=light) for first in (0, 1, 3, 5)]
    assert sorted(ladder, reverse=True) == ladder
    assert epsilon(profiles, SHAPE_8, Band(0.25, 8), 1, effort=light, knows_runs=True) > ladder[1]


@pytest.mark.parametrize("zeros", ["below", "above", "in some cells", "nowhere", "everywhere"])
def test_the_operator_adds_every_mass(profiles, zeros):
    """Blocks of zeros are left out of the products of matrices: the sums are those of the definition."""
    pair = lattice_pair(*profiles, 96)
    lattice = Lattice(pair.step, -150, 301)
    low = np.linspace(0.0, 0.9, 11)
    survivors = Survivors(pair, lattice, low, low + 0.05, low + 0.06)
    plus = np.random.default_rng(0).random((11, 2, 302))
    at = slice(0, 170) if zeros == "below" else slice(130, None) if zeros == "above" else slice(0, 0)
    plus[:, :, slice(0, None) if zeros == "everywhere" else at] = 0.0
    if zeros == "in some cells":
        plus[:9, :, :200] = 0.0
    up, _ = survivors(Payoff(plus, np.zeros((11, 2, 301))))
    shifted = np.arange(301)[:, None] + np.arange(pair.first, pair.last + 1)
    values = plus[:, :, np.where(shifted >= 301, 301, np.maximum(shifted, 0))]
    wanted = np.einsum("cpsa,ca->cps", values, survivors.left_on) + pair.infinity * plus[:, :, -1:]
    np.testing.assert_allclose(up[..., :-1], wanted, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize(("band", "first"), [(Band(0.75, 2), 1), (Band(0.25, 8), 1), (Band(0.5, 4), 0)])
def test_a_policy_that_knows_t_costs_what_the_statement_says(profiles, band, first):
    """H-K computed a second time, case by case and without blocks, on the same pair and cells."""
    law, effort = NegativeBinomial(8, mean=5), Effort(atoms=96, coarse_atoms=96, cells=20, depth=16.0)
    bound = HistoryProfile(*profiles, law, band, first_from_prior=first, knows_runs=True, effort=effort)
    pair = lattice_pair(*profiles, 96)
    cells, pmf = bound.cells, law.pmf(np.arange(law.quantile(1 - 1e-10) + 1))
    reach = history_direct.tau(profiles[1], band, cells)
    at, found = history_direct.known(pair, pmf, corners(band), first, cells, reach, round(16.0 / pair.step))
    found = found + effort.tail
    inner = (found < 0.1) & (found > 1e-8)  # a larger one lies above the chord from (0, 1), which the package takes
    computed = bound.delta(at[inner])
    assert (computed >= found[inner] * (1 - 1e-5)).all()  # the second τ is an infimum over fewer lines
    np.testing.assert_allclose(computed, found[inner], rtol=1e-3)


@pytest.mark.slow
def test_a_policy_that_knows_t_costs_less_than_fixed_cells_say(profiles):
    """0.03 to 0.12 less than a first program found: its cells of v were fixed, and the bound feels their width."""
    band, law = Band(0.75, 2), SHAPE_8
    pair, pmf = lattice_pair(*profiles, 265), law.pmf(np.arange(law.quantile(1 - 1e-10) + 1))
    ladder = [epsilon(profiles, law, band, 1, knows_runs=True)]
    for count in (80, 40, 20):
        cells = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, count)])
        reach = history_direct.tau(profiles[1], band, cells)
        at, found = history_direct.known(pair, pmf, corners(band), 1, cells, reach, 200)
        ladder.append(float(at[np.argmax(found <= DELTA)]))
    assert ladder == sorted(ladder)
    assert ladder[0] == pytest.approx(4.908, abs=0.005)


@pytest.mark.slow
def test_the_curve_goes_on_to_where_nothing_is_gained():
    """Most of one direction is at its largest loss: a curve that ends a step too early ends at a large δ."""
    step = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(0.6))
    run = dp_accounting.SelfComposedDpEvent(step, 2)
    bounds = account(run, NegativeBinomial(8, mean=2), Band(0.75, 2), policy="history", first_from_prior=1).bounds(1e-5)
    assert bounds["history"] < bounds["prior start"] < bounds["profile"]


def test_one_run_is_lemma_2():
    """T ≡ 1: no history, so that the bound is the run's own profile if the run comes from the prior."""
    run = randomised_response(1.0)
    law, band = Pmf({1: 1.0}), Band(0.75, 2)
    epsilons = np.array([0.0, 0.25, 0.5, 1.0])
    first = HistoryProfile(run, run, law, band, first_from_prior=1)
    np.testing.assert_allclose(first.delta(epsilons), run.delta(epsilons), rtol=1e-4, atol=1e-8)
    free = HistoryProfile(run, run, law, band)
    aware = SearchProfile(run, run, law, band)
    assert (free.delta(epsilons) <= aware.delta(epsilons) * (1 + 1e-4)).all()


def test_it_is_a_profile(profiles):
    bound = HistoryProfile(*profiles, Poisson(4), Band(0.75, 2), effort=Effort(64, 64, 16))
    epsilons = np.linspace(-30.0, bound.top + 5.0, 500)
    found = bound.delta(epsilons)
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.diff(found) <= 1e-12).all()
    assert bound.delta(-40.0) == pytest.approx(1.0, abs=1e-9)
    x = np.exp(epsilons)
    middle = bound.delta(np.log((x[:-1] + x[1:]) / 2))
    assert (middle <= (found[:-1] + found[1:]) / 2 + 1e-9).all()


def test_a_search_that_may_run_nothing_says_so_below_zero():
    """T = 0 is an outcome that shows nothing; it counts at ε < 0, which composition asks for."""
    run = randomised_response(0.5)
    law = Pmf({0: 0.75, 1: 0.25})
    bound = HistoryProfile(run, run, law, Band(1, 1))
    assert bound.delta(-1.0) >= -np.expm1(-1.0) * 0.75 + 0.25 * float(run.delta(-1.0)) - 1e-12


@pytest.mark.slow
def test_losses_that_lie_close_get_a_coarser_pair_and_still_an_answer():
    """All losses of this run are below 0.1: a lattice of sums that reaches far would have ten thousands of points."""
    run = dp_accounting.LaplaceDpEvent(10.0)
    found = account(run, Geometric(mean=3), Band(0.5, 2), policy="history").bounds(1e-6)
    assert found["history"] < found["profile"]
