"""Exact sampling, part two: draws against their law, two-sided, with mutants that must be caught.

Each test of a correct sampler has a false-alarm rate of at most 1e-6 over the choice of its seed; the seeds are fixed,
so that the suite repeats itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import special
from support.law_conformance import check_draws
from support.slow import mostly_slow

from dphypo.entropy import SYSTEM, Seeded
from dphypo.laws import Geometric, Law, Logarithmic, NegativeBinomial, Pmf, Poisson


def chi_square(law: Law, drawn: list[int], bins: int = 16) -> float:
    """The p-value of Pearson's test on bins between quantiles, each with at least 25 draws expected."""
    edges = sorted({law.quantile(i / bins) for i in range(1, bins)})
    head = np.array([law.pmf(np.arange(edge + 1)).sum() for edge in edges])
    p = np.diff([0.0, *head, 1.0])
    counts = np.bincount(np.searchsorted(edges, drawn, side="left"), minlength=len(p))
    merged: list[list[float]] = [[0.0, 0.0]]
    for mass, count in zip(p, counts, strict=True):
        merged[-1][0] += mass * len(drawn)
        merged[-1][1] += count
        if merged[-1][0] >= 25:
            merged.append([0.0, 0.0])
    rest = merged.pop()
    if not merged:
        return 1.0
    merged[-1] = [merged[-1][0] + rest[0], merged[-1][1] + rest[1]]
    if len(merged) == 1:
        return 1.0
    expected, seen = np.array(merged).T
    return float(special.chdtrc(len(expected) - 1, ((seen - expected) ** 2 / expected).sum()))


def deviations(law: NegativeBinomial | Poisson, drawn: list[int]) -> float:
    """How many standard errors the mean of the draws is off; E[T(T−1)] = f″(1) is in closed form."""
    if isinstance(law, Poisson):
        variance = law.mean
    else:
        variance = law.mean * (law.shape + 1) * (1 - law.gamma) / law.gamma + law.mean - law.mean**2
    return (float(np.mean(drawn)) - law.mean) / math.sqrt(variance / len(drawn))


# Parameters at which a γ (or μ) that is off by a tenth shows in the given number of draws.
CASES = [
    pytest.param(Geometric(mean=100), 16000, marks=pytest.mark.slow),
    pytest.param(Geometric(mean=1e6), 16000, marks=pytest.mark.slow),
    (Logarithmic(gamma=0.9), 5000),
    pytest.param(NegativeBinomial(-0.5, gamma=0.9), 8000, marks=pytest.mark.slow),
    (NegativeBinomial(8, mean=20), 4000),
    pytest.param(NegativeBinomial(50, mean=1e6), 800, marks=pytest.mark.slow),
    (Poisson(10), 4000),
    pytest.param(Poisson(1e6), 400, marks=pytest.mark.slow),
]


def off_by_a_tenth(law: NegativeBinomial | Poisson, factor: float) -> NegativeBinomial | Poisson:
    if isinstance(law, Poisson):
        return Poisson(law.mean * factor)
    return NegativeBinomial(law.shape, gamma=law.gamma * factor)


@pytest.mark.parametrize(("law", "draws"), CASES, ids=repr)
def test_draws_and_mutants(law: NegativeBinomial | Poisson, draws: int) -> None:
    drawn = [law.sample(Seeded(20).child(str(i))) for i in range(draws)]
    check_draws(law, iter_of(drawn), draws, SYSTEM)
    if law.quantile(0.95) < 10**5:
        assert chi_square(law, drawn) > 1e-6
    assert abs(deviations(law, drawn)) < 6  # heavier than normal tails included: 2e-9 if normal
    # The same draws must be rejected as draws from a law whose γ is off by a tenth, either way.
    for factor in (0.9, 1.1):
        with pytest.raises(AssertionError, match="the average of"):
            check_draws(off_by_a_tenth(law, factor), iter_of(drawn), draws, SYSTEM)


def iter_of(drawn: list[int]) -> Callable[[object], int]:
    """A sampler that hands out draws already made."""
    rest = iter(drawn)
    return lambda _: next(rest)


@pytest.mark.parametrize(
    "law",
    mostly_slow(
        [
            NegativeBinomial(0.5, mean=30),
            NegativeBinomial(2, mean=1.01),
            Geometric(mean=1 + 1e-9),
            Poisson(0.01),
            Geometric(mean=1e6).capped(40),
            Geometric(mean=100).capped(150),
            NegativeBinomial(-0.5, mean=30).capped(100),
            Poisson(5).capped(4),
            Pmf({0: 0.125, 3: 0.5, 10**9: 0.375}),
            Poisson(1e6).capped(100),
            NegativeBinomial(50, mean=1e6).capped(10),
            NegativeBinomial(-0.9, mean=1e6),
            Logarithmic(mean=1e6),
        ],
        9,
    ),
    ids=repr,
)
def test_draws(law: Law) -> None:
    drawn = [law.sample(Seeded(21).child(str(i))) for i in range(1500)]
    check_draws(law, iter_of(drawn), len(drawn), SYSTEM)
    if law.quantile(0.95) < 10**5:
        assert chi_square(law, drawn) > 1e-6


@pytest.mark.slow
def test_a_logarithmic_law_off_by_a_tenth_is_caught() -> None:
    law, entropy = Logarithmic(gamma=0.01), Seeded(22)
    drawn = [law.sample(entropy) for _ in range(150_000)]
    check_draws(law, iter_of(drawn), len(drawn), SYSTEM)
    for factor in (0.9, 1.1):
        with pytest.raises(AssertionError, match="the average of"):
            check_draws(off_by_a_tenth(law, factor), iter_of(drawn), len(drawn), SYSTEM)


@pytest.mark.slow
def test_a_sampler_that_loses_the_tail_is_caught() -> None:
    law = Geometric(mean=100)
    with pytest.raises(AssertionError, match="the average of"):
        check_draws(law, lambda entropy: min(law.sample(entropy), 120), 6000, Seeded(23))


@pytest.mark.slow
def test_chi_square_rejects_what_it_should() -> None:
    law, other = Geometric(mean=100), Geometric(gamma=0.011)
    entropy = Seeded(24)
    assert chi_square(law, [other.sample(entropy) for _ in range(16000)]) < 1e-9


def test_exact_probabilities_of_a_finite_law() -> None:
    """All 2⁸ first bytes once each: a law in 256ths is met exactly."""

    class Byte:
        private = False

        def __init__(self, value: int) -> None:
            self.value = value

        def bytes(self, count: int) -> bytes:
            return bytes([self.value] * count)

        def child(self, label: str) -> Byte:
            return self

    law = Pmf({1: Fraction(3, 256), 2: Fraction(200, 256), 9: Fraction(53, 256)})
    drawn = [law.sample(Byte(value)) for value in range(256)]
    assert [drawn.count(k) for k in (1, 2, 9)] == [3, 200, 53]


def test_reproducible_and_private() -> None:
    law = NegativeBinomial(2, mean=50)
    assert [law.sample(Seeded(7)) for _ in range(3)] == [law.sample(Seeded(7))] * 3
    assert len({law.sample(SYSTEM) for _ in range(30)}) > 3


def test_a_huge_mean_is_sampled_in_the_time_of_a_small_one() -> None:
    """The point is that this ends at all: γ = 1e-100 allows no walk along the law."""
    assert Geometric(gamma=1e-100).sample(Seeded(8)) > 10**90
    assert NegativeBinomial(8, gamma=1e-100).sample(Seeded(8)) > 10**95
    assert NegativeBinomial(-0.5, gamma=1e-300).sample(Seeded(8)) >= 1
