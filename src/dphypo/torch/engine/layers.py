"""Layers: products of several runs, norms and sums of per-record gradients, convolutions.

**Products.** On a CPU every run's product is a separate call, with the same shapes as if the run were alone, so that
the run ends in the same bits alone and among others. On a GPU there is one batched product.

**Linear layers**: x ↦ xWᵀ + b on the last dimension, for any number of positions; also x @ W, b + x @ W and embeddings.

With inputs a_l and output gradients g_l at the positions l of a record, its gradient is Σ_l g_l a_lᵀ, and Σ_l g_l for
the bias. Its norm is computed in one of three ways; p and r are the widths, and L is the number of positions:

* L = 1: ‖a‖²‖g‖², with the bias (‖a‖² + 1)‖g‖², and A is the norm itself.
* *ghost*, 2L² < pr: n̂² = Σ_{l,l′} ⟨a_l, a_l′⟩⟨g_l, g_l′⟩ in double precision. The terms cancel, so the bound is
  n̄² = max(0, n̂²) + γ(p + r + L² + 4)·A², A = Σ_l ‖a_l‖‖g_l‖.
* *held* otherwise: from the gradients themselves (:func:`held`). A GPU, whose memory is slow, also computes them if
  they have less than five times as many numbers as their factors.

An embedding is a linear layer on one-hot inputs. With t_l the token at position l, A = Σ_l ‖g_l‖ and
n̂² = Σ_{l,l′ : t_l = t_l′} ⟨g_l, g_l′⟩, summed over l′, then over l and the width r: n̄² = max(0, n̂²) + γ(Lr + L + 4)·A².
A record with a token that the table has no row for counts zero.

**Convolutions** in one and two dimensions are linear layers on the patches of a picture, with one position per place.
They are separate operators of graphs, on pictures [runs, rows, channels, height, width] without padding and one kernel
per run, because PyTorch turns those of many runs into grouped convolutions, which are slow. On a CPU every run's
convolution is a separate call. On a GPU it is a product of patches, with kernels that are faster than PyTorch's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.nn import functional

from dphypo.torch.engine import kernels
from dphypo.torch.engine.clipped_sum import RecordGradients, Slot, Sums
from dphypo.training.sum_on_grid import UNIT

_TINY = 2.0**-300
_TILE = 16
_LESS = 5  # a GPU computes gradients with fewer times as many numbers as their factors
_CHUNK = 2**24  # numbers converted to double precision at a time


def product(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """left · right of every run, plus its bias: [runs, rows, width] · [runs, width, columns] + [runs, 1, columns]."""
    if left.is_cuda or left.dtype not in (torch.float32, torch.float64):
        return torch.bmm(left, right) if bias is None else torch.baddbmm(bias, left, right)
    return product_by_run()(left, right.unbind(), None if bias is None else bias.unbind())


def product_by_run() -> Callable[..., torch.Tensor]:
    """:func:`product` on a CPU at one shape, for matrices and biases run by run; the first call finds its way."""
    way: Way | None = None

    def by_run(
        left: torch.Tensor, matrices: Sequence[torch.Tensor], shifts: Sequence[torch.Tensor] | None = None
    ) -> torch.Tensor:
        nonlocal way
        first = matrices[0]
        if way is None:
            way = _way(left.shape[1:], first.shape, first.stride(0) >= first.stride(1), left.dtype)
        if way is torch.mm and len(matrices) == 1:
            one = left.squeeze(0)
            return (torch.mm(one, first) if shifts is None else torch.addmm(shifts[0], one, first)).unsqueeze(0)
        made = left.new_empty((len(matrices), left.shape[1], first.shape[1]))
        for at, (one, matrix, into) in enumerate(zip(left.unbind(), matrices, made.unbind(), strict=True)):
            if way is not torch.mm:
                into.copy_(way(one, matrix) if shifts is None else way(one, matrix).add_(shifts[at]))
            elif shifts is None:
                torch.mm(one, matrix, out=into)
            else:
                torch.addmm(shifts[at], one, matrix, out=into)
        return made

    return by_run


def steady_product(records: int) -> Callable[..., torch.Tensor]:
    """left · right on a GPU at one shape, plus a bias; in each run, the rows of ``left`` belong to ``records`` records.

    A library may compute the tiles of one large product in different ways, but those of a batch of products in the same
    way. So if a record's place changes a bit, each record has its own product. The first call tests this.
    """
    together: bool | None = None

    def made(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        nonlocal together
        if together is None:
            together = steady(left, right, bias, records)
        return _together(left, right, bias) if together else _by_record(left, right, bias, records)

    return made


def _together(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    if left.dim() == 2:
        return torch.mm(left, right) if bias is None else torch.addmm(bias, left, right)
    if len(left) == 1:
        return _together(left[0], right[0], None if bias is None else bias[0, 0])[None]
    return torch.bmm(left, right) if bias is None else torch.baddbmm(bias, left, right)


def _by_record(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None, records: int) -> torch.Tensor:
    made = left.new_empty((*left.shape[:-1], right.shape[-1]))
    runs = (left, right, made) if left.dim() == 3 else (left[None], right[None], made[None])
    for one, matrix, into in zip(*runs, strict=True):
        rows, width = one.reshape(records, -1, one.shape[-1]), into.shape[-1]
        torch.bmm(rows, matrix.expand(records, *matrix.shape), out=into.view(records, -1, width))
    return made if bias is None else made.add_(bias)


def steady(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None, records: int) -> bool:
    """Whether the place of a record changes no bit of the product of all records, on random numbers."""
    generator = torch.Generator(left.device).manual_seed(0)

    def random(like: torch.Tensor) -> torch.Tensor:
        like = like if all(like.stride()) else like.contiguous()
        made = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
        return made.copy_(torch.randn(like.shape, generator=generator, dtype=like.dtype, device=like.device))

    given, matrix = random(left), random(right)
    made = _together(given, matrix, bias)
    each = torch.arange(left.shape[-2], device=left.device).view(records, -1)
    for order in (each.roll(records // 3 + 1, 0), each.roll(1, 0), each.flip(0)):
        moved = random(left).copy_(given.index_select(-2, order.flatten()))
        if not torch.equal(made.index_select(-2, order.flatten()), _together(moved, matrix, bias)):
            return False
    return True


Way = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_WAYS: tuple[Way, ...] = (
    torch.mm,
    lambda left, right: torch.mm(right.t(), left.t()).t(),  # rows as columns
    lambda left, right: torch.mm(left, tiled(right))[:, : right.shape[1]],  # columns filled up
)


@functools.cache
def _way(left_size: torch.Size, right_size: torch.Size, by_rows: bool, dtype: torch.dtype) -> Way:
    """The fastest way to compute a product in which a row's place changes no bit, found with random numbers.

    Libraries compute the last columns of an odd width, or the last rows, with other kernels than the rest.
    """
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, generator=generator, dtype=dtype) for size in (left_size, right_size))
    right = right if by_rows else right.t().contiguous().t()
    places = [torch.arange(len(left)).roll(len(left) // 3 + 1), torch.arange(len(left)).flip(0)]
    for way in _WAYS:
        made = way(left, right)
        if all(torch.equal(made[order], way(left[order], right)) for order in places):
            return way
    return lambda left, right: (left[:, :, None] * right).sum(1)


def tiled(values: torch.Tensor, *, on_gpu: bool = False) -> torch.Tensor:
    """Pad the last dimension with zeros, so that rows begin at multiples of 64 bytes.

    A CPU needs this for products of single records. A GPU adds up a long row in another order if it begins elsewhere.
    """
    rest = -values.shape[-1] % _TILE
    return torch.nn.functional.pad(values, (0, rest)) if rest and values.is_cuda is on_gpu else values


def added(values: torch.Tensor) -> torch.Tensor:
    """The sum over the last dimension, whose bits do not depend on the place of a row."""
    return tiled(values, on_gpu=True).sum(-1)


def squared(values: torch.Tensor) -> torch.Tensor:
    """The sum of the squares over the last dimension, whose bits do not depend on the place of a row."""
    norms: torch.Tensor = torch.linalg.vector_norm(tiled(values, on_gpu=True), dim=-1)
    return norms.square_()


def cat(values: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    """Concatenate tensors; a single one is not copied."""
    return values[0] if len(values) == 1 else torch.cat(list(values), dim)


def add_outer(sums: Sums, slot: Slot, left: torch.Tensor, right: torch.Tensor) -> None:
    """Add left[k]ᵀ · right[k] to a slot of the sums, [runs, columns of left, columns of right], in double precision."""
    if left.is_cuda:
        sums.at(slot, left.shape[-1], right.shape[-1]).baddbmm_(left.transpose(1, 2), right)
        return
    each = sums.each(slot, left.shape[-1], right.shape[-1])
    for into, one, other in zip(each, left.transpose(1, 2).unbind(), right.unbind(), strict=True):
        into.addmm_(one, other)


def wide(values: torch.Tensor) -> torch.Tensor:
    """A copy in double precision for norms and sums, which may be overwritten."""
    copied = values.to(torch.float64, copy=True)
    return without_tiny_(copied) if values.dtype == torch.float64 else copied


def without_tiny_(values: torch.Tensor) -> torch.Tensor:
    """Zero, in place, factors whose squares underflow although the product of two factors does not."""
    return values.masked_fill_(values.abs() < _TINY, 0.0)


def finite_(values: torch.Tensor) -> torch.Tensor:
    """Zero what is not finite, in place: it belongs to records of weight zero, and 0 · NaN would be NaN."""
    return values.nan_to_num_(0.0, 0.0, 0.0)


def weighted_(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Multiply every record's gradients by its weight, in place; with weight zero they become zero, even if NaN."""
    return finite_(values.mul_(weights.view(*weights.shape, *[1] * (values.dim() - 2))))


def held(slot: Slot, gradients: torch.Tensor) -> RecordGradients:
    """The part with the gradients ``[runs, records, ...]``, which have as many numbers as the slot.

    n̄² is the computed sum of d squares times 1 + (d + 8)u. A = n̄, because the gradients are the contributions
    themselves: no terms of a record cancel.
    """
    flat = gradients.reshape(*gradients.shape[:2], -1)  # of a parameter without dimensions, too
    runs, records, size = flat.shape
    step = max(1, _CHUNK // max(1, runs * size))
    blocks = [slice(start, start + step) for start in range(0, records, step)]
    by_kernels = flat.is_cuda and kernels.AVAILABLE
    squares = [kernels.squares(flat)] if by_kernels else [squared(wide(flat[:, block])) for block in blocks]

    def add(weights: torch.Tensor, sums: Sums) -> None:
        if by_kernels:
            kernels.add_weighted(slot.of(sums.rows), flat, weights)
            return
        for block in blocks:
            add_outer(sums, slot, weights[:, block, None], finite_(wide(flat[:, block])))

    return RecordGradients((slot,), 1, cat(squares, 1) * (1 + (size + 8) * UNIT), None, (flat,), add)


def outer(weight: Slot, bias: Slot | None, inputs: torch.Tensor, gradients: torch.Tensor) -> list[RecordGradients]:
    """The parts of a weight [outputs, inputs], and of its bias.

    ``inputs`` and ``gradients`` are a and g, [runs, records, positions, width].
    """
    positions, p, r = *inputs.shape[2:], gradients.shape[-1]
    if positions == 1:
        return [_single(weight, bias, wide(inputs.squeeze(2)), wide(gradients.squeeze(2)))]
    left, right = gradients, inputs
    single = torch.promote_types(torch.promote_types(left.dtype, right.dtype), torch.float32)
    biases = [] if bias is None else [held(bias, gradients.sum(2, dtype=single))]
    if 2 * positions**2 >= p * r or (inputs.is_cuda and _LESS * positions * (p + r) >= p * r):
        whole = tiled(left.to(single)).transpose(2, 3) @ tiled(right.to(single))
        return [held(weight, whole[..., : left.shape[-1], : right.shape[-1]]), *biases]
    left, right = wide(left), wide(right)
    one, two = (some @ some.transpose(2, 3) for some in (tiled(left), tiled(right)))  # all inner products
    lengths = one.diagonal(dim1=2, dim2=3) * two.diagonal(dim1=2, dim2=3)  # [runs, records, positions]
    spread = added(lengths.sqrt()) * (1 + (p + r + positions + 8) * UNIT)
    terms = (p + r + positions**2 + 4) * UNIT
    square = added(one.mul_(two).flatten(2)).clamp_min(0) + terms / (1 - terms) * spread.square()

    def add(weights: torch.Tensor, sums: Sums) -> None:
        add_outer(sums, weight, weighted_(left, weights).flatten(1, 2), finite_(right).flatten(1, 2))

    return [RecordGradients((weight,), positions, square, spread, (left, right), add), *biases]


def _single(weight: Slot, bias: Slot | None, inputs: torch.Tensor, gradients: torch.Tensor) -> RecordGradients:
    """One position: the norm is a product of two, and nothing cancels."""
    p, r = inputs.shape[-1], gradients.shape[-1]
    one, two = (squared(values) for values in (inputs, gradients))
    square = (one if bias is None else one.add_(1)).mul_(two).mul_(1 + 2 * (p + r + 16) * UNIT)

    def add(weights: torch.Tensor, sums: Sums) -> None:
        given, seen = weighted_(gradients, weights), finite_(inputs)
        add_outer(sums, weight, given, seen)
        if bias is not None:
            sums.at(bias, bias.size).add_(given.sum(1))

    slots = (weight,) if bias is None else (weight, bias)
    return RecordGradients(slots, 1, square, None, (inputs, gradients), add)


class Singles:
    """Several layers of one position, all with a bias or none, on a CPU: fewer calls, on numbers that stay in a cache.

    Norms and sums are made run by run, in memory that is kept: what one call gives is valid until the next.

    Args:
        slots: of the layers' weights and biases.
        factors: their inputs, then their gradients, [runs, records, width] each, for shape and type.
    """

    @torch.inference_mode(False)
    def __init__(self, slots: Sequence[tuple[Slot, Slot | None]], factors: Sequence[torch.Tensor]) -> None:
        self._slots, count, widths = slots, len(slots), [values.shape[-1] for values in factors]
        runs, records = factors[0].shape[:2]
        both = torch.empty((runs, records, sum(widths)), dtype=torch.float64)
        squares = torch.empty_like(both[0])
        self._parts, self._squares, self._each = both.split_with_sizes(widths, -1), squares, both.unbind()
        self._lengths = both.new_empty((2 * count, runs, records))
        self._sums = [
            list(zip(squares.split_with_sizes(widths, -1), some, strict=True)) for some in self._lengths.unbind(1)
        ]
        self._given = both[..., sum(widths[:count]) :].unbind()
        self._biased = slots[0][1] is not None
        self._double = any(values.dtype == torch.float64 for values in factors)
        longest = max(p + r for p, r in zip(widths[:count], widths[count:], strict=True))
        self._margin = 1 + 2 * (longest + 4 * count + 16) * UNIT
        pairs = list(zip(self._parts[:count], self._parts[count:], strict=True))
        self._factors = tuple(one for pair in pairs for one in pair)
        self._products = list(
            zip(*[zip(a.unbind(), g.transpose(1, 2).unbind(), strict=True) for a, g in pairs], strict=True)
        )
        self._shifts = both.new_empty((runs, sum(widths[count:])))
        self._biases = list(
            zip([bias for _, bias in slots], self._shifts.split_with_sizes(widths[count:], -1), strict=True)
        )

    def __call__(self, factors: Sequence[torch.Tensor]) -> RecordGradients:
        for part, values in zip(self._parts, factors, strict=True):
            part.copy_(values)
        for both, lengths in zip(self._each, self._sums, strict=True):
            if self._double:
                without_tiny_(both)
            torch.mul(both, both, out=self._squares)
            for some, into in lengths:
                torch.sum(some, -1, out=into)
        a, g = self._lengths.chunk(2)
        square = (torch.addcmul(g, g, a) if self._biased else a * g).sum(0).mul_(self._margin)
        taken = tuple(slot for pair in self._slots for slot in pair if slot is not None)
        return RecordGradients(taken, 1, square, None, self._factors, self._add)

    def _add(self, weights: torch.Tensor, sums: Sums) -> None:
        into = [
            sums.each(weight, g.shape[0], a.shape[1])
            for (weight, _), (a, g) in zip(self._slots, self._products[0], strict=True)
        ]
        columns = weights[..., None].unbind()
        for run, (both, given, products) in enumerate(zip(self._each, self._given, self._products, strict=True)):
            given.mul_(columns[run])
            finite_(both)
            for each, (a, g) in zip(into, products, strict=True):
                each[run].addmm_(g, a)
            if self._biased:
                torch.sum(given, 0, out=self._shifts[run])
        for bias, shift in self._biases if self._biased else ():
            assert bias is not None
            sums.at(bias, bias.size).add_(shift)


def rows(weight: Slot, tokens: torch.Tensor, slopes: torch.Tensor) -> RecordGradients:
    """The part of a table, from tokens, [runs, records, positions], and the gradients of the rows that they select."""
    gradients = wide(slopes)
    positions, width = gradients.shape[2:]
    spread = added(squared(gradients).sqrt()) * (1 + (width + positions + 8) * UNIT)
    same = (tokens[..., :, None] == tokens[..., None, :]).to(gradients.dtype)
    ghost = added((gradients * (same @ gradients)).flatten(2))
    terms = (positions * (width + 1) + 4) * UNIT
    square = ghost.clamp_min(0) + terms / (1 - terms) * spread.square()

    def add(weights: torch.Tensor, sums: Sums) -> None:
        table = sums.at(weight, weight.size // width, width)  # the parameter may have another shape
        made = weighted_(gradients, weights).flatten(1, 2)
        for into, places, values in zip(table.unbind(), tokens.flatten(1).unbind(), made.unbind(), strict=True):
            into.index_add_(0, places, values)

    return RecordGradients((weight,), positions, square, spread, (tokens, gradients), add)


A = torch.ops.aten
Pair = tuple[int, int]


def pair(value: Sequence[int], height: int) -> Pair:
    """Two numbers for both dimensions; those of a line have ``height`` for the first."""
    return (value[0] if len(value) == 2 else height, value[-1])


def convolve(
    pictures: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """The outputs of a convolution for every run; ``weight`` is [runs, outputs, channels, height, width]."""
    if not pictures.is_cuda:
        shifts: Sequence[torch.Tensor | None] = [None] * len(weight) if bias is None else bias.unbind()
        each = [
            functional.conv2d(one, kernel, shift, tuple(stride), 0, tuple(dilation), groups)
            for one, kernel, shift in zip(pictures.unbind(), weight.unbind(), shifts, strict=True)
        ]
        return each[0][None] if len(each) == 1 else torch.stack(each)
    runs, rows = pictures.shape[:2]
    columns, height = patches(pictures.flatten(0, 1), weight.shape[-2:], stride, dilation, groups)
    size = columns[0].shape[1]
    shifts = [None] * groups if bias is None else bias[:, None].chunk(groups, 2)
    pieces = [
        product(one.reshape(runs, -1, one.shape[-1]), kernel.transpose(1, 2), shift)
        for one, kernel, shift in zip(columns, weight.flatten(2).chunk(groups, 1), shifts, strict=True)
    ]
    made = cat(pieces, -1).reshape(runs, rows, height, size // height, -1)
    return made.permute(0, 1, 4, 2, 3).clone(memory_format=torch.contiguous_format)


def convolve_back(
    slopes: torch.Tensor,
    pictures: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """The gradient of the pictures from that of the outputs."""
    weight = weight.to(slopes.dtype)
    if slopes.is_cuda:
        return _folded(slopes, pictures, weight, stride, dilation, groups).to(pictures.dtype)
    each = [
        A.convolution_backward(
            *(one, seen.to(one.dtype), kernel, None, stride, (0, 0), dilation, False, (0, 0), groups),
            (True, False, False),
        )[0]
        for one, seen, kernel in zip(slopes.unbind(), pictures.unbind(), weight.unbind(), strict=True)
    ]
    return (each[0][None] if len(each) == 1 else torch.stack(each)).to(pictures.dtype)


def patches(
    pictures: torch.Tensor, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], groups: int
) -> tuple[list[torch.Tensor], int]:
    """Patches, [rows, places, channels × kernel], for each group, and the number of rows of places."""
    if pictures.is_cuda and _plain(dilation, groups):
        sides = zip(pictures.shape[2:], kernel, stride, strict=True)
        places = [(whole - size) // step + 1 for whole, size, step in sides]
        return [kernels.unfold(pictures, places, kernel, stride)], places[0]
    found = pictures
    for dim, (size, step, gap) in enumerate(zip(kernel, stride, dilation, strict=True)):
        found = found.unfold(2 + dim, (size - 1) * gap + 1, step)[..., ::gap]
    height = found.shape[2]
    return [
        one.permute(0, 2, 3, 1, 4, 5).reshape(len(pictures), -1, one.shape[1] * kernel[0] * kernel[1])
        for one in found.chunk(groups, 1)
    ], height


def _plain(dilation: Sequence[int], groups: int) -> bool:
    """Whether there are kernels for this convolution."""
    return kernels.AVAILABLE and groups == 1 and tuple(dilation) == (1, 1)


def _folded(
    slopes: torch.Tensor,
    pictures: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """The gradient of the pictures on a GPU, from those of the patches."""
    runs, rows = slopes.shape[:2]
    kernel, gradient = tuple(weight.shape[-2:]), slopes.flatten(0, 1)
    if _plain(dilation, groups):
        given = gradient.flatten(2).transpose(1, 2).reshape(runs, -1, gradient.shape[1])
        matrix = weight.permute(0, 1, 3, 4, 2).flatten(2)  # channels last
        sizes = (runs * rows, *pictures.shape[2:])
        made = kernels.fold(torch.bmm(given, matrix), sizes, gradient.shape[2:], kernel, stride)
        return made.view(pictures.shape)
    pieces = [
        product(one.transpose(1, 2).reshape(runs, -1, one.shape[1]), matrix).reshape(runs * rows, -1, matrix.shape[-1])
        for one, matrix in zip(gradient.flatten(2).chunk(groups, 1), weight.flatten(2).chunk(groups, 1), strict=True)
    ]
    columns = cat(pieces, -1).transpose(1, 2)
    size = tuple(pictures.shape[3:])
    made = functional.fold(columns, size, kernel, tuple(dilation), 0, tuple(stride))
    return made.view(pictures.shape)


_library: Any = torch.library.Library("dphypo", "DEF")  # type: ignore[no-untyped-call]
_OPTIONS = "int[] stride, int[] dilation, int groups"
_library.define(f"convolve(Tensor pictures, Tensor weight, Tensor? bias, {_OPTIONS}) -> Tensor")
_library.define(f"convolve_back(Tensor slopes, Tensor pictures, Tensor weight, {_OPTIONS}) -> Tensor")


def _shape(pictures: torch.Tensor, weight: torch.Tensor, bias: Any, stride: Any, dilation: Any, groups: int) -> Any:
    """The outputs of :func:`convolve`, without values."""
    sides = zip(pictures.shape[3:], weight.shape[3:], stride, dilation, strict=True)
    places = [(whole - (size - 1) * gap - 1) // step + 1 for whole, size, step, gap in sides]
    return pictures.new_empty((*pictures.shape[:2], weight.shape[1], *places))


def _batch_rule(count: int, op: Any) -> Callable[..., Any]:
    """The ``vmap`` rule: pictures of a batch become rows if they have a common weight, and runs if they do not."""

    def rule(info: Any, dims: tuple[int | None, ...], *args: Any) -> tuple[torch.Tensor, int]:
        size, shared = info.batch_size, dims[count] is None and (count == 2 or dims[2] is None)
        tensors: list[Any] = [
            None if one is None else one.unsqueeze(0).expand(size, *one.shape) if dim is None else one.movedim(dim, 0)
            for one, dim in zip(args[:3], dims[:3], strict=True)
        ]
        options = args[3:]
        if not shared:
            made = op(*(None if one is None else one.flatten(0, 1) for one in tensors), *options)
            return made.unflatten(0, (size, -1)), 0
        rows = [one.transpose(0, 1).flatten(1, 2) for one in tensors[:count]]
        made = op(*rows, *args[count:3], *options)
        return made.unflatten(1, (size, -1)), 1

    return rule


CONVOLVE, BACK = torch.ops.dphypo.convolve.default, torch.ops.dphypo.convolve_back.default
for _name, _function in (("convolve", convolve), ("convolve_back", convolve_back)):
    torch.library.impl(_library, _name, "CompositeExplicitAutograd")(_function)
torch.library.register_fake("dphypo::convolve", _shape, lib=_library)
torch.library.register_fake(
    "dphypo::convolve_back", lambda slopes, pictures, *_: torch.empty_like(pictures), lib=_library
)
torch.library.register_vmap("dphypo::convolve", _batch_rule(1, CONVOLVE), lib=_library)
torch.library.register_vmap("dphypo::convolve_back", _batch_rule(2, BACK), lib=_library)
EAGER: dict[Any, Callable[..., torch.Tensor]] = {CONVOLVE: convolve, BACK: convolve_back}
"""The functions of the operators, without a dispatcher."""


def lower(graph: fx.GraphModule) -> None:
    """Replace PyTorch's convolutions in a record's graph by these operators, after weight gradients were removed."""
    for node in list(graph.graph.nodes):
        if node.target is A.convolution.default and _known(node.args[6], node.args[1]):
            _lower_forward(graph.graph, node)
        elif node.target is A.convolution_backward.default and _known(node.args[7], node.args[2]):
            _lower_backward(graph.graph, node)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _known(transposed: bool, weight: Any) -> bool:
    return not transposed and weight.meta["val"].dim() in (3, 4)


def _picture(graph: fx.Graph, node: Any, padding: Sequence[int]) -> fx.Node:
    """The picture as [1, 1, channels, height, width], with its padding."""
    if node.meta["val"].dim() == 3:
        node = graph.call_function(A.unsqueeze.default, (node, 2))
    edges = pair(padding, 0)
    if any(edges):
        node = graph.call_function(A.constant_pad_nd.default, (node, [edges[1], edges[1], edges[0], edges[0]]))
    return graph.call_function(A.unsqueeze.default, (node, 0))


def _kernel(graph: fx.Graph, weight: Any) -> fx.Node:
    if weight.meta["val"].dim() == 3:
        weight = graph.call_function(A.unsqueeze.default, (weight, 2))
    return graph.call_function(A.unsqueeze.default, (weight, 0))


def _lower_forward(graph: fx.Graph, node: Any) -> None:
    inputs, weight, bias, stride, padding, dilation, _, _, groups = node.args
    with graph.inserting_before(node):
        shift = None if bias is None else graph.call_function(A.unsqueeze.default, (bias, 0))
        given = (_picture(graph, inputs, padding), _kernel(graph, weight), shift)
        made = graph.call_function(CONVOLVE, (*given, pair(stride, 1), pair(dilation, 1), groups))
        result = graph.call_function(A.reshape.default, (made, list(node.meta["val"].shape)))
    result.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(result)


def _lower_backward(graph: fx.Graph, node: Any) -> None:
    slopes, inputs, weight, _, stride, padding, dilation, _, _, groups, _ = node.args
    users = {user.args[1]: user for user in node.users}
    value = inputs.meta["val"]
    with graph.inserting_before(node):
        if 0 in users:
            given = (_picture(graph, slopes, (0,)), _picture(graph, inputs, padding), _kernel(graph, weight))
            made = graph.call_function(BACK, (*given, pair(stride, 1), pair(dilation, 1), groups))
            sizes = pair(value.shape[2:], 1)
            for dim, (edge, size) in enumerate(zip(pair(padding, 0), sizes, strict=True)):
                if edge:
                    made = graph.call_function(A.slice.Tensor, (made, 3 + dim, edge, edge + size))
            result = graph.call_function(A.reshape.default, (made, list(value.shape)))
            result.meta["val"] = value
            users[0].replace_all_uses_with(result)
        if 2 in users:
            places = [0, *range(2, slopes.meta["val"].dim())]
            total = graph.call_function(A.sum.dim_IntList, (slopes, places))
            total.meta["val"] = users[2].meta["val"]
            users[2].replace_all_uses_with(total)
    node.update_arg(10, [False, 1 in users and bool(users[1].users), False])
