"""Rounded Gaussian noise, and the two numbers that it makes private: a count, and a sum of bounded terms.

⌊k + N + ½⌋ = k + ⌊N + ½⌋ for a whole number k. So a whole number plus ⌊N + ½⌋ is a Gaussian mechanism whose output is
rounded, and rounding is post-processing: the event is ``GaussianDpEvent(σ / sensitivity)``, exactly. What a draw from
128-bit thresholds differs from that is :func:`slack`.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.noise.tables import I64, magnitude, size_bound, table
from dphypo.noise.words import Words

_WORTH = 50  # thresholds that one search without a table computes, with a margin
_GRID = 2.0**12  # standard deviation of a noisy sum's noise, in units of its grid
_LEVELS = 64  # a bounded term is rounded to at least this many levels
_LEAST, _MOST = 1e-12, 1e12  # of the noise of a sum, in units of its bound: whole numbers of 64 bits hold both


def rounded_gaussian(sigma: float, words: Words, size: int) -> I64:
    """Independent draws of ⌊N + ½⌋, N ∼ N(0, σ²).

    Args:
        sigma: the standard deviation, above 0.
        words: a stream that nothing else draws from.
        size: how many.

    >>> from dphypo.noise import Words
    >>> bool(abs(rounded_gaussian(5.0, Words(bytes(16)), 10_000).std() - 5) < 0.2)
    True
    """
    sigma = _validate.within(0.0, 2.0**56, closed="right", why="draws have 64 bits", sigma=sigma)
    bits = words.draw(-(-size // 2)).view(np.int32)[:size]
    if size_bound(sigma) > _WORTH * size:
        return np.array([_single(int(some), words, sigma) for some in bits], dtype=np.int64)
    return table(sigma).draw(bits, words).astype(np.int64)


def _single(bits: int, words: Words, sigma: float) -> int:
    first, second = (int(word) for word in words.draw(2))
    drawn = ((bits if bits >= 0 else ~bits) << 96) | (first << 32) | (second >> 32)
    return magnitude(drawn, sigma) * (1 if bits < 0 else -1)


def slack(draws: float, sigma: float) -> float:
    """An upper bound on the total variation between this many draws and as many exact ones.

    A mechanism that is (ε, δ)-DP with exact draws is (ε, δ + (1 + e^ε)·slack)-DP with these. ``draws`` may be an
    expected number, if the number of draws is random and independent of their values.

    >>> slack(1e12, 2.0**14) < 1e-21
    True
    """
    if draws < 0:
        raise _validate.fail("draws", draws, "it must be 0 or greater")
    return math.nextafter(draws * (2 * size_bound(sigma) + 2) * 2.0**-129, math.inf) if draws else 0.0


def noisy_count(count: int, sigma: float, words: Words) -> int:
    """A count plus ⌊N + ½⌋, N ∼ N(0, σ²).

    Formal guarantee: where one record changes the count by at most 1, one noisy count is
    ``GaussianDpEvent(sigma)``, with ``slack(1, sigma)``.

    >>> from dphypo.noise import Words
    >>> type(noisy_count(37, 2.0, Words(bytes(16))))
    <class 'int'>
    """
    return _validate.integer(count=count) + int(rounded_gaussian(sigma, words, 1)[0])


def noisy_sum(values: npt.ArrayLike, bound: float, sigma: float, words: Words) -> float:
    """The sum of one term a record, each cut off at ±``bound``, with noise of standard deviation ``sigma·bound``.

    Each term is first rounded to a grid, by itself, and at most ``bound`` there too. The sum of whole numbers does not
    depend on their order. A term that is not a number counts 0.

    Formal guarantee: where one record changes one term (or adds or removes one), one noisy sum is
    ``GaussianDpEvent(sigma)``, with ``slack_of_sum(sigma)``; replacing a term may change the sum by 2·``bound``,
    unless all terms have one sign.

    >>> from dphypo.noise import Words
    >>> abs(noisy_sum([0.25, 0.5, np.nan, 7.0], 1.0, 0.01, Words(bytes(16))) - 1.75) < 0.1
    True
    """
    bound = _validate.within(1e-100, 1e100, why="the grid of a smaller one is zero", bound=bound)
    sigma = _validate.within(_LEAST, _MOST, closed="both", sigma=sigma)
    try:
        given = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise _validate.fail("values", values, "give one number a record") from None
    if given.ndim != 1:  # in a table one record may be in more than one term
        raise _validate.fail("values", "a table or a number", "give one number a record")
    deviation = _grid(sigma)
    unit = sigma * bound / deviation
    most = int(Fraction(deviation) / Fraction(sigma))  # most/deviation ≤ 1/σ: the noise is at least σ·most
    terms = np.nan_to_num(np.clip(given, -bound, bound), nan=0.0)
    whole = np.clip(np.rint(terms / unit), -most, most).astype(np.int64)
    total = (int((whole >> 32).sum()) << 32) + int((whole & 0xFFFFFFFF).sum())  # no sum of words overflows
    return (total + int(rounded_gaussian(deviation, words, 1)[0])) * unit


def slack_of_sum(sigma: float) -> float:
    """The slack of one noisy sum."""
    return slack(1, _grid(sigma))


def _grid(sigma: float) -> float:
    """The standard deviation of a noisy sum's noise in units of its grid: a power of two."""
    return max(_GRID, 2.0 ** math.ceil(math.log2(_LEVELS * sigma)))
