"""Certain bounds on logarithms, in whole numbers: the only transcendental functions exact sampling needs.

A real number r is held as a pair of integers (low, high) with low ≤ 2^bits · r ≤ high. Every rounding is counted, so
that the pair is a proof and not an estimate; asking for more bits makes it as narrow as one likes.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

Bounds = tuple[int, int]


def log_bounds(x: Fraction, bits: int) -> Bounds:
    """Bounds on 2^bits · log x, for a rational x > 0."""
    numerator, denominator = x.numerator, x.denominator
    power = numerator.bit_length() - denominator.bit_length()
    if power > 0:
        denominator <<= power
    else:
        numerator <<= -power
    # Now x = 2^power · numerator/denominator with a quotient in (1/2, 2); bring it to [2/3, 4/3].
    if 3 * numerator > 4 * denominator:
        denominator, power = 2 * denominator, power + 1
    elif 3 * numerator < 2 * denominator:
        numerator, power = 2 * numerator, power - 1
    width = bits + bits.bit_length() + abs(power).bit_length() + 8
    value, error = _twice_atanh(numerator - denominator, numerator + denominator, width)
    if power:
        value_2, error_2 = _log_2(width)
        value, error = value + power * value_2, error + abs(power) * error_2
    return (value - error) >> (width - bits), _ceil_shift(value + error, width - bits)


def log_gamma_bounds(x: Fraction, bits: int) -> Bounds:
    """Bounds on 2^bits · (log Γ(x) − ½ log 2π), for a rational x > 0.

    Stirling's series at y = x + n, where n is large enough for the series to reach the wanted precision; its
    remainder lies between zero and the first term left out (DLMF 5.11(ii)). The constant ½ log 2π is left out because
    only ratios of gamma functions are ever needed.
    """
    steps = max(0, bits // 4 + 8 - math.floor(x))
    y = x + steps
    width = bits + math.floor(y).bit_length() + 16
    low, high = scaled(y - Fraction(1, 2), log_bounds(y, width))
    low, high = low - math.ceil(y * 2**width), high - math.floor(y * 2**width)
    numerator, denominator, index = y.denominator << width, y.numerator, 1
    while True:
        coefficient = _stirling(index)
        term = numerator * coefficient.numerator // (denominator * coefficient.denominator)
        if term in (-1, 0):  # less than one unit, and so is all that follows
            low, high = low - 1, high + 1
            break
        low, high = low + term, high + term + 1
        numerator, denominator, index = numerator * y.denominator**2, denominator * y.numerator**2, index + 1
    if steps:
        product = 1
        for step in range(steps):
            product *= x.numerator + step * x.denominator
        below, above = log_bounds(Fraction(product, x.denominator**steps), width)
        low, high = low - above, high - below
    return low >> (width - bits), _ceil_shift(high, width - bits)


def scaled(factor: Fraction, bounds: Bounds) -> Bounds:
    """Bounds on ``factor`` times the number within ``bounds``."""
    low, high = bounds if factor >= 0 else (bounds[1], bounds[0])
    return low * factor.numerator // factor.denominator, -(-high * factor.numerator // factor.denominator)


def _twice_atanh(numerator: int, denominator: int, width: int) -> tuple[int, int]:
    """2^width · 2 atanh(z) for z = numerator/denominator, |z| ≤ 1/3, and how far off the value can be.

    Each power of z is off by less than 1.8 units (its predecessor's error shrinks ninefold, the square and the
    rounding add at most 1.6), each term by less than 2.8, and what is left out by less than 3.2.
    """
    power = (numerator << width) // denominator
    square = power * power >> width
    total, index = 0, 1
    while power not in (0, -1):
        total += power // index
        power = power * square >> width
        index += 2
    return 2 * total, 3 * index + 7


@functools.lru_cache(maxsize=64)
def _log_2(width: int) -> tuple[int, int]:
    return _twice_atanh(1, 3, width)


@functools.cache
def _stirling(index: int) -> Fraction:
    """The coefficient of y^(1 − 2·index) in Stirling's series."""
    return _bernoulli(2 * index) / (2 * index * (2 * index - 1))


@functools.cache
def _bernoulli(index: int) -> Fraction:
    """The Bernoulli number B_index, from Σ_{j ≤ n} C(n+1, j) B_j = 0."""
    if index == 0:
        return Fraction(1)
    if index > 1 and index % 2:
        return Fraction(0)
    return -sum((math.comb(index + 1, j) * _bernoulli(j) for j in range(index)), Fraction(0)) / (index + 1)


def _ceil_shift(value: int, shift: int) -> int:
    return -(-value >> shift)
