"""The laws of T against their definitions in mpmath: γ and mean to the last bit, log_g to 1e-12, quantiles exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate

import mpmath as mp
import numpy as np
import pytest
from flint import ctx
from support import laws_reference as reference

from dphypo.laws import Geometric, Logarithmic, NegativeBinomial, Pmf, Poisson
from dphypo.laws.negative_binomial import log_gamma_ratio
from dphypo.laws.poisson import log_poisson_pmf

V = (0.0, 1e-300, 1e-12, 1e-5, 0.01, 0.5, 0.999)


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    with mp.workdps(40):
        yield


def off(value: float, truth: mp.mpf) -> float:
    """The error of a logarithm: absolute, or in units of 1e-3 of a large value's size."""
    return float(abs(mp.mpf(float(value)) - truth) / max(1, abs(truth) / 1000))


def log_tail(law: NegativeBinomial, k: int) -> float:
    with ctx.workprec(128):
        return float(law.survival(k).log())


@pytest.mark.parametrize("shape", [*reference.SHAPES, -1e-300, 5e-324, 1e6])
@pytest.mark.parametrize("mean", [1 + 2**-52, 1 + 1e-9, *reference.MEANS])
def test_gamma_is_the_largest_float_that_reaches_the_mean(shape: float, mean: float) -> None:
    law = NegativeBinomial(shape, mean=mean)
    with mp.workprec(2500):
        assert reference.mean(shape, law.gamma) >= mean
        above = math.nextafter(law.gamma, 1)
        assert above == 1 or reference.mean(shape, above) < mean


@pytest.mark.parametrize("shape", reference.SHAPES)
@pytest.mark.parametrize("gamma", [1 - 2**-53, 0.9, 0.25, 0.01, 1e-6, 1e-60, 1e-300])
def test_mean_is_the_smallest_float_not_below_the_mean(shape: float, gamma: float) -> None:
    mean = NegativeBinomial(shape, gamma=gamma).mean
    with mp.workprec(2500):
        truth = reference.mean(shape, gamma)
        tie = 1 + mp.mpf(2) ** -2000  # a mean that is a float is met exactly
        assert math.nextafter(mean, 0) < truth <= mean * tie


def test_ties_are_met() -> None:
    assert NegativeBinomial(0.5, mean=3).gamma == 0.25  # θ(1−γ)/(γ(1−γ^θ)) = 3 exactly
    assert NegativeBinomial(0.5, gamma=0.25).mean == 3.0
    assert [Geometric(mean=2.0**k).gamma for k in range(1, 20)] == [2.0**-k for k in range(1, 20)]


@pytest.mark.parametrize("shape", reference.SHAPES)
@pytest.mark.parametrize("mean", [1 + 1e-9, *reference.MEANS])
def test_uncut(shape: float, mean: float) -> None:
    mp.mp.dps = 100  # γ may be 1e-60, and 1 − γ is taken
    law = NegativeBinomial(shape, mean=mean)
    m, gamma = reference.mean(shape, law.gamma), mp.mpf(law.gamma)
    for v in V:
        truth = mp.log(m) - (shape + 1) * mp.log1p((1 - gamma) / gamma * mp.mpf(v))
        assert off(law.log_g(v), truth) < 1e-13
        x = 1 - v
        exact = 1 - (1 - gamma) * mp.mpf(x)
        assert off(law.log_pgf_derivative(x), mp.log(m) - (shape + 1) * mp.log(exact / gamma)) < 1e-13
        pgf = mp.log(exact) / mp.log(gamma) if shape == 0 else (exact**-shape - 1) / (gamma**-shape - 1)
        assert law.pgf(x) == pytest.approx(float(pgf), rel=1e-12)
    for k in (1, 2, 3, 15, 16, 17, 100, 10**4, 10**6, 10**7):
        truth = mp.log(m) + (shape + 1) * mp.log(gamma) + (k - 1) * mp.log1p(-gamma)
        truth += mp.loggamma(k + mp.mpf(shape)) - mp.loggamma(1 + mp.mpf(shape)) - mp.loggamma(k + 1)
        assert off(law.log_pmf(np.array([float(k)]))[0], truth) < 3e-13


@pytest.mark.parametrize("shape", [999.0, 1001.0, 1e4, 1e6])
@pytest.mark.parametrize("mean", [1.01, 2.0, 30.0, 1000.0, 5000.0])
def test_masses_of_concentrated_laws(shape: float, mean: float) -> None:
    """Theorems 4′ and H allow for a relative error of 1e-11."""
    law = NegativeBinomial(shape, mean=mean)
    ks = np.unique([law.quantile(q) for q in (1e-9, 0.001, 0.5, 0.999, 1 - 1e-9)])
    theta, gamma = mp.mpf(shape), mp.mpf(law.gamma)
    for k, mass in zip(ks.tolist(), law.pmf(ks), strict=True):
        log = mp.loggamma(k + theta) - mp.loggamma(theta) - mp.loggamma(k + 1) + k * mp.log1p(-gamma)
        truth = mp.exp(log) / mp.expm1(-theta * mp.log(gamma))
        assert abs(mp.mpf(float(mass)) / truth - 1) < (4e-12 if shape < 1000 else 2e-13)


@pytest.mark.parametrize("shape", reference.SHAPES)
@pytest.mark.parametrize("mean", [1.01, 30.0, 1e6])
def test_a_cap_lists_the_law_given_that_it_holds(shape: float, mean: float) -> None:
    law = NegativeBinomial(shape, mean=mean)
    p = reference.masses(shape, law.gamma, 700)
    for limit in (1, 7, 66, 160, 700):
        cut, total = law.capped(limit), mp.fsum(p[:limit])
        assert sum(mass for _, mass in cut.probabilities) == 1
        for k in (1, limit // 2 + 1, limit):
            assert cut.pmf(k) == pytest.approx(float(p[k - 1] / total), rel=1e-11, abs=2.0**-59)
        assert cut.pmf(limit + 1) == 0


@pytest.mark.parametrize("mu", [0.01, 3.0, 40.0, 1000.0])
def test_a_cap_of_poisson_keeps_the_chance_of_no_run(mu: float) -> None:
    p = reference.poisson_masses(mu, 1300)
    for limit in (1, 5, 33, 700, 1010, 1290):
        cut, total = Poisson(mu).capped(limit), mp.fsum(p[: limit + 1])
        for k in (0, limit // 2, limit):
            assert cut.pmf(k) == pytest.approx(float(p[k] / total), rel=1e-11, abs=2.0**-59)


def _terms(k: int, z: mp.mpf, ratio: object, step: int) -> Iterator[mp.mpf]:
    term = mp.exp(k * mp.log(z) - z - mp.loggamma(k + 1))
    first = term
    while term > first * mp.mpf(10) ** -25 and k >= 0:
        yield term
        term *= ratio(k)  # type: ignore[operator]
        k += step


def test_quantiles_by_counting() -> None:
    laws = [NegativeBinomial(s, mean=m) for s in (-0.9, 0.0, 1.0, 8.0) for m in (1.01, 30.0)]
    for law in [*laws, *(law.capped(20) for law in laws), Poisson(0.3), Poisson(30), Poisson(30).capped(20)]:
        if isinstance(law, Poisson):
            p = reference.poisson_masses(law.mean, 300)
        elif isinstance(law, NegativeBinomial):
            p = [mp.mpf(0), *reference.masses(law.shape, law.gamma, 4000)]
        else:
            p = [mp.mpf(float(mass)) for mass in law.pmf(np.arange(30))]
        head = list(accumulate(p))
        for q in (1e-12, 1e-3, 0.3, 0.5, 0.9, 0.999, 1 - 1e-6):
            if head[-1] > q + 1e-14:
                assert law.quantile(q) == next(k for k, mass in enumerate(head) if mass >= q), (law, q)


@pytest.mark.slow
@pytest.mark.parametrize("q", [1e-12, 0.01, 0.5, 0.99, 1 - 1e-12])
def test_quantiles_of_large_means(q: float) -> None:
    geometric = Geometric(mean=1e6)
    assert geometric.quantile(q) == math.ceil(mp.log1p(-mp.mpf(q)) / mp.log1p(-mp.mpf(geometric.gamma)))
    concentrated = NegativeBinomial(50, mean=1e6)
    k, empty = concentrated.quantile(q), mp.mpf(concentrated.gamma) ** 50

    def reached(k: int) -> bool:
        return (mp.betainc(50, k + 1, 0, mp.mpf(concentrated.gamma), regularized=True) - empty) / (1 - empty) >= q

    assert reached(k)
    assert not reached(k - 1)
    poisson = Poisson(1e6)
    k = poisson.quantile(q)
    down = mp.fsum(_terms(k, mp.mpf(10) ** 6, lambda j: j / mp.mpf(10) ** 6, -1)) if k < 10**6 else None
    if down is not None:
        assert down >= q > down - mp.exp(float(log_poisson_pmf(k, 1e6)))
    else:
        up = mp.fsum(_terms(k + 1, mp.mpf(10) ** 6, lambda j: mp.mpf(10) ** 6 / (j + 1), 1))
        assert up <= 1 - mp.mpf(q) < up + mp.exp(float(log_poisson_pmf(k, 1e6)))


def test_quantile_of_a_heavy_tail() -> None:
    """θ < 0 and θ = 0, where P[T > k] is Γ(k+1+θ)/(k! Γ(θ+1)) · mγ/(1−γ) · B_{1−γ}(k+1, θ), by mpmath's 2F1."""
    for law in (NegativeBinomial(-0.5, mean=1e4), Logarithmic(mean=1e5)):
        theta, g = mp.mpf(law.shape), mp.mpf(law.gamma)
        for q in (0.9, 1 - 1e-12):
            k = law.quantile(q)

            def tail(k: int, theta: mp.mpf = theta, g: mp.mpf = g, law: NegativeBinomial = law) -> mp.mpf:
                first = mp.exp(mp.loggamma(k + 1 + theta) - mp.loggamma(k + 2) - mp.loggamma(1 + theta))
                first *= reference.mean(law.shape, law.gamma) * g ** (theta + 1) * (1 - g) ** k
                return first * mp.hyp2f1(1, k + 1 + theta, k + 2, 1 - g)

            assert tail(k) <= 1 - mp.mpf(q) < tail(k - 1)


def test_pmf_law_far_from_one() -> None:
    law = Pmf({1: 0.5, 10**6: 0.5})
    for v in V:
        x = 1 - mp.mpf(v)
        assert off(law.log_g(v), mp.log(mp.mpf(0.5) + mp.mpf(5e5) * x ** (10**6 - 1))) < 1e-12


def test_log_gamma_ratio() -> None:
    for z in (0.3, 1.0, 15.0, 16.0, 17.0, 1e3, 1e9):
        for d in (-0.29, 0.0, 1e-9, 0.5, 49.0):
            truth = mp.loggamma(mp.mpf(z) + mp.mpf(d)) - mp.loggamma(mp.mpf(z))
            assert off(float(log_gamma_ratio(z, d)), truth) < 3e-13
