"""A noisy sum of vectors: what one record moves it by, and how much noise it has."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dphypo.noise import Words, noisy_vector_sum, slack_of_vector_sum, vectors
from dphypo.noise.vectors import noise_of_vectors, whole

TURN = math.sqrt(60 * math.log(2))


@pytest.mark.parametrize("size", [1, 2, 17, 784, 5000])
def test_a_vector_in_whole_numbers_is_never_longer_than_is_paid_for(size):
    random = np.random.default_rng(size)
    given = random.normal(size=(40, size)) * np.exp(random.normal(size=(40, 1)))
    given /= np.linalg.norm(given, axis=1, keepdims=True)
    rows = [
        *given,
        np.eye(size)[0],
        -np.eye(size)[0],
        np.full(size, size**-0.5),
        *given[:5] * (1 + 1e-9),
        *given * 1.01,
    ]
    rows += [given[0] * 1e300, np.full(size, np.inf), np.full(size, np.nan), np.full(size, 1.9), np.full(size, -1.0)]
    rows += [given[0] * 1e-300, np.zeros(size)]
    for most in (7, 1001, 2**20):
        found = whole(np.array(rows), most)
        norms = [sum(int(one) ** 2 for one in row) for row in found]
        assert max(norms) <= most**2
        if most == 2**20:  # a unit vector counts, nearly in full
            assert min(norms[:43]) > 0.98 * most**2
            assert not any(norms[48:88])  # one that is longer does not
    assert not whole([[np.nan] + [0.1] * (size - 1)], 1000).any()


SIZES = [(1, 1.0), (6, 40.0), (784, 3.3), (784, 500.0), (60_000, 20.0), (2**20, 9.0)]


@pytest.mark.parametrize(("size", "sigma"), SIZES)
def test_the_radius_leaves_room_for_rounding(size, sigma):
    deviation = vectors._deviation(size, sigma)
    radius = vectors.radius(size, sigma)
    moved = math.sqrt(radius**2 + size / 4) + TURN
    assert moved <= deviation / sigma
    assert moved >= deviation / sigma * (1 - 1e-9)
    assert radius > 0.85 * deviation / sigma
    most, bits = vectors._most(radius), vectors._bits(radius)
    assert Fraction(most, 2**bits) <= Fraction(radius)
    assert (2 * most) ** 2 * size < 2**63
    assert noise_of_vectors(size, sigma) == pytest.approx(sigma * deviation / sigma / radius, rel=1e-4)


def test_rounding_with_all_dithers_moves_a_sum_by_at_most_what_the_lemma_says():
    """Brute force: all sums, all records and all dithers of two bits, in two dimensions."""
    bits, most = 2, 9

    class Given:
        def __init__(self, low: tuple[int, ...]) -> None:
            self.low = low

        def draw(self, count: int) -> np.ndarray:
            return np.array(self.low[:count], dtype=np.uint64)

    records = [one for one in itertools.product(range(-most, most + 1), repeat=2) if np.hypot(*one) <= most]
    sums, dithers = list(itertools.product(range(4), repeat=2)), list(itertools.product(range(4), repeat=2))
    for before, record in itertools.product(sums, records):
        after = np.array(before) + np.array(record)
        both = [[vectors.rounded(np.array(one), bits, Given(low)) for one in (before, after)] for low in dithers]
        moved = [float(np.hypot(*(two - one))) for one, two in both]
        limit = math.sqrt((np.hypot(*record) / 4) ** 2 + 2 / 4)
        for beta in (0.5, 0.1, 0.01):
            assert np.mean(np.array(moved) > limit + math.sqrt(math.log(1 / beta)) + 1e-12) <= beta


def test_a_record_that_rounds_up_everywhere_moves_the_sum_by_no_more_than_is_paid_for():
    """Of 38 000 numbers each moves by 2.05 of the grid, from just below an edge: 3 without a dither, a norm of 585."""
    sigma = 40.0
    size = 38_000
    radius = vectors.radius(size, sigma)
    bits, limit = vectors._bits(radius), vectors._deviation(size, sigma) / sigma
    record = whole(np.full((1, size), size**-0.5), vectors._most(radius))[0]
    assert record[0] / 2**bits == pytest.approx(2.05, abs=0.1)
    before = np.full(size, 2**bits - 1 - (record[0] & (2**bits - 1)) + 1)
    for seed in range(20):
        dither = [Words.of_seed(seed) for _ in range(2)]
        moved = vectors.rounded(before + record, bits, dither[0]) - vectors.rounded(before, bits, dither[1])
        assert np.linalg.norm(moved) <= limit


def test_the_sum_has_the_noise_that_is_stated():
    sigma, size, count = 20.0, 5000, 50
    random = np.random.default_rng(0)
    rows = random.normal(size=(count, size))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    found = noisy_vector_sum([rows[:20], rows[20:]], size, sigma, Words(bytes(16)))
    off = (found - rows.sum(0)) / noise_of_vectors(size, sigma)
    assert noise_of_vectors(size, sigma) >= sigma
    assert abs(off.std() - 1) < 0.06  # 6 standard errors of 1 %: false alarm below 1e-8
    assert abs(off.mean()) < 6 / math.sqrt(size)
    again = noisy_vector_sum([rows], size, sigma, Words(bytes(16)))
    np.testing.assert_array_equal(found, again)  # whole numbers are added in any order
    other = noisy_vector_sum([rows], size, sigma, Words.of_seed(3))
    assert abs(np.corrcoef(found - rows.sum(0), other - rows.sum(0))[0, 1]) < 6 / math.sqrt(size)


def test_sizes_and_noise_without_a_grid_are_refused():
    for size, sigma in ((2**20 + 1, 5.0), (5, 2.0**-7), (5, 2.0**21)):
        assert noise_of_vectors(size, sigma) == math.inf
        with pytest.raises(ValueError, match="there is no grid for it"):
            noisy_vector_sum([], size, sigma, Words(bytes(16)))
    assert slack_of_vector_sum(1000, 40.0) >= 2.0**-60


@pytest.mark.parametrize("rows", [np.full((3, 1), 0.9), np.full((3, 5), 0.1), np.full((3, 4, 1), 0.1)])
def test_a_record_of_another_length_is_refused(rows):
    """A single number would be added to each of the four, and one record would move the sum by twice its norm."""
    with pytest.raises(ValueError, match="give 4 numbers"):
        noisy_vector_sum([rows], 4, 1.0, Words(bytes(16)))
