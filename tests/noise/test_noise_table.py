"""Thresholds against mpmath, and draws against the exact probabilities of a rounded Gaussian, far tails included."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from dphypo import noise
from dphypo.noise import Words
from dphypo.noise.tables import WORD, Table, magnitude, size_bound, tails

FALSE_ALARM = 1e-6
ALL = 2**128


class Given(Words):
    """Words that a test chooses."""

    def __init__(self, *words: int) -> None:
        super().__init__(bytes(16))
        self.words = list(words)

    def draw(self, count: int) -> np.ndarray:
        drawn, self.words = self.words[:count], self.words[count:]
        assert len(drawn) == count
        return np.array(drawn, dtype=np.uint64)


def exact_tail(place: int, sigma: float) -> mpmath.mpf:
    """P[N > place + ½], to sixty digits."""
    return mpmath.erfc((place + mpmath.mpf(1) / 2) / (mpmath.mpf(sigma) * mpmath.sqrt(2))) / 2


def thresholds(table: Table) -> list[int]:
    return [int(high) * WORD + int(low) for high, low in zip(table.high, table.low, strict=True)]


@pytest.mark.parametrize("sigma", [0.3, 1.0, 7.3, 64.0])
def test_every_threshold_is_the_exact_one_rounded(sigma):
    with mpmath.workdps(60):
        found = thresholds(Table.build(sigma))
        assert found == [int(mpmath.nint(ALL * exact_tail(place, sigma))) for place in range(len(found))]
        assert exact_tail(len(found) - 1, sigma) * ALL < 0.5
    assert len(found) <= size_bound(sigma) + 1


@pytest.mark.parametrize("place", [0, 1, 16_383, 60_000, 150_000, 213_000, 214_500])
def test_thresholds_of_the_engines_table(place):
    with mpmath.workdps(60):
        assert tails(place, 1, 2.0**14) == [int(mpmath.nint(ALL * exact_tail(place, 2.0**14)))]


def test_the_total_variation_is_at_most_the_slack():
    """Sum the differences of all probabilities, exactly, and the mass beyond the last threshold."""
    for sigma in (0.5, 3.0, 20.0):
        with mpmath.workdps(60):
            table = thresholds(Table.build(sigma))
            ours = [Fraction(table[j - 1] - table[j], ALL) for j in range(1, len(table))]
            theirs = [exact_tail(j - 1, sigma) - exact_tail(j, sigma) for j in range(1, len(table))]
            pairs = zip(ours, theirs, strict=True)
            off = sum(abs(mpmath.mpf(a.numerator) / a.denominator - b) for a, b in pairs) + exact_tail(
                len(table) - 1, sigma
            )
            middle = abs(mpmath.mpf(ALL - 2 * table[0]) / ALL - (1 - 2 * exact_tail(0, sigma)))
            variation = off + middle / 2
            assert 0 < variation <= noise.slack(1, sigma)
            assert variation > noise.slack(1, sigma) / 20  # and the slack is not far above it


def drawn_with(table: Table, whole: int, sign: int = -1) -> int:
    """The draw of one integer U of 127 bits."""
    first = whole >> 96
    bits = np.array([first if sign < 0 else ~first], dtype=np.int32)
    rest = whole % 2**96
    return int(table.draw(bits, Given(rest >> 32, (rest % 2**32) << 32))[0])


@pytest.mark.parametrize("sigma", [1.0, 50.0])
def test_the_search_is_lexicographic_at_every_threshold(sigma):
    """Just below a threshold and on it, with both signs; in the tail many thresholds share the high word."""
    table = Table.build(sigma)
    kept = thresholds(table)
    shared = sum(int(a) == int(b) for a, b in zip(table.high[:-1], table.high[1:], strict=True))
    assert shared > 3 * sigma
    for place in range(len(kept) - 1):
        for whole in {max(kept[place] - 1, 0), kept[place]}:
            wanted = sum(whole < threshold for threshold in kept)
            assert drawn_with(table, whole) == -wanted
            assert drawn_with(table, whole, +1) == wanted
            assert place % 20 or magnitude(whole, sigma) == wanted


def chi_square(drawn: np.ndarray, below: dict[int, float]) -> float:
    """The p-value of draws, given P[Z ≤ k] at some k; bins with fewer than ten expected are joined."""
    edges, total = sorted(below), len(drawn)
    shares = np.diff([0.0, *(below[edge] for edge in edges), 1.0]) * total
    counts = np.diff([0, *np.searchsorted(np.sort(drawn), np.array(edges) + 0.5), total])
    joined: list[list[float]] = [[0.0, 0.0]]
    for share, count in zip(shares, counts, strict=True):
        joined[-1][0] += share
        joined[-1][1] += count
        if joined[-1][0] >= 10:
            joined.append([0.0, 0.0])
    if joined[-1][0] < 10:
        last = joined.pop()
        joined[-1] = [joined[-1][0] + last[0], joined[-1][1] + last[1]]
    expected, found = np.array(joined).T
    assert len(expected) > 20
    return float(stats.chi2.sf(((found - expected) ** 2 / expected).sum(), len(expected) - 1))


@pytest.mark.parametrize("sigma", [3.7, 300.0, 2.0**12])
def test_draws_have_the_exact_probabilities(sigma):
    """False-alarm rate 1e-6 each."""
    drawn = noise.rounded_gaussian(sigma, noise.Words(b"a fixed key for chi-square tests"), 200_000)
    step = max(1, round(sigma / 20))
    edges = range(-round(4.5 * sigma), round(4.5 * sigma) + 1, step)
    below = {edge: float(stats.norm.cdf((edge + 0.5) / sigma)) for edge in edges}
    assert chi_square(drawn, below) > FALSE_ALARM


@pytest.mark.parametrize("bits", [40, *(pytest.param(bits, marks=pytest.mark.slow) for bits in (64, 80, 100))])
def test_the_far_tail_has_the_exact_probabilities(bits):
    """Given U < 2^(128 − bits), which has probability 2^(1 − bits): bits of that range, against the conditional law.

    From 64 bits on the high word is zero, and the low word alone decides. False-alarm rate 1e-6 each.
    """
    sigma, count = 60.0, 20_000
    table, words = noise.table(sigma), noise.Words(b"a fixed key for the far tail!!!!")
    width = 128 - bits
    wholes = [(int(a) * WORD + int(b)) >> bits for a, b in words.draw(2 * count).reshape(2, -1).T]
    drawn = np.array([drawn_with(table, whole) for whole in wholes])
    with mpmath.workdps(60):
        below = {
            -place - 1: float(min(mpmath.mpf(1), exact_tail(place, sigma) * mpmath.mpf(2) ** bits))
            for place in range(len(table.high))
            if exact_tail(place, sigma) * mpmath.mpf(2) ** bits < 1
        }
    assert max(wholes) < 2**width
    assert chi_square(drawn, below) > FALSE_ALARM


def test_single_draws_and_a_table_agree():
    for seed in range(20):
        key = b"%016d" % seed
        single = noise.rounded_gaussian(300.0, noise.Words(key), 1)
        many = noise.rounded_gaussian(300.0, noise.Words(key), 100)
        assert single[0] == many[0]


def test_a_huge_sigma_needs_no_table():
    drawn = noise.rounded_gaussian(1e12, noise.Words(bytes(16)), 200)
    assert 0.7 < drawn.std() / 1e12 < 1.4
