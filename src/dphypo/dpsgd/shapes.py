"""Fixed shapes: how many rows a step has, whatever the batch. They are public, and a run has one of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

UNIT = 32
"""Rows of a piece are a multiple of this where they can be: vectorised loops then have no rest that is computed in
another way, so that a record's place changes no bit."""


@dataclass(frozen=True)
class Shape:
    """Rows of one forward pass: ``runs`` × ``records`` × ``views``, in this order of axes."""

    runs: int
    records: int
    views: int = 1

    @property
    def rows(self) -> int:
        return self.runs * self.records * self.views


def tail(records: int, rate: float, least: int) -> float:
    """An upper bound on P[X ≥ least], X binomial: the first term over one minus the largest ratio of terms.

    >>> from scipy.stats import binom
    >>> bool(1 <= tail(1000, 0.06, 100) / binom.sf(99, 1000, 0.06) < 1.2)
    True
    """
    if least > records:
        return 0.0
    if rate >= 1 or least <= records * rate:
        return 1.0
    choose = math.lgamma(records + 1) - math.lgamma(least + 1) - math.lgamma(records - least + 1)
    first = choose + least * math.log(rate) + (records - least) * math.log1p(-rate)
    ratio = (records - least) * rate / ((least + 1) * (1 - rate))
    return min(1.0, math.exp(first) * (1 + 1e-9) / (1 - ratio))


def capacity(records: int, rate: float, probability: float) -> int:
    """The smallest size that a Poisson batch exceeds with at most this probability.

    >>> capacity(60_000, 256 / 60_000, 2.0**-40)
    376
    """
    low, high = math.floor(records * rate) - 1, records  # too small, large enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tail(records, rate, middle + 1) <= probability else (middle, high)
    return max(1, high)


def piece_and_count(records: int, rate: float, at_most: int | None) -> tuple[int, int]:
    """How many records a piece holds, and how many pieces every step has; a larger batch has probability 2⁻⁴⁰.

    >>> piece_and_count(1150, 64 / 1150, None), piece_and_count(1150, 64 / 1150, 50)
    ((128, 1), (32, 4))
    """
    needed = capacity(records, rate, 2.0**-40)
    piece = UNIT * math.ceil(needed / UNIT)
    if at_most is not None and at_most < piece:
        piece = at_most if at_most < UNIT else UNIT * (at_most // UNIT)
    return piece, math.ceil(needed / piece)


def largest_batch(records: int, rate: float) -> int:
    """The batch that sums are proven for: even twice the declared records exceed it with probability 2⁻¹⁰⁰ only."""
    return capacity(2 * records, rate, 2.0**-100)
