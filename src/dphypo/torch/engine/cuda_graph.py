"""On a GPU: batches and noise are drawn there, and a step is captured once as a CUDA graph and replayed.

What differs between steps (the batch, dither and noise, masks, the learning rate) is looked up or drawn by the number
of the step, which the graph itself increments on the device. Triton kernels compute the words of numpy's Philox 4×64,
with the keys of the CPU. The counter of a draw is (place, step): a record's number or a parameter's place, and the
number of the step. Each stream of a run has its own key, so no counter is used twice with the same key.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from dphypo import noise
from dphypo.torch.engine.batch_rows import Piece, Tensors, gathered
from dphypo.training.setting import Run

try:
    import triton
    import triton.language as tl
except ImportError:  # PyTorch for CPUs alone comes without it
    triton = None

AVAILABLE = triton is not None
_BLOCK = 1024
_FEW = 128  # numbers of one program that searches: all of them wait for the slowest
_CELLS = 17  # bits of a cell of the guide into the thresholds
_AHEAD, _NUMBERS = 64, 2**22  # steps, and numbers of records, that are drawn at a time, at most
_WARM = 2  # steps that are executed before a step with as many pieces is captured


def jit(kernel: Callable[..., Any]) -> Any:
    """A kernel whose integers are arguments, not constants, because they differ between runs."""
    names = {"first", "bound", "always", "size", "room", "runs", "last", "width", "bits", "records", "planes"}
    taken = names.intersection(kernel.__code__.co_varnames[: kernel.__code__.co_argcount])
    return kernel if triton is None else triton.jit(kernel, do_not_specialize=sorted(taken))


@jit
def _philox(c0, c1, k0, k1):  # type: ignore[no-untyped-def]
    """The four words of Philox 4×64-10 at the counter (c0, c1, 0, 0)."""
    c2 = c1 * 0
    c3 = c1 * 0
    for _ in tl.static_range(10):
        high, low = tl.umulhi(c0, 0xD2E7470EE14C6C93), c0 * 0xD2E7470EE14C6C93
        other, rest = tl.umulhi(c2, 0xCA5A826395121157), c2 * 0xCA5A826395121157
        c0, c1, c2, c3 = other ^ c1 ^ k0, rest, high ^ c3 ^ k1, low
        k0 += 0x9E3779B97F4A7C15
        k1 += 0xBB67AE8584CAA73B
    return c0, c1, c2, c3


@jit
def _coins(  # type: ignore[no-untyped-def]
    keys, first, bound, always, size, room, numbers, lengths, runs, BLOCK: tl.constexpr
):
    """One program for each step and run: the numbers of the records whose word is below the bound, in order."""
    at = tl.program_id(0)
    run, step = at % runs, first + at // runs
    k0, k1 = tl.load(keys + 2 * run).to(tl.uint64), tl.load(keys + 2 * run + 1).to(tl.uint64)
    found = 0
    for start in range(0, size, BLOCK):
        record = start + tl.arange(0, BLOCK)
        word, _, _, _ = _philox(record.to(tl.uint64), (record * 0 + step).to(tl.uint64), k0, k1)
        taken = (((word < bound.to(tl.uint64)) | (always != 0)) & (record < size)).to(tl.int32)
        place = found + tl.cumsum(taken, 0) - taken
        tl.store(numbers + at.to(tl.int64) * room + place, record.to(tl.int64), mask=(taken != 0) & (place < room))
        found += tl.sum(taken, 0)
    tl.store(lengths + at, found)


@jit
def _release(  # type: ignore[no-untyped-def]
    sums, keys, step, high, low, guide, last, width, bits, CELL: tl.constexpr, BLOCK: tl.constexpr
):
    """⌊(S + V)/2^bits⌋ + Z in place of rounded sums S: a search for Z among the thresholds, in lexicographic order."""
    run = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < width
    k0, k1 = tl.load(keys + 2 * run).to(tl.uint64), tl.load(keys + 2 * run + 1).to(tl.uint64)
    now = tl.load(step).to(tl.uint64)
    first, second, third, _ = _philox(place.to(tl.uint64), now + (place * 0).to(tl.uint64), k0, k1)
    half = (first & 0x7FFFFFFFFFFFFFFF).to(tl.int64)
    # #{j : (half, second) < T_j}: T_j falls, T_below is above U and T_above is not. The guide says how many thresholds
    # lie above the beginning and the end of the cell that U is in.
    cell = (half >> CELL).to(tl.int32)
    below = tl.load(guide + cell + 1) - 1
    above = tl.minimum(tl.load(guide + cell), last)
    while tl.max(above - below, 0) > 1:
        middle = tl.maximum((below + above) // 2, 0)
        one, two = tl.load(high + middle), tl.load(low + middle).to(tl.uint64, bitcast=True)
        less = (half < one) | ((half == one) & (second < two))
        below = tl.where(less & (above - below > 1), middle, below)
        above = tl.where(less | (above - below <= 1), above, middle)
    noisy = tl.where((first >> 63) == 0, -above, above).to(tl.int64)
    dither = (third >> (64 - bits).to(tl.uint64)).to(tl.int64)
    at = run.to(tl.int64) * width + place
    whole = tl.load(sums + at, mask=inside, other=0.0).to(tl.int64)
    tl.store(sums + at, (((whole + dither) >> bits) + noisy).to(tl.float64), mask=inside)


def keys_of(words: Sequence[noise.Words], stream: str, device: torch.device) -> torch.Tensor:
    """The two halves of every run's Philox key for a stream, [runs, 2], as signed words."""
    keys = [one.stream(stream).key for one in words]
    halves = [[int.from_bytes(key[at : at + 8], "little", signed=True) for at in (0, 8)] for key in keys]
    return torch.tensor(halves, dtype=torch.int64, device=device)


def coins(
    keys: torch.Tensor, first: int, steps: int, rate: float, size: int, room: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The batches of some steps: numbers of records, [steps, runs, room], and how many they are, [steps, runs]."""
    runs = len(keys)
    numbers = torch.zeros((steps, runs, room), dtype=torch.int64, device=keys.device)
    lengths = torch.zeros((steps, runs), dtype=torch.int32, device=keys.device)
    bound = noise.threshold(rate)
    signed = (bound - 2**64 if bound >= 2**63 else bound) if bound < 2**64 else 0
    grid = (steps * runs,)
    _coins[grid](keys, first, signed, int(bound == 2**64), size, room, numbers, lengths, runs, BLOCK=_BLOCK)
    return numbers, lengths


@functools.lru_cache(maxsize=8)
def _thresholds(deviation: float, device: torch.device) -> Sequence[torch.Tensor]:
    """The two words of every threshold, and how many lie above the beginning of every cell."""
    table = noise.table(deviation)
    starts = np.arange(2**_CELLS, dtype=np.int64) << (63 - _CELLS)
    guide = np.append(len(table.high) - np.searchsorted(table.rising, starts, side="left"), 0).astype(np.int32)
    return [torch.from_numpy(part).to(device) for part in (table.high, table.low.view(np.int64), guide)]


def on_device(rows: torch.Tensor, records: object, runs: Sequence[Run]) -> bool:
    """Whether batches and noise can be drawn on the device: needs Triton, records in its memory, and one rate."""
    near = isinstance(records, Tensors) and records.inputs.device == rows.device and len(records) > 0
    alike = all(run.rate == runs[0].rate for run in runs)
    return AVAILABLE and near and alike


class DeviceBatches:
    """The rows of each step, as in :class:`dphypo.torch.engine.batch_rows.Batches`, drawn on the device.

    Batches have at most ``most`` records. ``keys`` are those of the streams "batches", and ``cursor`` is the number of
    the step, on the device.
    """

    def __init__(
        self,
        records: Any,
        keys: torch.Tensor,
        rate: float,
        size: int,
        most: int,
        cursor: torch.Tensor,
        mine: Callable[[int], Sequence[int]] = range,
    ) -> None:
        self._records, self._keys, self._rate, self._cursor, self._mine = records, keys, rate, cursor, mine
        self._size, self.count = size, 0  # pieces of the step that was drawn last
        room = size * -(-most // size)  # whole pieces
        self._ahead = max(1, min(_AHEAD, _NUMBERS // (len(keys) * room)))
        self._numbers = torch.zeros((self._ahead, len(keys), room), dtype=torch.int64, device=keys.device)
        self._lengths = torch.zeros((self._ahead, len(keys)), dtype=torch.int32, device=keys.device)
        self._places = torch.arange(room, device=keys.device)
        self._longest: list[int] = []

    def skip(self, steps: int) -> None:
        """Draw the block of the step that follows this many steps."""
        self.draw(steps - steps % self._ahead)

    def draw(self, step: int) -> None:
        """Prepare the batch of a step. The first step of a block draws the whole block."""
        if step % self._ahead == 0:
            rooms = self._numbers.shape[2]
            drawn = coins(self._keys, step, self._ahead, self._rate, len(self._records), rooms)
            for into, part in zip((self._numbers, self._lengths), drawn, strict=True):
                into.copy_(part)
            self._longest = drawn[1].max(1).values.tolist()
            if max(self._longest) > rooms:
                raise RuntimeError("a batch is larger than twice the declared records can give")
        self.count = -(-self._longest[step % self._ahead] // self._size)

    def pieces(self) -> list[Piece]:
        """The pieces of the step at the cursor."""
        at = self._cursor % self._ahead
        numbers, lengths = (part.index_select(0, at)[0] for part in (self._numbers, self._lengths))
        valid = self._places < lengths[:, None]
        ranges = [slice(start, start + self._size) for start in range(0, self.count * self._size, self._size)]
        mine = [ranges[piece] for piece in self._mine(self.count)]
        return [gathered(self._records, numbers[:, some], valid[:, some]) for some in mine]


class DeviceDraws:
    """Dither and noise of the step at the cursor, drawn on the device from the stream "release" of each run."""

    def __init__(self, words: Sequence[noise.Words], deviation: float, bits: int, cursor: torch.Tensor) -> None:
        self._keys, self._bits, self._cursor = keys_of(words, "release", cursor.device), bits, cursor
        self._high, self._low, self._guide = _thresholds(deviation, cursor.device)

    def release(self, sums: torch.Tensor) -> torch.Tensor:
        """Round sums, [runs, width], with dither, and add noise, in place; both are fresh at every step."""
        runs, width = sums.shape
        grid = (triton.cdiv(width, _FEW), runs)
        last = len(self._high) - 1
        held = (self._keys, self._cursor, self._high, self._low, self._guide, last, width, self._bits)
        _release[grid](sums.round_(), *held, CELL=63 - _CELLS, BLOCK=_FEW)
        return sums

    def skip(self, steps: int) -> None:
        """Nothing is drawn ahead."""


def replay(
    batches: DeviceBatches,
    step: Callable[[], None],
    steps: range,
    *,
    capture: bool,
    on_step: Callable[[int], None] | None = None,
) -> None:
    """Execute the steps of a group by replaying captured ones; ``on_step`` is called with the number of steps so far.

    There is a graph for each number of pieces. The first steps of each number are executed without a graph, and so are
    all steps if ``capture`` is false. Graphs share their memory: a step leaves nothing there that another one reads.
    """
    stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()  # type: ignore[no-untyped-call]
    seen: Counter[int] = Counter()
    graphs: dict[int, torch.cuda.CUDAGraph] = {}
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for number in steps:
            batches.draw(number)
            seen[batches.count] += 1
            if not capture or seen[batches.count] <= _WARM:
                step()
            else:
                if batches.count not in graphs:
                    graphs[batches.count] = graph = torch.cuda.CUDAGraph()
                    graph.capture_begin(pool)  # torch.cuda.graph would give memory back before
                    try:
                        step()
                    finally:
                        graph.capture_end()
                graphs[batches.count].replay()
            if on_step is not None:
                on_step(number + 1)
    torch.cuda.current_stream().wait_stream(stream)
