"""A sum of vectors with rounded Gaussian noise: one vector a record, of norm at most 1.

| symbol | here |
|---|---|
| s, the noise's standard deviation in units of the grid | :func:`_deviation` |
| σ, d | ``sigma``, ``size`` |
| C₀, what a vector of norm 1 is in units of the grid | :func:`radius` |
| b, the bits of the dither; M, a vector of norm 1 in units of 2^−b | ``_bits``, ``_most`` |
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.noise.gaussian import rounded_gaussian, slack
from dphypo.noise.tables import I64
from dphypo.noise.words import Words

Rows = npt.NDArray[np.float64]
BETA = 2.0**-60
"""β: the probability that the dither lets a record move the sum by more than is paid for."""
_TURN = math.sqrt(60 * math.log(2))  # √ln(1/β)
_FIRST = 2.0**13  # a deviation
_LEVELS = 256  # s/σ is at least this, and 2√d
_LONGEST = 2**20  # whole numbers of a vector; the squares of 2²⁰ numbers twice as large add up in 64 bits
_SIZE, _LEAST, _MOST = 2**20, 2.0**-6, 2.0**20


def radius(size: int, sigma: float) -> float:
    """C₀: the root of √(C₀² + d/4) + √ln(1/β) = s/σ, rounded down.

    It is 0 for sizes and noise that whole numbers of 64 bits are not proven to hold.

    >>> 16384 / 40, round(radius(784, 40.0), 1)
    (409.6, 402.9)
    """
    if size > _SIZE or not _LEAST <= sigma <= _MOST:
        return 0.0
    within = (_deviation(size, sigma) / sigma - _TURN) ** 2 - size / 4
    return math.sqrt(within) * (1 - 2.0**-40)  # these lines are in floating point themselves


def noise_of_vectors(size: int, sigma: float) -> float:
    """The standard deviation of the noise in each number of :func:`noisy_vector_sum`: a little more than ``sigma``.

    It is infinite for sizes and noise for which there is no grid.

    >>> round(noise_of_vectors(784, 40.0), 1)
    40.7
    """
    found = radius(size, sigma)
    return _deviation(size, sigma) * 2.0 ** _bits(found) / _most(found) if found else math.inf


def whole(vectors: npt.ArrayLike, most: int) -> I64:
    """Vectors in whole numbers, with a norm of at most ``most``, exactly; a longer one, or one with NaN, is 0.

    Numbers are rounded towards zero, each by itself, so that a vector whose norm is 1 does not become longer.

    >>> whole([[0.6, -0.8], [1.5, 0.0], [np.nan, 0.1]], 1000).tolist()
    [[599, -799], [0, 0], [0, 0]]
    """
    given = np.asarray(vectors, dtype=np.float64)
    cut = np.clip(np.nan_to_num(given, nan=2.0), -2.0, 2.0)
    found = np.trunc(cut * (most * (1 - 2.0**-20))).astype(np.int64)
    found[(found * found).sum(axis=1) > most * most] = 0
    found[np.isnan(given).any(axis=1)] = 0
    return found


def noisy_vector_sum(vectors: Iterable[npt.ArrayLike], size: int, sigma: float, words: Words) -> Rows:
    """The sum of one vector a record, each of norm at most 1, with Gaussian noise.

    Args:
        vectors: tables of vectors, one row a record. What is longer than 1, or has a NaN, counts 0.
        size: d, how many numbers a vector has.
        sigma: the noise multiplier.
        words: a stream that nothing else draws from.

    Formal guarantee: where one record adds or removes one vector, one sum is ``GaussianDpEvent(sigma)``, with
    ``slack_of_vector_sum(size, sigma)`` (docs/theory/surveys.md, "A bought scale").

    >>> from dphypo.noise import Words
    >>> some = noisy_vector_sum([[[0.6, 0.8]] * 500, [[0.0, 1.0]] * 500], 2, 0.1, Words(bytes(16)))
    >>> some.round().tolist()
    [300.0, 900.0]
    """
    sigma, found = _validate.positive(sigma=sigma), radius(size, sigma)
    if not found:
        raise _validate.fail("sigma", sigma, f"there is no grid for it and vectors of {size} numbers")
    bits, most = _bits(found), _most(found)
    total = np.zeros(size, dtype=np.int64)
    for some in vectors:
        if np.shape(some)[1:] != (size,):  # a single number would be added to each of the sums
            raise _validate.fail("vectors", f"a table with rows of shape {np.shape(some)[1:]}", f"give {size} numbers")
        total += whole(some, most).sum(axis=0)
    noisy = rounded(total, bits, words.stream("dither"))
    noisy += rounded_gaussian(_deviation(size, sigma), words.stream("noise"), size)
    return np.asarray(noisy * (2.0**bits / most), dtype=np.float64)


def rounded(total: I64, bits: int, dither: Words) -> I64:
    """⌊(total + V)/2^bits⌋ with V uniform on 0, …, 2^bits − 1, fresh for each number."""
    low = dither.draw(len(total)) & np.uint64(2**bits - 1)
    return (total + low.astype(np.int64)) >> bits


def slack_of_vector_sum(size: int, sigma: float) -> float:
    """The slack of one sum: that of noise from 128-bit tables, and β of the dither.

    >>> slack_of_vector_sum(1000, 40.0) < 1e-18
    True
    """
    return math.nextafter(slack(size, _deviation(size, sigma)) + BETA, math.inf)


def _deviation(size: int, sigma: float) -> float:
    return max(_FIRST, 2.0 ** math.ceil(math.log2(max(_LEVELS, 2 * math.sqrt(size)) * sigma)))


def _bits(radius: float) -> int:
    return int(math.log2(_LONGEST / radius))


def _most(radius: float) -> int:
    return int(radius * 2.0 ** _bits(radius))
