"""What the tests of the band hold it against: exact rational checks, a conic solver, and a zoo of instances."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np

from dphypo.band import KL, L2, Greedy, Mixed

PROJECTIONS = [L2(), KL(), Mixed(0.0), Mixed(0.05), Mixed(1.0), Mixed(1e4), Greedy()]
BANDS = [(0.75, 2.0), (0.5, 4.0), (0.995, 2.0), (0.01, 1.01), (1e-3, 1e3), (1 - 1e-6, 1 + 1e-6)]


def whole(x):
    """A float times 2^1080, exactly: a whole number."""
    numerator, denominator = float(x).as_integer_ratio()
    return (numerator << 1080) // denominator


def assert_in_band(masses, c, C, prior=None):
    """c p_i ≤ f_i ≤ C p_i in exact arithmetic, for p as given and as normalised, and the masses sum to one."""
    assert masses.dtype == np.float64
    assert abs(math.fsum(masses) - 1) <= 2.0**-40
    exact = [whole(f) for f in masses]
    given = [1] * len(exact) if prior is None else [whole(p) for p in prior]
    one = len(exact) if prior is None else whole(1)  # what ``given`` would sum to without its rounding
    low, high, total = whole(c), whole(C), sum(given)
    for f, p in zip(exact, given, strict=True):
        assert low * p <= f * one <= high * p or (prior is None and c == C == 1)  # 1/N is not always a float
        assert low * p * sum(exact) <= f * total * whole(1) <= high * p * sum(exact)


def zoo(size, seed=0):
    """Weights that break projections: flat, concentrated, tied, spread over all floats, at the ends of their range."""
    rng = np.random.default_rng(seed)
    one = np.zeros(size)
    one[size // 2] = 1.0
    return {
        "flat": np.ones(size),
        "uniform": rng.random(size),
        "lognormal": np.exp(rng.normal(size=size)),
        "heavy": np.exp(5 * rng.normal(size=size)),
        "one": one,
        "one of many": one + 1e-9,
        "half zero": np.where(np.arange(size) % 2, 0.0, rng.random(size)),
        "ties": rng.integers(0, 3, size) + (np.arange(size) == 0).astype(float),
        "all floats": 10.0 ** np.linspace(-300, 300, size),
        "huge": np.linspace(0.5, 1.0, size) * 1.7e308,
        "subnormal": np.arange(1, size + 1) * 5e-324,
        "one subnormal": one * 5e-324,
    }


def priors(size, seed=0):
    """Prior masses: none given, random, geometric, and some so small that their multiples are subnormal."""
    rng = np.random.default_rng(seed)
    random = rng.dirichlet(np.ones(size))
    geometric = 0.7 ** np.minimum(np.arange(size), 2000)
    tiny = np.where(np.arange(size) % 3 == 1, 1e-310, 1.0)
    return {"none": None, "random": random, "geometric": geometric / geometric.sum(), "tiny": tiny / tiny.sum()}


def objective(projection, target, masses, prior):
    """What a projection minimises."""
    with np.errstate(divide="ignore"):
        divergence = np.sum(target * np.log(target / masses, where=target > 0, out=np.zeros_like(target)))
    distance = math.sqrt(np.sum((masses - target) ** 2 / prior))
    match projection:
        case L2():
            return distance
        case KL():
            return divergence
        case Mixed(nu):
            return distance + nu * divergence
        case Greedy():
            return -float(masses @ (target / prior))


def solve(projection, target, c, C, prior):
    """The same problem by cvxpy with Clarabel, in the ratios f_i / p_i; None if it gives up."""
    ratios = cp.Variable(len(target))
    seen = target > 0
    divergence = cp.sum(cp.multiply(target[seen], np.log((target / prior)[seen]) - cp.log(ratios[seen])))
    distance = cp.norm(cp.multiply(np.sqrt(prior), ratios - target / prior))
    match projection:
        case L2():
            wanted = distance
        case KL():
            wanted = divergence
        case Mixed(nu):
            wanted = distance + nu * divergence
        case Greedy():
            wanted = -target @ ratios
    problem = cp.Problem(cp.Minimize(wanted), [ratios >= c, ratios <= C, prior @ ratios == 1])
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return np.asarray(ratios.value) * prior if problem.status == cp.OPTIMAL else None
