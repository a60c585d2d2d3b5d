"""The distribution of ⌊N + ½⌋, N ∼ N(0, σ²), as 128-bit integers; draws by comparing random bits with them.

The law is symmetric. With T_j = 2¹²⁸·P[N > j + ½] rounded to the nearest integer, U uniform on 0, …, 2¹²⁷ − 1 and a
fair sign, ``|Z|`` = #{j ≥ 0 : U < T_j}. FLINT's balls certify every T_j. The first 32 random bits, a sign and the 31
highest bits of U, decide nearly every draw; where they do not, the other 96 bits are drawn.

Total variation from ⌊N + ½⌋: the 2m thresholds inside are off by at most 2⁻¹²⁹ each. Outside, where all are rounded to
0 or 1, the errors fall off monotonically from at most 2⁻¹²⁹ on either side. So it is at most (2m + 2)·2⁻¹²⁹
(docs/theory/engine.md).

A few tables are kept in memory, and large ones on disk. A file has the thresholds and their SHA-256. A table that does
not match it (another σ, another version, a damaged disk) is rebuilt. If the disk cannot be written, tables stay in
memory.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import hashlib
import math
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dphypo import _files, _validate
from dphypo.errors import FileError
from dphypo.noise.words import U64, Words

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
WORD = 2**64
_END = 13.1  # standard deviations; half a threshold's unit, 2⁻¹²⁹, lies at 13.056
_CARE = 24  # bits beyond those that a threshold keeps
_BLOCK = 64  # thresholds computed at one precision
_VERSION = "1"
_LARGE = 2.0**9  # tables of smaller σ take milliseconds to build
_FILES = 8
_SEARCHED = -(2**30)  # in the guide: a cell with several thresholds


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
    """#{j : U < T_j} without a table, for single draws and for σ of any size."""
    return bisect.bisect_left(range(size_bound(sigma)), True, key=lambda place: drawn >= tails(place, 1, sigma)[0])


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """The thresholds T_0 > T_1 > … of one σ, and a guide into them.

    Args:
        sigma: the standard deviation.
        high, low: their two words. The high ones are below 2⁶³ and never increase.

    The guide splits the range of U into 2^b equal cells. For each it holds how many thresholds lie above, and the next
    31 − b bits of the one threshold inside, in one word. One comparison then finds ``|Z|``. Bits that tie with it, and
    cells with more thresholds, are searched for in full.
    """

    sigma: float
    high: I64
    low: U64
    guide: I64 | I32 = field(init=False)
    shift: int = field(init=False)
    rising: I64 = field(init=False)
    """The high words from the smallest on."""

    def __post_init__(self) -> None:
        bits = min(18, max(6, math.ceil(math.log2(self.sigma)) + 4))
        rising = np.ascontiguousarray(self.high[::-1])
        starts = np.arange(1, 2**bits, dtype=np.int64) << (63 - bits)
        above = len(rising) - np.searchsorted(rising, starts, side="left")
        above, inside = np.append(above, 0), np.insert(above, 0, len(self.high)) - np.append(above, 0)
        shift = 31 - bits
        next_bits = np.where(inside == 1, (self.high[above] >> 32) & (2**shift - 1), 0)
        guide = np.where(inside <= 1, (above << shift) | next_bits, _SEARCHED)
        small = (len(self.high) + 2) << shift < 2**31
        object.__setattr__(self, "guide", guide.astype(np.int32 if small else np.int64))
        object.__setattr__(self, "shift", shift)
        object.__setattr__(self, "rising", rising)

    @classmethod
    def build(cls, sigma: float) -> Table:
        """Compute the thresholds; a few microseconds each."""
        found: list[int] = []
        while not found or found[-1]:
            found += tails(len(found), _BLOCK, sigma)
        found = found[: found.index(0) + 1]  # one zero, so that all bits are compared with something
        return cls(
            sigma,
            np.array([value // WORD for value in found], dtype=np.int64),
            np.array([value % WORD for value in found], dtype=np.uint64),
        )

    def draw(self, bits: I32, words: Words) -> I32:
        """Z for each of the first 32 bits; two more words are drawn for each that they do not decide."""
        sign = bits >> 31
        half = bits ^ sign
        # With e the threshold's bits in its cell and r those of U: above·2^s + e + (2^s − 1 − r), whose bits from s on
        # are above + [r < e], and whose s bits below are all ones if r = e.
        moved, mask = self.guide.take(half >> self.shift), 2**self.shift - 1
        moved += ~half & mask
        hard = np.flatnonzero(((moved & mask) == mask) | (moved < 0))
        moved >>= self.shift
        found: I32 = moved.astype(np.int32, copy=False)
        if len(hard):
            found[hard] = self._search(half[hard], words.draw(2 * len(hard)))
        np.invert(sign, out=sign)
        found ^= sign  # + where the first bit is set, − elsewhere
        found -= sign
        return found

    def _search(self, half: I32, rest: U64) -> I32:
        """#{j : U < T_j} for U = (half, the first 96 bits of two words), in lexicographic order."""
        first, second = rest[::2], rest[1::2]
        high = (half.astype(np.int64) << 32) | (first >> np.uint64(32)).astype(np.int64)
        low = (first << np.uint64(32)) | (second >> np.uint64(32))
        above = len(self.high) - np.searchsorted(self.rising, high, side="right")  # their high words are larger
        for place in np.flatnonzero(self.high[np.minimum(above, len(self.high) - 1)] == high):
            ends = len(self.high) - np.searchsorted(self.rising, high[place], side="left")
            above[place] += np.count_nonzero(low[place] < self.low[above[place] : ends])
        return above.astype(np.int32)


@functools.lru_cache(maxsize=8)
def table(sigma: float) -> Table:
    """The table of a σ: from memory, from disk, or built.

    >>> table(3.0) is table(3.0)
    True
    """
    sigma = _validate.positive(sigma=sigma)
    if sigma < _LARGE:
        return Table.build(sigma)
    path = folder() / f"gaussian-{sigma.hex()}.v{_VERSION}"
    found = _read(path, sigma)
    if found is None:
        found = Table.build(sigma)
        _write(path, found)
    return found


def folder() -> Path:
    """The folder of the tables: ``$DPHYPO_CACHE``, or the user's folder for caches."""
    if given := os.environ.get("DPHYPO_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dphypo"


def _digest(sigma: float, content: bytes) -> bytes:
    return hashlib.sha256(f"dphypo.noise {_VERSION} {sigma.hex()} ".encode() + content).digest()


def _read(path: Path, sigma: float) -> Table | None:
    stored = b""
    with contextlib.suppress(FileError):
        stored = _files.read(path, "table of noise", most=_files.MOST_TABLE_BYTES)
    digest, content = stored[:32], stored[32:]
    if digest != _digest(sigma, content) or len(content) % 16:
        return None
    words = np.frombuffer(content, dtype="<u8").reshape(2, -1)
    return Table(sigma, words[0].astype(np.int64), words[1].astype(np.uint64))


def _write(path: Path, built: Table) -> None:
    content = np.stack([built.high.astype("<u8"), built.low.astype("<u8")]).tobytes()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        _files.write(path, _digest(built.sigma, content) + content)
        for old in sorted(path.parent.glob("gaussian-*"), key=lambda file: file.stat().st_mtime)[:-_FILES]:
            old.unlink(missing_ok=True)
