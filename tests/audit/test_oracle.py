"""No bound ever lies below the exact δ of a small world; bounds that are broken on purpose do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import logsumexp
from support.oracle import World, exact_delta, extreme_points
from support.slow import mostly_slow
from support.worlds import BANDS, attacked_world, pmf_of, random_law, random_world

from dphypo.accounting.profiles import Curve, supremum
from dphypo.accounting.theorems import lemma2, phi, theorem4_profile
from dphypo.accounting.theorems.theorem3_renyi import renyi
from dphypo.accounting.theorems.theorem4_profile import SearchProfile
from dphypo.band import Band
from dphypo.laws import Geometric, Law, Pmf, Poisson

EPSILONS = np.array([-3.0, -1.0, -0.2, 0.0, 0.2, 0.7, 1.5, 3.0, 5.0, 8.0, 12.0])
ORDERS = np.array([1.1, 1.5, 2.0, 3.0, 5.0, 9.0, 20.0, 60.0])


def search_of(world: World, law: Law, band: Band) -> SearchProfile:
    forward, reverse = world.profiles
    return SearchProfile(supremum(forward), supremum(reverse), law, band)


def shortfall(world: World, law: Law, band: Band) -> float:
    """By how much the exact δ exceeds the profile bound, relative to δ (negative or zero for a valid bound)."""
    exact = exact_delta(world, pmf_of(law), band, EPSILONS)
    bound = search_of(world, law, band).delta(EPSILONS)
    return float(np.max((exact - bound - 1e-13) / np.maximum(exact, 1e-13)))  # the oracle itself rounds


def worlds(seed: int, count: int):
    rng = np.random.default_rng(seed)
    for i in range(count):
        band = BANDS[i % len(BANDS)]
        make = attacked_world if i % 2 else random_world
        yield make(rng, band), random_law(rng), band


def check_many(seed: int, count: int) -> None:
    for i, (world, law, band) in enumerate(worlds(seed, count)):
        assert shortfall(world, law, band) <= 1e-9, (seed, i, law, band)


def test_the_profile_bound_holds_on_small_worlds():
    check_many(seed=1, count=10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_the_profile_bound_holds_on_thousands_of_small_worlds(seed):
    check_many(seed, count=400)


def divergences(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """D_α(p‖q) at every order."""
    if ((p > 0) & (q == 0)).any():
        return np.full(len(ORDERS), np.inf)
    used = p > 0
    terms = ORDERS[:, None] * np.log(p[used]) - (ORDERS[:, None] - 1) * np.log(q[used])
    return logsumexp(terms, axis=1) / (ORDERS - 1)


def test_the_renyi_bounds_hold_on_small_worlds():
    """Theorems 3 and 3b, through the δ that their curve implies."""
    checked = 0
    for world, law, band in worlds(seed=3, count=40):
        curve = np.max([divergences(p, q) for p, q in zip(world.runs_on, world.runs_on_neighbour, strict=True)], axis=0)
        if not np.isfinite(curve).all():
            continue
        search = search_of(world, law, band)
        bound = renyi(Curve(ORDERS, np.maximum(curve, 0.0)), search.phi, band, float(law.pgf(0.0)))
        if not np.isfinite(bound.epsilons).any():
            continue  # a law with P[T = 1] = 0 can have an infinite ratio g(v)/g(τ(v))
        epsilons = EPSILONS[EPSILONS >= 0]
        exact = exact_delta(world, pmf_of(law), band, epsilons)
        assert (bound.delta(epsilons) >= exact - 1e-12).all()
        checked += 1
    assert checked > 20


# Deliberately broken bounds. Each must be caught on the worlds that the valid bound survives.


def without_log_ratio(band: Band) -> list[tuple[float, float]]:
    return [(weight, 0.0) for weight, _ in lemma2.transform(band)]


def without_mean(runs: Law, tau: lemma2.Tau) -> phi.Phi:
    valid = phi.phi(runs, tau)
    return phi.Phi(valid.weights / runs.mean, valid.shifts, valid.cells)


class UniformTau(lemma2.Tau):
    def __init__(self, reverse, band, forward=None):
        super().__init__(reverse, Band(1, 1), forward)


class BoldComplement(lemma2.Tau):
    """1 − τ(v) as if the probability that is missing could not be hidden: x in place of (x − Δ)/r."""

    def complement(self, x):
        return np.asarray(x)


def at_grid_points(first, second, tau, points):
    log_g, log_g_tau = phi._log_g(first, second, tau, points)
    return log_g[:-1], log_g_tau[:-1], np.zeros(len(points) - 1)


def coarse_points(first, second, tau, points):
    coarse = np.concatenate([[-np.inf], np.log(2 * np.geomspace(1e-6, 0.5, 12)), [np.inf]])
    return at_grid_points(first, second, tau, coarse)


class SwappedSearch(SearchProfile):
    def __init__(self, forward, reverse, runs, band):
        super().__init__(reverse, forward, runs, band)


class ForgetsNothing(SearchProfile):
    def delta(self, epsilon):
        eps = np.asarray(epsilon)
        return super().delta(eps) - float(self.runs.pgf(0.0)) * -np.expm1(np.minimum(eps, 0.0))


MUTANTS = {
    "L dropped": (theorem4_profile, "transform", without_log_ratio),
    "E[T] dropped": (theorem4_profile, "phi", without_mean),
    "τ without adaptivity": (theorem4_profile, "Tau", UniformTau),
    "directions exchanged": (None, "SearchProfile", SwappedSearch),
    "grid points instead of cells": (phi, "_lines", coarse_points),
    "complement too large": (theorem4_profile, "Tau", BoldComplement),
    "T = 0 forgotten": (None, "SearchProfile", ForgetsNothing),
}


@pytest.mark.parametrize("name", mostly_slow(MUTANTS, 2))
def test_the_oracle_catches_a_broken_bound(name, monkeypatch):
    module, attribute, broken = MUTANTS[name]
    monkeypatch.setitem(globals() if module is None else vars(module), attribute, broken)
    assert any(shortfall(*case) > 0.01 for case in worlds(seed=1, count=60))


def test_tau_is_that_of_the_other_direction():
    """A rare top outcome on D that is common on D′: forward losses are at most log 2, the other direction's log 500."""
    world = World(np.array([1.0]), np.array([[0.999, 0.001]]), np.array([[0.5, 0.5]]), np.array([[0, 1]]))
    assert shortfall(world, Geometric(mean=10).capped(60), Band(1, 1)) <= 1e-9


def test_the_oracle_agrees_with_a_closed_form():
    """Uniform search over one λ: the winner is in the top j ranks with probability 1 − f(P[below])."""
    on, off = np.array([[0.5, 0.3, 0.2]]), np.array([[0.2, 0.3, 0.5]])
    world = World(np.array([1.0]), on, off, np.array([[0, 1, 2]]))
    law = Geometric(mean=5).capped(60)
    found = exact_delta(world, pmf_of(law), Band(1, 1), [0.0])
    f = law.pgf
    top = lambda run, lowest: float(f(run[:lowest].sum()))  # noqa: E731
    a = np.diff([0.0, top(on[0], 1), top(on[0], 2), 1.0])
    b = np.diff([0.0, top(off[0], 1), top(off[0], 2), 1.0])
    np.testing.assert_allclose(found, np.maximum(a - b, 0).sum(), rtol=1e-9)


def test_extreme_points_are_in_the_band_and_sum_to_one():
    prior, band = np.array([0.2, 0.3, 0.5]), Band(0.75, 2)
    points = extreme_points(prior, band)
    np.testing.assert_allclose(points.sum(axis=1), 1.0)
    assert (points >= band.c * prior - 1e-12).all()
    assert (points <= band.C * prior + 1e-12).all()
    assert len(points) >= 3


def test_lemma_2_is_the_search_with_one_run():
    """T ≡ 1: the bound is Δ of the run's theorem4_profile, and the oracle reaches it when the prior has mass p."""
    band = Band(0.75, 2)
    prior = np.array([band.p, band.p, 1 - 2 * band.p])
    run, neighbour = np.array([0.7, 0.3]), np.array([0.3, 0.7])
    world = World(prior, np.tile(run, (3, 1)), np.tile(neighbour, (3, 1)), np.arange(6).reshape(3, 2))
    law = Pmf({1: 1.0})
    epsilons = np.array([0.0, 0.3, 0.9, 1.4])
    exact = exact_delta(world, pmf_of(law), band, epsilons)
    bound = search_of(world, law, band).delta(epsilons)
    np.testing.assert_allclose(bound, exact, rtol=0, atol=2e-3)
    assert (bound >= exact - 1e-12).all()


def test_a_poisson_search_reveals_that_it_ran_nothing_only_below_zero():
    world = World(np.array([1.0]), np.array([[0.9, 0.1]]), np.array([[0.1, 0.9]]), np.array([[0, 1]]))
    law = Poisson(2.0).capped(30)
    assert math.isclose(float(law.pgf(0.0)), float(law.pmf(0)))
    assert shortfall(world, law, Band(1, 1)) <= 1e-9


def test_a_search_that_mostly_runs_nothing_says_so_below_zero():
    """T = 0 shows nothing, and has nearly all the probability: at ε < 0, which composition asks for, it must count."""
    world = World(np.array([1.0]), np.array([[0.9, 0.1]]), np.array([[0.1, 0.9]]), np.array([[0, 1]]))
    assert shortfall(world, Pmf({0: 0.75, 1: 0.25}), Band(1, 1)) <= 1e-9
