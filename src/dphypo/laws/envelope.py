"""Exact sampling from a law of T by rejection under flat and geometric pieces.

The pieces together lie on or above the weights. A piece is chosen with probability proportional to its area (a whole
number), a k is drawn from the piece exactly, and k is kept with probability weight/height, decided exactly on lazily
revealed bits. What is kept has the law's own probabilities, into the farthest tail, where a walk along a float CDF
would stop at 1 − 2⁻⁵³. The pieces are close enough to the weights that a draw takes a few tries whatever the mean.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

from dphypo.entropy import Entropy, below
from dphypo.laws.bounds import Bounds, log_bounds, scaled
from dphypo.laws.exact import accept, geometric
from dphypo.laws.weights import Weights

_SLACK_BITS = 40  # areas are rounded up to whole numbers at a relative cost of at most 2⁻⁴⁰


@dataclasses.dataclass(frozen=True)
class Piece:
    """Heights height · ratio^j at k = start + step · j; j < length when the piece is flat, else without end."""

    start: int
    height: Fraction  # in units of the greatest weight
    length: int = 0
    step: int = 1
    ratio: Fraction = Fraction(1)

    @property
    def area(self) -> Fraction:
        return self.height * self.length if self.length else self.height / (1 - self.ratio)

    def draw(self, entropy: Entropy) -> int:
        """The index j of a draw from the piece."""
        return below(self.length, entropy) if self.length else geometric(self.ratio, entropy)


@dataclasses.dataclass(frozen=True)
class Envelope:
    """Pieces above the weights of a law on first ≤ k ≤ limit (no limit: ``None``)."""

    weights: Weights
    limit: int | None
    peak: int
    pieces: tuple[Piece, ...]
    areas: tuple[int, ...]  # cumulative, in units of 2^(-k) that make each of them whole

    def draw(self, entropy: Entropy) -> int:
        """One T."""
        while True:
            piece = self.pieces[bisect.bisect_right(self.areas, below(self.areas[-1], entropy))]
            index = piece.draw(entropy)
            k = piece.start + piece.step * index
            inside = k >= self.weights.first and (self.limit is None or k <= self.limit)
            if inside and accept(functools.partial(self._excess, piece, index, k), entropy):
                return k

    def _excess(self, piece: Piece, index: int, k: int, bits: int) -> Bounds:
        """Bounds on 2^bits · log(height of the piece at k / weight of k), which is 0 or more."""
        weight = self.weights.log_weight(k, bits)
        low, high = _scale(self.weights, self.peak, piece.height, bits)
        if not piece.length:
            extra = index.bit_length() + 2
            slope = scaled(Fraction(index, 2**extra), log_bounds(piece.ratio, bits + extra))
            low, high = low + slope[0], high + slope[1]
        return low - weight[1], high - weight[0]


@functools.lru_cache(maxsize=1024)
def _scale(weights: Weights, peak: int, height: Fraction, bits: int) -> Bounds:
    """Bounds on 2^bits · log(height · w_peak): the same for every draw, and public."""
    (low, high), top = log_bounds(height, bits), weights.log_weight(peak, bits)
    return low + top[0], high + top[1]


@functools.lru_cache(maxsize=64)
def envelope(weights: Weights, limit: int | None = None) -> Envelope:
    """The envelope of ``weights`` cut at ``limit``. A public value: it depends on the law alone."""
    peak = weights.mode if limit is None else min(weights.mode, limit)
    shape = _log_concave if weights.log_concave else _log_convex
    pieces = tuple(shape(weights, limit, peak))
    unit = max(0, _SLACK_BITS - min(_exponent(piece.area) for piece in pieces))
    areas = [math.ceil(piece.area * 2**unit) for piece in pieces]
    # The area that was rounded up is the piece's area from here on, so its height rises in proportion.
    raised = (
        dataclasses.replace(piece, height=piece.height * Fraction(area, 2**unit) / piece.area)
        for piece, area in zip(pieces, areas, strict=True)
    )
    return Envelope(weights, limit, peak, tuple(raised), tuple(itertools.accumulate(areas)))


def _log_concave(weights: Weights, limit: int | None, peak: int) -> Iterator[Piece]:
    """Flat around the peak, down to about 1/e of it; beyond, geometric with the ratio found there, which only falls."""

    def low(k: int) -> bool:
        return weights.log_weight(k, 32)[1] - weights.log_weight(peak, 32)[0] <= -(2**32)

    right = _first(lambda j: low(peak + j), None if limit is None else limit - peak)
    left = _first(lambda j: low(peak - j), peak - weights.first)
    yield Piece(peak - left + 1, Fraction(1), length=left + right - 1)
    if limit is None or peak + right <= limit:
        start = peak + right
        yield Piece(start, _height(weights, start, peak), ratio=weights.ratio(start))
    start = peak - left
    if start == weights.first:
        yield Piece(start, _height(weights, start, peak), length=1)
    elif start > weights.first:
        yield Piece(start, _height(weights, start, peak), step=-1, ratio=1 / weights.ratio(start - 1))


def _log_convex(weights: Weights, limit: int | None, peak: int) -> Iterator[Piece]:
    """Flat on [2^i, 2^(i+1)), the weights falling from the first; beyond 1/(1 − limit ratio) geometric with that."""
    start = weights.first
    while (1 - weights.limit_ratio) * start < 1:
        if limit is not None and start > limit:
            return
        length = start if limit is None else min(start, limit - start + 1)
        yield Piece(start, _height(weights, start, peak), length=length)
        start *= 2
    if limit is None or start <= limit:
        yield Piece(start, _height(weights, start, peak), ratio=weights.limit_ratio)


def _first(holds: Callable[[int], bool], most: int | None) -> int:
    """The smallest j ≥ 1 at which a monotone ``holds`` is true; ``most`` + 1 when there is none up to ``most``."""
    step = 1
    while (most is None or step <= most) and not holds(step):
        step *= 2
    low, high = step // 2, step if most is None else min(step, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _height(weights: Weights, k: int, peak: int) -> Fraction:
    """A rational number a trace above w_k / w_peak, and certainly not below it."""
    bits = 64
    top = weights.log_weight(k, bits)[1] - weights.log_weight(peak, bits)[0]
    power, rest = divmod(top, int(math.log(2) * 2**bits))
    height = Fraction(math.exp(rest / 2**bits)) * Fraction(2) ** power
    # Floats only proposed the number; the directed logarithm decides.
    while log_bounds(height, bits)[0] < top:
        height *= Fraction(2**32 + 1, 2**32)
    return height


def _exponent(x: Fraction) -> int:
    """The power of two at or just below x > 0, give or take one."""
    return x.numerator.bit_length() - x.denominator.bit_length()
