"""Each projection against its optimality conditions, a conic solver and closed forms; the root finder of all."""

from __future__ import annotations

import math
import warnings

import cvxpy as cp
import numpy as np
import pytest
from support.band_reference import BANDS, PROJECTIONS, assert_in_band, objective, priors, solve, zoo
from support.slow import mostly_slow

from dphypo.band import KL, L2, Band, Greedy, Mixed
from dphypo.band.projections import crossing

SIZES = [1, 2, 3, 24]
SPLIT = [pytest.param([1, 2, 3], marks=pytest.mark.slow, id="few cells"), pytest.param([24], id="24 cells")]


def cases(sizes=SIZES, bands=BANDS):
    """Every combination of band, prior and weights."""
    for c, C in bands:
        for size in sizes:
            for named, prior in priors(size).items():
                p = np.full(size, 1 / size) if prior is None else prior
                for weighed, weights in zoo(size).items():
                    yield f"({c}, {C}), {size} cells, {named}, {weighed}", c, C, weights, prior, p


def target_of(weights):
    target = weights / weights.max()
    return target / target.sum()


@pytest.mark.slow
@pytest.mark.parametrize("sizes", SPLIT)
@pytest.mark.parametrize("projection", mostly_slow(PROJECTIONS, 2), ids=repr)
def test_optimality_conditions_hold(projection, sizes):
    # With g the derivative of the objective, some λ lies above g on every cell that could give up mass and below g on
    # every cell that could take some, up to what a relative error of 1e-9 in the masses does to g.
    for case, c, C, weights, prior, p in cases(sizes):
        masses = Band(c, C).project(weights, prior, projection)
        assert_in_band(masses, c, C, prior)
        large = p >= 2.0**-100  # the others keep their prior mass and count for nothing
        target, f, q = target_of(weights)[large], masses[large], p[large]
        nu = projection.nu if isinstance(projection, Mixed) else 0.0
        norm = math.sqrt(np.sum((f - target) ** 2 / q)) if isinstance(projection, Mixed) else 1.0
        if norm < 1e-9:
            continue  # the target lies in the band
        if isinstance(projection, Greedy):
            scores = weights[large] / weights.max() / q
            gradient, slack = -scores, 1e-12 * scores  # cells may tie but for rounding
        elif isinstance(projection, KL):
            gradient, slack = -target / f, 1e-9 * target / f + 1e-100  # what is less counts as a trace
        else:
            gradient = (f - target) / (norm * q) - nu * target / f
            slack = 1e-9 * (np.maximum(f, target) / (norm * q) + nu * target / f)
        could_give, could_take = f > c * q * (1 + 1e-9), f < C * q * (1 - 1e-9)
        if could_give.any() and could_take.any():
            assert (gradient - slack)[could_give].max() <= (gradient + slack)[could_take].min(), case


@pytest.mark.slow
@pytest.mark.parametrize("projection", PROJECTIONS, ids=repr)
def test_no_worse_than_a_conic_solver(projection):
    solved = tried = 0
    every = list(cases(sizes=[3, 20], bands=BANDS[:3]))
    for case, c, C, weights, prior, p in every[PROJECTIONS.index(projection) :: 3]:
        if p.min() < 1e-30 or np.ptp(weights) > 1e200 or weights.max() < 1e-200:
            continue  # beyond the solver
        tried += 1
        target = target_of(weights)
        masses = Band(c, C).project(weights, prior, projection)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the solver's own doubts; the status says the same
                theirs = solve(projection, target, c, C, p)
        except cp.error.SolverError:
            continue
        if theirs is None:
            continue
        solved += 1
        size = max(1.0, getattr(projection, "nu", 0.0))
        ours, other = (objective(projection, target, f, p) for f in (masses, theirs))
        assert ours <= other + 1e-7 * size, case
        if isinstance(projection, (L2, Mixed)) and size == 1.0:  # the others may have many minimisers, or nearly so
            np.testing.assert_allclose(masses, theirs, atol=1e-4, err_msg=case)
    assert solved >= 0.6 * tried


def test_kl_is_also_the_nearest_in_the_other_direction():
    rng = np.random.default_rng(2)
    for _ in range(10):
        target, prior = rng.dirichlet(np.ones(12)), rng.dirichlet(np.ones(12))
        ratios = cp.Variable(12)
        divergence = cp.sum(cp.rel_entr(cp.multiply(prior, ratios), target))
        problem = cp.Problem(cp.Minimize(divergence), [ratios >= 0.5, ratios <= 3, prior @ ratios == 1])
        problem.solve(solver=cp.CLARABEL)
        np.testing.assert_allclose(Band(0.5, 3).project(target, prior, KL()), prior * ratios.value, atol=1e-5)


def test_mixed_without_penalty_is_l2_and_with_a_large_one_kl():
    band = Band(0.5, 3)
    rng = np.random.default_rng(3)
    weights, prior = rng.random(200) ** 4, rng.dirichlet(np.ones(200))
    l2, kl, none, large = (band.project(weights, prior, one) for one in (L2(), KL(), Mixed(0.0), Mixed(1e9)))
    np.testing.assert_allclose(none, l2, rtol=1e-12)
    np.testing.assert_allclose(large, kl, rtol=1e-6)


def test_greedy_closed_forms():
    band = Band(0.5, 2)  # a third of the prior mass can be at C
    np.testing.assert_allclose(band.project([1, 2, 3], projection=Greedy()), [1 / 6, 1 / 6, 2 / 3], rtol=1e-9)
    np.testing.assert_allclose(band.project([5, 5, 5], projection=Greedy()), [1 / 3, 1 / 3, 1 / 3], rtol=1e-9)
    # 0.25 at C, then 0.0833 of the 0.625 that tie: what is left goes to both in proportion to their prior masses.
    prior = np.array([0.125, 0.25, 0.5, 0.125])
    masses = band.project(prior * np.array([3, 9, 3, 1]), prior, Greedy())
    np.testing.assert_allclose(masses, [0.0875, 0.5, 0.35, 0.0625], rtol=1e-9)


def test_greedy_ranks_weights_by_density():
    band, prior = Band(0.5, 2), np.array([0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(band.project(prior, prior, Greedy()), prior, rtol=1e-9)
    masses = band.project(prior * np.array([4, 3, 2, 1]), prior, Greedy())
    np.testing.assert_allclose(masses, [0.2, 0.4, 0.2, 0.2], rtol=1e-9)


def test_kl_shares_what_is_left_among_cells_without_weight():
    masses = Band(0.5, 2).project([1, 0, 0], prior=[0.25, 0.5, 0.25], projection=KL())
    np.testing.assert_allclose(masses, [0.5, 1 / 3, 1 / 6], rtol=1e-9)


@pytest.mark.parametrize("nu", [-1.0, math.nan, math.inf])
def test_mixed_refuses_a_penalty_that_is_not_one(nu):
    with pytest.raises(ValueError, match="nu = "):
        Mixed(nu)


def count(evaluate):
    def counted(x):
        counted.calls += 1
        return evaluate(x)

    counted.calls = 0
    return counted


@pytest.mark.parametrize("root", [0.0, 1e-300, -1e-300, 5e-324, 1.0, -3.0, 1e300, -1.7e308])
@pytest.mark.parametrize("slope", [0.0, -1.0, 1e-9, 1e9, math.nan, math.inf])
def test_a_jump_is_found_to_the_last_float(root, slope):
    # The slope that is reported says nothing about the function, which is a step: halving alone has to find it.
    evaluate = count(lambda x: (1.0 if x >= root else -1.0, slope))
    x = crossing(evaluate, 0.5, -1.7976931348623157e308, 1.7976931348623157e308, 0.0)
    assert x < root <= math.nextafter(x, math.inf)
    assert evaluate.calls <= 300


def test_a_line_takes_one_step():
    evaluate = count(lambda x: (3.0 * (x - 0.25), 3.0))
    assert crossing(evaluate, 100.0, -1e6, 1e6, 0.0) == 0.25
    assert evaluate.calls == 2


def test_a_start_outside_is_brought_inside():
    assert crossing(lambda x: (x - 1.0, 1.0), 5.0, 0.0, 1.5, 0.0) == 1.0


def test_newton_that_circles_is_stopped():
    # On the cube root Newton's method jumps to −2x: each step is further from the root than the one before.
    evaluate = count(lambda x: (math.cbrt(x - 0.3), math.cbrt(x - 0.3) ** -2 / 3 if x != 0.3 else math.inf))
    assert crossing(evaluate, 0.9, -1.0, 1.0, 1e-9) == pytest.approx(0.3, abs=1e-15)
    assert evaluate.calls <= 140
