"""Words, coins, noisy counts and noisy sums."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dphypo import noise
from dphypo.noise import Words

FALSE_ALARM = 1e-6
KEY = b"a fixed key of more than 16 bytes"


def test_words_are_numpys_philox_and_are_never_given_twice():
    words = Words(KEY)
    reference = np.random.Philox(key=int.from_bytes(words.key, "little"))
    first, second = words.draw(7), words.draw(6)
    assert np.array_equal(np.concatenate([first, second]), reference.random_raw(13))
    assert len({*first.tolist(), *second.tolist()}) == 13


def test_streams_of_other_names_runs_and_depths_share_no_key():
    roots = [Words(KEY), Words(KEY + b"!"), Words.of_seed(1), Words.of_seed(2), Words.of_seed(3)]
    names = ["noise", "dither", "batches", ""]
    streams = [*roots, *(root.stream(name) for root in roots for name in names)]
    streams += [root.stream("noise").stream("dither") for root in roots]
    assert len({stream.key for stream in streams}) == len(streams)
    assert all(len(stream.key) == 16 for stream in streams)


@pytest.mark.parametrize("seed", [0, 2**31, 2**63 - 1, 2**128])
def test_every_bit_of_a_seed_counts(seed):
    keys = {Words.of_seed(seed ^ (1 << bit)).key for bit in range(128)}
    assert len(keys | {Words.of_seed(seed).key}) == 129


def test_a_short_key_is_refused_and_not_shown():
    with pytest.raises(ValueError, match="key = 6 bytes is not valid") as error:
        Words(b"secret")
    assert "secret" not in str(error.value)
    assert repr(Words(KEY)) == "Words(...)"


@pytest.mark.parametrize("rate", [0.0, 1e-20, 1 / 3, 0.1, 256 / 60_000, 1 - 2**-53, 1.0])
def test_the_rate_is_rounded_down_to_a_multiple_of_a_words_unit(rate):
    bound = noise.threshold(rate)
    assert 0 <= Fraction(rate) - Fraction(bound, 2**64) < Fraction(1, 2**64)


@pytest.mark.parametrize("rate", [0.01, 1 / 3, 0.9])
def test_coins_fall_at_the_rate(rate):
    """False-alarm rate 1e-6 each."""
    words = Words(KEY)
    found = [len(noise.poisson_sample(rate, words, 1000)) for _ in range(200)]
    assert stats.binomtest(sum(found), 200_000, rate).pvalue > FALSE_ALARM
    spread = sum((count - 1000 * rate) ** 2 for count in found) / (1000 * rate * (1 - rate))
    assert min(stats.chi2.cdf(spread, 200), stats.chi2.sf(spread, 200)) > FALSE_ALARM


def test_a_word_on_the_threshold_is_out():
    class Given(Words):
        def draw(self, count):
            return np.array([2**63 - 1, 2**63, 2**63 + 1], dtype=np.uint64)[:count]

    assert noise.poisson_sample(0.5, Given(KEY), 3).tolist() == [0]
    assert noise.poisson_sample(1.0, Words(KEY), 5).tolist() == [0, 1, 2, 3, 4]


def test_one_event_cannot_tell_counts_apart_better_than_the_event_says():
    """Counts 0 and 1 at σ = 8: every outcome is a whole number, and exact probabilities give the Gaussian's profile."""
    sigma = 8.0
    outcomes = {noise.noisy_count(one, sigma, Words.of_seed(seed)) for seed in range(300) for one in (0, 1)}
    assert all(type(outcome) is int for outcome in outcomes)
    places = np.arange(-120, 122)
    of_zero = stats.norm.cdf((places + 0.5) / sigma) - stats.norm.cdf((places - 0.5) / sigma)
    of_one = stats.norm.cdf((places - 0.5) / sigma) - stats.norm.cdf((places - 1.5) / sigma)
    for epsilon in (0.0, 0.1, 0.434, 1.0):
        found = np.clip(of_one - math.exp(epsilon) * of_zero, 0, None).sum()
        mu = 1 / sigma
        gaussian = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
        assert found <= gaussian + 1e-12


def test_a_noisy_count_is_the_count_plus_noise_of_the_deviation():
    drawn = np.array([noise.noisy_count(1000, 8.0, Words.of_seed(seed)) for seed in range(500)]) - 1000
    statistic = float((drawn**2).sum() / (64 + 1 / 12))
    assert min(stats.chi2.cdf(statistic, 500), stats.chi2.sf(statistic, 500)) > FALSE_ALARM


@pytest.mark.parametrize("sigma", [1e-6, 0.3, 1.0, 77.7, 1e5])
@pytest.mark.parametrize("bound", [1e-3, 1.0, 300.0])
def test_one_term_moves_a_sum_by_at_most_the_bound(sigma, bound):
    """With the same words the difference of two sums is what one record changes; the noise cancels."""
    values = np.linspace(-bound, bound, 50)
    plain = noise.noisy_sum(values, bound, sigma, Words(KEY))
    for extra in (bound, -bound, 0.37 * bound, 1e300, -np.inf, np.inf, np.nan):
        moved = noise.noisy_sum([*values, extra], bound, sigma, Words(KEY)) - plain
        assert abs(moved) <= bound * (1 + 1e-9) + 1e-9 * abs(plain)
    assert noise.noisy_sum([*values, np.nan], bound, sigma, Words(KEY)) == plain


@pytest.mark.parametrize("values", [np.zeros((3, 3)), np.zeros((3, 1)), 0.5])
def test_a_sum_of_anything_but_one_number_a_record_is_refused(values):
    """In a table a record may be in a row and in a column, and then moves the sum by more than the bound."""
    with pytest.raises(ValueError, match="one number a record"):
        noise.noisy_sum(values, 1.0, 2.0, Words(KEY))


def test_a_sum_does_not_depend_on_the_order_of_its_terms():
    values = np.random.default_rng(0).normal(size=10_001)
    turned = noise.noisy_sum(values[::-1], 1.0, 2.0, Words(KEY))
    assert noise.noisy_sum(values, 1.0, 2.0, Words(KEY)) == turned


def test_a_noisy_sum_is_the_sum_plus_noise_of_the_deviation():
    values = np.full(100, 0.3)
    drawn = np.array([noise.noisy_sum(values, 2.0, 0.5, Words.of_seed(seed)) for seed in range(500)])
    statistic = float(((drawn - 30) ** 2).sum())  # σ·bound = 1
    assert min(stats.chi2.cdf(statistic, 500), stats.chi2.sf(statistic, 500)) > FALSE_ALARM
    assert noise.slack_of_sum(0.5) < 1e-30


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_bad_deviations_are_refused(sigma):
    with pytest.raises(ValueError, match="sigma = "):
        noise.rounded_gaussian(sigma, Words(KEY), 3)
    with pytest.raises(ValueError, match="sigma = "):
        noise.noisy_count(1, sigma, Words(KEY))
    with pytest.raises(ValueError, match="sigma = "):
        noise.noisy_sum([1.0], 1.0, sigma, Words(KEY))


@pytest.mark.parametrize("bound", [0.0, 1e-308, 1e-101, 1e101, math.inf, math.nan])
def test_bounds_whose_grid_is_no_number_are_refused(bound):
    with pytest.raises(ValueError, match="bound = "):
        noise.noisy_sum([1.0], bound, 1.0, Words(KEY))
