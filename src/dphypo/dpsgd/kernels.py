"""Kernels in Triton for a GPU: words (numpy's Philox 4×64, keyed as on the CPU), coins, noise; patches of pictures.

The counter of a draw is (place, step): a record's number or a parameter's place, and the number of the step. Each
stream of a run has a key of its own, so that no counter is used twice with one key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dphypo import noise

try:
    import triton
    import triton.language as tl
except ImportError:  # PyTorch for CPUs alone comes without it
    triton = None

AVAILABLE = triton is not None
_BLOCK = 1024
WIDE = torch.float64  # of norms and sums


def _jit(kernel: Callable[..., Any]) -> Any:
    """A kernel whose whole numbers are arguments, not constants: they change from run to run."""
    names = ["first", "bound", "always", "size", "room", "runs", "last", "width", "bits", "count", "records"]
    taken = [name for name in kernel.__code__.co_varnames[: kernel.__code__.co_argcount] if name in names]
    return kernel if triton is None else triton.jit(kernel, do_not_specialize=taken)


@_jit
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


@_jit
def _coins(keys, first, bound, always, size, room, numbers, lengths, runs, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
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


@_jit
def _release(sums, made, keys, step, high, low, last, width, bits, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """⌊(S + V)/2^bits⌋ + Z for rounded sums S: a search for Z among the thresholds, in lexicographic order."""
    run = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < width
    k0, k1 = tl.load(keys + 2 * run).to(tl.uint64), tl.load(keys + 2 * run + 1).to(tl.uint64)
    now = tl.load(step).to(tl.uint64)
    first, second, third, _ = _philox(place.to(tl.uint64), now + (place * 0).to(tl.uint64), k0, k1)
    half = (first & 0x7FFFFFFFFFFFFFFF).to(tl.int64)
    # #{j : (half, second) < T_j}: T_j falls, T_below is above U and T_above is not.
    below = place * 0 - 1
    above = place * 0 + last
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
    tl.store(made + at, (((whole + dither) >> bits) + noisy).to(tl.float64), mask=inside)


@_jit
def _fold(  # type: ignore[no-untyped-def]
    columns,
    pictures,
    count,
    CHANNELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    SH: tl.constexpr,
    SW: tl.constexpr,
    DH: tl.constexpr,
    DW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add up the patches, [rows, places, kernel, channels], that cover a pixel; pixels are [rows, channels, ...]."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    channel, x, y = at % CHANNELS, (at // CHANNELS) % WIDTH, (at // (CHANNELS * WIDTH)) % HEIGHT
    row = at // (CHANNELS * WIDTH * HEIGHT)
    found = tl.zeros([BLOCK], dtype=columns.dtype.element_ty)
    for ky in tl.static_range(KH):
        for kx in tl.static_range(KW):
            down, right = y - ky * DH, x - kx * DW
            inside = (down >= 0) & (right >= 0) & (down % SH == 0) & (right % SW == 0) & (at < count)
            down, right = down // SH, right // SW
            place = (row * HIGH + down) * WIDE + right
            offset = (place * KH + ky) * KW + kx
            found += tl.load(
                columns + offset * CHANNELS + channel, mask=inside & (down < HIGH) & (right < WIDE), other=0
            )
    tl.store(pictures + ((row * CHANNELS + channel) * HEIGHT + y) * WIDTH + x, found, mask=at < count)


def fold(
    columns: torch.Tensor,
    sizes: Sequence[int],
    places: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:
    """Pictures of some sizes: the patches that cover a pixel, [rows × places, kernel, channels], added up."""
    made = columns.new_empty(tuple(sizes))
    grid = (triton.cdiv(made.numel(), _BLOCK),)
    _fold[grid](columns, made, made.numel(), *sizes[1:], *places, *kernel, *stride, *dilation, BLOCK=_BLOCK)
    return made


@_jit
def _squares(values, made, size, EACH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum of the squares of some numbers of a record, in the type of what is made."""
    row, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    found = tl.zeros([BLOCK], dtype=made.dtype.element_ty)
    for step in range(EACH):
        place = (split * EACH + step) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(values + row * size + place, mask=place < size, other=0.0).to(found.dtype)
        found += value * value
    tl.store(made + split * tl.num_programs(0) + row, tl.sum(found, 0))


@_jit
def _weighted(values, weights, sums, size, records, width, BLOCK: tl.constexpr, RECORDS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add the weighted sum over a run's records; a record of weight zero adds zero, NaN or not."""
    run = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = tl.zeros([BLOCK], dtype=sums.dtype.element_ty)
    for start in range(0, records, RECORDS):
        record = start + tl.arange(0, RECORDS)
        weight = tl.load(weights + run * records + record, mask=record < records, other=0.0).to(found.dtype)
        row = (run * records + record)[:, None] * size + place[None, :]
        inside = (weight != 0)[:, None] & (place < size)[None, :]
        value = tl.load(values + row, mask=inside, other=0.0).to(found.dtype)
        found += tl.sum(weight[:, None] * value, 0)
    into = sums + run * width + place
    tl.store(into, tl.load(into, mask=place < size, other=0.0) + found, mask=place < size)


def squares(values: torch.Tensor) -> torch.Tensor:
    """Σ x² over the last dimension of [runs, records, size], in double precision."""
    runs, records, size = values.shape
    each = min(16, triton.cdiv(size, _BLOCK))
    splits = triton.cdiv(size, each * _BLOCK)
    made = torch.empty((splits, runs, records), dtype=WIDE, device=values.device)
    _squares[(runs * records, splits)](values.contiguous(), made, size, EACH=each, BLOCK=_BLOCK)
    return made.sum(0)


def add_weighted(sums: torch.Tensor, values: torch.Tensor, weights: torch.Tensor) -> None:
    """Add Σ weights · values over the records to some columns of sums: [runs, size] in rows of a larger tensor."""
    runs, records, size = values.shape
    grid = (triton.cdiv(size, 64), runs)
    given = (values.contiguous(), weights.contiguous(), sums, size, records, sums.stride(0))
    _weighted[grid](*given, BLOCK=64, RECORDS=32)


def keys_of(words: Sequence[noise.Words], stream: str, device: torch.device) -> torch.Tensor:
    """The two halves of every run's Philox key for a stream, [runs, 2], as signed words."""
    keys = [one.stream(stream).key for one in words]
    halves = [[int.from_bytes(key[at : at + 8], "little", signed=True) for at in (0, 8)] for key in keys]
    return torch.tensor(halves, dtype=torch.int64, device=device)


def coins(
    keys: torch.Tensor, first: int, steps: int, rate: float, size: int, room: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The batches of some steps: numbers of records, [steps, runs, room], and how many there are, [steps, runs]."""
    runs = len(keys)
    numbers = torch.zeros((steps, runs, room), dtype=torch.int64, device=keys.device)
    lengths = torch.zeros((steps, runs), dtype=torch.int32, device=keys.device)
    bound = noise.threshold(rate)
    signed = (bound - 2**64 if bound >= 2**63 else bound) if bound < 2**64 else 0
    grid = (steps * runs,)
    _coins[grid](keys, first, signed, int(bound == 2**64), size, room, numbers, lengths, runs, BLOCK=_BLOCK)
    return numbers, lengths


class Releases:
    """Rounds sums of all runs with dither, and adds noise; both are fresh at every step."""

    def __init__(self, words: Sequence[noise.Words], deviation: float, bits: int, device: torch.device) -> None:
        table = noise.table(deviation)
        self._keys, self._bits = keys_of(words, "release", device), bits
        self._high, self._low = (
            torch.from_numpy(table.high).to(device),
            torch.from_numpy(table.low.view("int64")).to(device),
        )

    def of(self, sums: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """Whole numbers, [runs, width]; ``step`` is the number of the step, on the device."""
        runs, width = sums.shape
        made = torch.empty_like(sums)
        grid = (triton.cdiv(width, _BLOCK), runs)
        last = len(self._high) - 1
        _release[grid](
            sums.round(), made, self._keys, step, self._high, self._low, last, width, self._bits, BLOCK=_BLOCK
        )
        return made
