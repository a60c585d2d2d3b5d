"""Triton kernels for layers on a GPU: patches, windows and sums that read every number once.

Pictures have C channels of H × W pixels; a kernel of KH × KW with stride SH, SW has HIGH × WIDE places. The results
for a record depend on no other record, and the record's place only affects addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from dphypo.torch.engine.cuda_graph import AVAILABLE as AVAILABLE
from dphypo.torch.engine.cuda_graph import jit

if AVAILABLE:
    import triton
    import triton.language as tl

_BLOCK, _MANY = 1024, 2**16


@jit
def _unfold(  # type: ignore[no-untyped-def]
    pictures, columns, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The patches of a row, [places, channels, kernel]."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    place, channel, ky, kx = at // (C * KH * KW), (at // (KH * KW)) % C, (at // KW) % KH, at % KW
    y, x, inside = (place // WIDE) * SH + ky, (place % WIDE) * SW + kx, place < HIGH * WIDE
    value = tl.load(pictures + row * (C * H * W) + (channel * H + y) * W + x, mask=inside, other=0.0)
    tl.store(columns + row * (HIGH * WIDE * C * KH * KW) + at, value, mask=inside)


@jit
def _fold(  # type: ignore[no-untyped-def]
    columns, pictures, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
):  # fmt: skip
    """Add up the patches, [places, kernel, channels], that cover a pixel of a row; pixels are [channels, ...].

    PIXELS by CHANNELS at a time: numbers are read along the channels, and written along the pixels.
    """
    row = tl.program_id(0).to(tl.int64)
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)[:, None]
    channel = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    x, y, within = pixel % W, pixel // W, (pixel < H * W) & (channel < C)
    patches = columns + row * (HIGH * WIDE * KH * KW * C)
    found = tl.zeros([PIXELS, CHANNELS], dtype=columns.dtype.element_ty)
    for i in tl.static_range((KH + SH - 1) // SH):
        for j in tl.static_range((KW + SW - 1) // SW):
            ky, kx, down, right = y % SH + i * SH, x % SW + j * SW, y // SH - i, x // SW - j
            inside = (ky < KH) & (kx < KW) & (down >= 0) & (down < HIGH) & (right >= 0) & (right < WIDE) & within
            offset = (((down * WIDE + right) * KH + ky) * KW + kx) * C + channel
            found += tl.load(patches + offset, mask=inside, other=0.0)
    tl.store(pictures + row * (C * H * W) + channel * (H * W) + pixel, found, mask=within)


@jit
def _pool(  # type: ignore[no-untyped-def]
    pictures, made, taken, planes, H: tl.constexpr, W: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The largest number of each window of some planes, and which it is; NaN is larger than all."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    first, local = start // (HIGH * WIDE), (start % (HIGH * WIDE)).to(tl.int32) + tl.arange(0, BLOCK)
    plane, at = local // (HIGH * WIDE), local % (HIGH * WIDE)
    corner = pictures + first * (H * W) + (plane * (H * W) + (at // WIDE) * SH * W + (at % WIDE) * SW)
    inside = first + plane < planes
    best = tl.load(corner, mask=inside, other=0.0)
    which = at * 0
    for k in tl.static_range(1, KH * KW):
        value = tl.load(corner + (k // KW) * W + k % KW, mask=inside, other=0.0)
        better = (value > best) | (value != value)
        best, which = tl.where(better, value, best), tl.where(better, k, which)
    into = start + tl.arange(0, BLOCK)
    tl.store(made + into, best, mask=inside)
    tl.store(taken + into, which.to(tl.int8), mask=inside)


@jit
def _unpool(  # type: ignore[no-untyped-def]
    gradient, taken, made, planes, H: tl.constexpr, W: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of the pixels of some planes: of every window whose largest number they are."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    first, local = start // (H * W), (start % (H * W)).to(tl.int32) + tl.arange(0, BLOCK)
    plane, y, x = local // (H * W), (local % (H * W)) // W, local % (H * W) % W
    within = first + plane < planes
    found = tl.zeros([BLOCK], dtype=made.dtype.element_ty)
    for i in tl.static_range((KH + SH - 1) // SH):
        for j in tl.static_range((KW + SW - 1) // SW):
            ky, kx, down, right = y % SH + i * SH, x % SW + j * SW, y // SH - i, x // SW - j
            inside = (ky < KH) & (kx < KW) & (down >= 0) & (down < HIGH) & (right >= 0) & (right < WIDE) & within
            window = first * (HIGH * WIDE) + (plane * (HIGH * WIDE) + down * WIDE + right)
            which = tl.load(taken + window, mask=inside, other=-1).to(tl.int32)
            found += tl.load(gradient + window, mask=inside & (which == ky * KW + kx), other=0.0)
    tl.store(made + start + tl.arange(0, BLOCK), found, mask=within)


@jit
def _squares(values, made, size, EACH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum of the squares of some numbers of a record, in the type of what is made."""
    row, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    found = tl.zeros([BLOCK], dtype=made.dtype.element_ty)
    for step in range(EACH):
        place = (split * EACH + step) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(values + row * size + place, mask=place < size, other=0.0).to(found.dtype)
        found += value * value
    tl.store(made + split * tl.num_programs(0) + row, tl.sum(found, 0))


@jit
def _weighted(  # type: ignore[no-untyped-def]
    values, weights, sums, size, records, width, BLOCK: tl.constexpr, RECORDS: tl.constexpr
):
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


def _launch(kernel: Any, grid: tuple[int, ...], *given: Any, **sizes: int) -> None:
    """Start a kernel, unless its tensors have no values: there would be no memory to read."""
    if not isinstance(given[0], FakeTensor):
        kernel[grid](*given, **sizes)


def unfold(pictures: torch.Tensor, places: Sequence[int], kernel: Sequence[int], stride: Any) -> torch.Tensor:
    """The patches of pictures, [rows, places, channels × kernel]."""
    rows, channels = pictures.shape[:2]
    columns = pictures.new_empty((rows, places[0] * places[1], channels * kernel[0] * kernel[1]))
    grid = (rows, triton.cdiv(columns[0].numel(), _BLOCK))
    _launch(_unfold, grid, pictures.contiguous(), columns, *pictures.shape[1:], *places, *kernel, *stride, BLOCK=_BLOCK)
    return columns


def fold(columns: torch.Tensor, sizes: Sequence[int], places: Sequence[int], kernel: Any, stride: Any) -> torch.Tensor:
    """Pictures of some sizes: the patches that cover a pixel, [rows × places, kernel, channels], added up."""
    made = columns.new_empty(tuple(sizes))
    channels = min(32, triton.next_power_of_2(sizes[1]))
    pixels = _BLOCK // channels
    grid = (sizes[0], triton.cdiv(sizes[2] * sizes[3], pixels), triton.cdiv(sizes[1], channels))
    _launch(_fold, grid, columns, made, *sizes[1:], *places, *kernel, *stride, PIXELS=pixels, CHANNELS=channels)
    return made


def pool(pictures: torch.Tensor, kernel: tuple[int, int], stride: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest number of each window of [rows, channels, height, width], and which it is."""
    sizes = pictures.shape[2:]
    places = [(size - side) // step + 1 for size, side, step in zip(sizes, kernel, stride, strict=True)]
    made = pictures.new_empty((*pictures.shape[:2], *places))
    taken = torch.empty(made.shape, dtype=torch.int8, device=made.device)
    grid, planes = (triton.cdiv(made.numel(), _BLOCK),), pictures.shape[0] * pictures.shape[1]
    _launch(_pool, grid, pictures.contiguous(), made, taken, planes, *sizes, *places, *kernel, *stride, BLOCK=_BLOCK)
    return made, taken


def unpool(
    gradient: torch.Tensor, taken: torch.Tensor, sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int]
) -> torch.Tensor:
    """The gradient of pictures of these sizes from that of their largest numbers."""
    made = gradient.new_empty((*gradient.shape[:2], *sizes))
    grid, planes = (triton.cdiv(made.numel(), _BLOCK),), gradient.shape[0] * gradient.shape[1]
    given = (*sizes, *gradient.shape[2:], *kernel, *stride)
    _launch(_unpool, grid, gradient.contiguous(), taken.contiguous(), made, planes, *given, BLOCK=_BLOCK)
    return made


def squares(values: torch.Tensor) -> torch.Tensor:
    """Σ x² over the last dimension of [runs, records, size], in double precision."""
    runs, records, size = values.shape
    each = min(16, triton.cdiv(size, _BLOCK))
    splits = triton.cdiv(size, each * _BLOCK)
    made = torch.empty((splits, runs, records), dtype=torch.float64, device=values.device)
    _launch(_squares, (runs * records, splits), values.contiguous(), made, size, EACH=each, BLOCK=_BLOCK)
    return made[0] if splits == 1 else made.sum(0)


def add_weighted(sums: torch.Tensor, values: torch.Tensor, weights: torch.Tensor) -> None:
    """Add Σ weights · values over the records to some columns of sums: [runs, size] in rows of a larger tensor."""
    runs, records, size = values.shape
    block = 16 if runs * size < _MANY else 64  # few programs would leave most of the device idle
    given = (values.contiguous(), weights.contiguous(), sums, size, records, sums.stride(0))
    _launch(_weighted, (triton.cdiv(size, block), runs), *given, BLOCK=block, RECORDS=2048 // block)
