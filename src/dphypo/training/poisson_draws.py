"""The random draws of steps, on the CPU and some steps ahead: batches in pieces of fixed shape, dither and noise.

How many records a piece holds is public; how many pieces a step has shows about how large its batch is.

Dither and noise are added to the sum in units of h·2^−bits before it is rounded down: with a dither V, uniform on
0, …, 2^bits − 1, and noise Z, ⌊(S + V)/2^bits⌋ + Z = ⌊(S + V + 2^bits·Z)/2^bits⌋. All of it is exact in double
precision: the numbers are whole and below 2⁵³, and 2^−bits is a power of two.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dphypo import noise
from dphypo.noise.tables import I64

if TYPE_CHECKING:
    import torch

MULTIPLE = 32
"""The rows of a piece are a multiple of this. Vectorised loops then have no remainder that is computed differently, and
every piece begins at a multiple of the processor's vectors, so that a record's place changes no bit. In smaller pieces,
which save memory, records are differentiated one by one."""
_AHEAD = 2**16  # numbers of a run that are drawn at a time, at most: the table then stays in the processor's cache


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
    first += 1e-9 + 2.0**-50 * math.lgamma(records + 1)  # what the terms lose to rounding
    ratio = (records - least) * rate / ((least + 1) * (1 - rate))
    return min(1.0, math.exp(first) / (1 - ratio))


def capacity(records: int, rate: float, probability: float) -> int:
    """The smallest size that a Poisson batch exceeds with at most this probability.

    >>> capacity(60_000, 256 / 60_000, 2.0**-40)
    376
    """
    sizes = range(max(1, math.floor(records * rate)), records + 1)  # the last is large enough
    return sizes[bisect.bisect_left(sizes, True, key=lambda size: tail(records, rate, size + 1) <= probability)]


def piece_size(records: int, rate: float, at_most: int | None, shards: int = 1) -> int:
    """How many records a piece holds: those of a batch in a shard, in as many equal pieces as ``at_most`` asks for.

    A batch has more records in a shard with probability 2⁻⁴⁰, and then more pieces.

    >>> piece_size(1150, 64 / 1150, None), piece_size(1150, 64 / 1150, 50)
    (128, 32)
    >>> piece_size(50_000, 1024 / 50_000, 1024), piece_size(50_000, 1024 / 50_000, 64)
    (640, 64)
    """
    needed = capacity(math.ceil(records / shards), rate, 2.0**-40)
    piece = MULTIPLE * math.ceil(needed / MULTIPLE)
    if at_most is not None and at_most < piece:
        most = at_most if at_most < MULTIPLE else MULTIPLE * (at_most // MULTIPLE)
        count = math.ceil(needed / most)
        piece = min(most, MULTIPLE * math.ceil(needed / (count * MULTIPLE)))
    return piece


def most_pieces(batch: int, piece: int, shards: int = 1) -> int:
    """How many pieces a batch makes at most, however its records are divided over shards: Σ ⌈B_v/piece⌉, Σ B_v = B.

    >>> most_pieces(100, 32), most_pieces(100, 32, 4)
    (4, 7)
    """
    return (batch + shards * (piece - 1)) // piece


def shared_piece(records: int, rate: float) -> int:
    """How many records a piece holds where processes share the pieces: an eighth of a batch, whoever shares it.

    >>> shared_piece(60_000, 256 / 60_000), shared_piece(1150, 64 / 1150)
    (64, 32)
    """
    return MULTIPLE * math.ceil(capacity(records, rate, 2.0**-40) / (8 * MULTIPLE))


def largest_batch(records: int, rate: float) -> int:
    """The batch that sums are proven for: even twice the declared records exceed it with probability 2⁻¹⁰⁰ only."""
    return capacity(2 * records, rate, 2.0**-100)


class BatchSampler:
    """The Poisson batches of one run, of ``size`` records, which is private."""

    def __init__(self, words: noise.Words, size: int, rate: float) -> None:
        self._words, self._rate, self._size = words.stream("batches"), rate, size

    def batches(self, steps: int, shards: int = 1) -> tuple[I64, I64, I64, I64]:
        """The batches of the next steps, in order of numbers.

        For each record taken: its step, its shard, its place among the batch's records of that shard, and its number.
        """
        taken = noise.poisson_sample(self._rate, self._words, steps * self._size)
        step, number = np.divmod(taken, max(1, self._size))
        shard = shard_of(number, self._size, shards)
        part = step * shards + shard
        starts = np.searchsorted(part, np.arange(steps * shards))
        return step, shard, np.arange(len(taken)) - starts[part], number


def shard_of(numbers: I64, records: int, shards: int) -> I64:
    """In which of the shards, which are ranges of numbers of nearly equal length, records are.

    >>> shard_of(np.arange(7), 7, 3).tolist()
    [0, 0, 0, 1, 1, 2, 2]
    """
    return numbers * shards // max(1, records)


def draw(samplers: Sequence[BatchSampler], steps: int, size: int, shards: int = 1) -> tuple[I64, npt.NDArray[np.bool_]]:
    """The numbers of the records of the next steps, and which entries are records: [steps, pieces, runs, ``size``].

    A piece holds records of one shard: piece p those of shard p mod ``shards``. Those that are :func:`filled` matter.
    """
    drawn = [sampler.batches(steps, shards) for sampler in samplers]
    longest = max((int(place.max()) + 1 for _, _, place, _ in drawn if len(place)), default=0)
    shape = (steps, shards * -(-longest // size), len(drawn), size)
    numbers, valid = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
    for run, (step, shard, place, number) in enumerate(drawn):
        piece, row = np.divmod(place, size)
        piece = piece * shards + shard
        numbers[step, piece, run, row], valid[step, piece, run, row] = number, True
    return numbers, valid


def filled(valid: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which pieces, [..., runs, size], have a record of any run: the sum of any other piece is exactly zero."""
    return np.any(valid, axis=(-2, -1))  # type: ignore[no-any-return]


class Draws:
    """V + 2^bits·Z for every parameter of every run, fresh at each step, with Z = ⌊N + ½⌋ and N ∼ N(0, deviation²).

    To bound memory, several steps are drawn at a time if parameters are few, and ranges of parameters if they are many.
    """

    def __init__(self, words: Sequence[noise.Words], width: int, deviation: float, bits: int) -> None:
        self._streams = [(one.stream("dither"), one.stream("noise")) for one in words]
        self._table, self._bits = noise.table(deviation), bits
        self._ahead = max(1, min(32, _AHEAD // width))
        starts = range(0, width, _AHEAD)
        self._ranges = [slice(start, min(start + _AHEAD, width)) for start in starts]
        self._waiting: list[npt.NDArray[np.float64]] = []

    def release(self, sums: torch.Tensor) -> torch.Tensor:
        """Round sums, [runs, width] in units of h·2^−bits, to the grid with dither, and add noise; in place."""
        import torch

        for some in self._ranges:
            drawn, part = torch.from_numpy(self._next(some)).to(sums.device), sums[:, some]
            part.round_().add_(drawn).mul_(2.0**-self._bits).floor_()
        return sums

    def skip(self, steps: int) -> None:
        """Pass over the next steps."""
        for _ in range(steps):
            for some in self._ranges:
                self._next(some)

    def draw(self) -> npt.NDArray[np.float64]:
        """V + 2^bits·Z of the next step, [runs, width]."""
        return np.concatenate([self._next(some) for some in self._ranges], axis=1)

    def _next(self, some: slice) -> npt.NDArray[np.float64]:
        """The numbers of the next range of parameters."""
        if not self._waiting:
            self._waiting = list(self._block(some.stop - some.start).swapaxes(0, 1))
        return self._waiting.pop(0)

    def _block(self, width: int) -> npt.NDArray[np.float64]:
        size = self._ahead * width
        made = np.empty((len(self._streams), size))
        for row, (dither, gaussian) in zip(made, self._streams, strict=True):
            bits = gaussian.draw(-(-size // 2)).view(np.int32)[:size]
            np.multiply(self._table.draw(bits, gaussian), 2.0**self._bits, out=row)
            row += dither.draw(-(-size // 4)).view(np.uint16)[:size] >> np.uint16(16 - self._bits)
        return made.reshape(len(self._streams), self._ahead, width)
