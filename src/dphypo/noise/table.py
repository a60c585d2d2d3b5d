"""The distribution of ⌊N + ½⌋, N ∼ N(0, σ²), as 128-bit integers; draws by comparing two words with them.

For a uniform 128-bit integer U, Z = min{k : U < t_k} with t_k = 2¹²⁸·Φ((k + ½)/σ) rounded to the nearest integer. The
law is symmetric, so half of the thresholds is kept: with T_j = 2¹²⁸·(1 − Φ((j + ½)/σ)), rounded, and U′ the smaller of
U and 2¹²⁸ − 1 − U, |Z| = #{j ≥ 0 : U′ < T_j}, and Z is negative where U < 2¹²⁷. As a signed word, the high half of U′
is w ^ (w >> 63). FLINT's balls certify every T_j.

Total variation from ⌊N + ½⌋: 2m thresholds inside are off by at most 2⁻¹²⁹ each. Outside, where all are rounded to 0
or 1, the errors fall off monotonically from at most 2⁻¹²⁹ on either side. So it is at most (2m + 2)·2⁻¹²⁹
(docs/theory/engine.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dphypo.noise.words import U64, Source

I64 = npt.NDArray[np.int64]
LOW = 2**64
_END = 13.1  # standard deviations; half a threshold's unit, 2⁻¹²⁹, lies at 13.056
_CARE = 24  # bits beyond those that a threshold keeps
_BLOCK = 64  # thresholds computed at one precision


def size_bound(sigma: float) -> int:
    """An upper bound on how many thresholds are not zero, from σ alone.

    >>> size_bound(64.0) >= len(Table.build(64.0).high) - 1
    True
    """
    return math.ceil(_END * sigma) + 1


def tails(first: int, count: int, sigma: float) -> list[int]:
    """T_j = 2¹²⁸·P[N > j + ½] for ``count`` places from ``first``, rounded to the nearest integer, for certain."""
    from flint import arb, ctx

    deviation = (first + 0.5) / sigma
    bits = max(_CARE, 128 + _CARE - int(0.72 * deviation**2))  # P is about 2^(−0.7213·deviation²)
    while True:
        with ctx.workprec(bits):
            scale, unit, half = arb(2).sqrt() * (2 * arb(sigma)), arb(2) ** 127, arb(1) / 2
            places = range(2 * first + 1, 2 * (first + count) + 1, 2)
            found = [((arb(place) / scale).erfc() * unit + half).floor().unique_fmpz() for place in places]
        certain = [int(value) for value in found if value is not None]
        if len(certain) == count:
            return certain
        bits *= 2  # a ball held two integers


def magnitude(drawn: int, sigma: float) -> int:
    """#{j : U′ < T_j} without a table, for single draws and for σ of any size."""
    below, above = -1, size_bound(sigma)  # U′ < T_below, and not U′ < T_above
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if drawn < tails(middle, 1, sigma)[0] else (below, middle)
    return above


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """The thresholds T_0 > T_1 > … of one σ, and a guide into them.

    Args:
        sigma: the standard deviation.
        high, low: their two words. The high ones are below 2⁶³ and never increase.

    The guide splits the range of the high word into equal cells. Most hold at most one threshold, and then one
    comparison finds |Z|; words in the other cells, and ties with a threshold, are searched for in full.
    """

    sigma: float
    high: I64
    low: U64
    guide: npt.NDArray[np.int32] = field(init=False)
    shift: int = field(init=False)

    def __post_init__(self) -> None:
        bits = min(18, max(6, math.ceil(math.log2(self.sigma)) + 4))
        edges = np.arange(1, 2**bits, dtype=np.int64) << (63 - bits)
        # In the cell [edge, next edge): how many thresholds lie at or above its end, and how many more inside it.
        ends = len(self.high) - np.searchsorted(self.high[::-1], edges, side="left")
        first = np.concatenate([ends, [0]])
        inside = np.concatenate([[len(self.high)], ends]) - first
        guide = np.where(inside <= 1, first, -1).astype(np.int32)
        object.__setattr__(self, "guide", guide)
        object.__setattr__(self, "shift", 63 - bits)

    @classmethod
    def build(cls, sigma: float) -> Table:
        """Compute the thresholds; a few microseconds each."""
        found: list[int] = []
        while not found or found[-1]:
            found += tails(len(found), _BLOCK, sigma)
        found = found[: found.index(0) + 1]  # one zero, so that every word is compared with something
        return cls(
            sigma,
            np.array([value // LOW for value in found], dtype=np.int64),
            np.array([value % LOW for value in found], dtype=np.uint64),
        )

    def draw(self, high: U64, low: Source) -> I64:
        """⌊N + ½⌋ for each high word; a low word is drawn where the high one ties with a threshold."""
        words = high.view(np.int64)
        sign = words >> 63  # −1 for U ≥ 2¹²⁷
        half = words ^ sign
        found: I64 = self.guide[half >> self.shift].astype(np.int64)
        edge = self.high[found]
        hard = np.flatnonzero((found < 0) | (half == edge))
        found += half < edge
        if len(hard):
            found[hard] = self._search(half[hard], sign[hard], low)
        return (found ^ ~sign) - ~sign  # + where U ≥ 2¹²⁷, − elsewhere

    def _search(self, half: I64, sign: I64, low: Source) -> I64:
        """#{j : (half, low word) < T_j}, in lexicographic order."""
        above = len(self.high) - np.searchsorted(self.high[::-1], half, side="right")  # high word larger
        ties = len(self.high) - np.searchsorted(self.high[::-1], half, side="left") - above
        found = above.astype(np.int64)
        for place in np.flatnonzero(ties):
            word = int(low.draw(1)[0]) ^ (int(sign[place]) & (LOW - 1))
            equal = self.low[above[place] : above[place] + ties[place]]
            found[place] += int(np.count_nonzero(np.uint64(word) < equal))
        return found
