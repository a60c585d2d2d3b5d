"""Matrix products of several runs, sums in double precision, and gradients that are held record by record.

On a CPU every run's product is a call of its own, with the same shapes as if the run were alone: so a run alone and
among others ends in the same bits. A GPU gets one batched product.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch

from dphypo.dpsgd.layers import kernels
from dphypo.dpsgd.stack import Slot, Sums
from dphypo.dpsgd.step import RecordGradients
from dphypo.dpsgd.sum_on_grid import UNIT

_TINY = 2.0**-300
_TILE = 16
_CHUNK = 2**24  # numbers converted to double precision at a time


def product(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """left · right of every run, plus its bias: [runs, rows, width] · [runs, width, columns] + [runs, 1, columns]."""
    if left.is_cuda or left.dtype not in (torch.float32, torch.float64):
        return torch.bmm(left, right) if bias is None else torch.baddbmm(bias, left, right)
    made = left.new_empty((*left.shape[:2], right.shape[2]))
    way = _way(left.shape[1:], right.shape[1:], right.stride(1) >= right.stride(2), left.dtype)
    shifts = [None] * len(made) if bias is None else bias.unbind()
    for one, matrix, shift, into in zip(left.unbind(), right.unbind(), shifts, made.unbind(), strict=True):
        if way is not torch.mm:
            into.copy_(way(one, matrix) if shift is None else way(one, matrix).add_(shift))
        elif shift is None:
            torch.mm(one, matrix, out=into)
        else:
            torch.addmm(shift, one, matrix, out=into)
    return made


def batched(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """left · right of every run, plus its bias."""
    return torch.bmm(left, right) if bias is None else torch.baddbmm(bias[:, None], left, right)


Way = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_WAYS: tuple[Way, ...] = (
    torch.mm,
    lambda left, right: torch.mm(right.t(), left.t()).t(),  # rows as columns
    lambda left, right: torch.mm(left, tiled(right))[:, : right.shape[1]],  # columns filled up
)


@functools.cache
def _way(left_size: torch.Size, right_size: torch.Size, by_rows: bool, dtype: torch.dtype) -> Way:
    """The fastest way of a product in which a row's place changes no bit, found on random numbers.

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
    """The last dimension, filled up with zeros: rows then begin at multiples of 64 bytes.

    A CPU needs that for products of single records. A GPU adds up a long row in another order if it begins elsewhere.
    """
    rest = -values.shape[-1] % _TILE
    return torch.nn.functional.pad(values, (0, rest)) if rest and values.is_cuda is on_gpu else values


def added(values: torch.Tensor) -> torch.Tensor:
    """The sum over the last dimension, with bits that do not depend on the place."""
    return tiled(values, on_gpu=True).sum(-1)


def squared(values: torch.Tensor) -> torch.Tensor:
    """The sum of the squares over the last dimension, with bits that do not depend on the place."""
    norms: torch.Tensor = torch.linalg.vector_norm(tiled(values, on_gpu=True), dim=-1)
    return norms.square_()


def cat(values: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    """One after the other; a single one is not copied."""
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
    """A copy in double precision, which may be written to: norms and sums are made in it."""
    copied = values.to(torch.float64, copy=True)
    return without_tiny_(copied) if values.dtype == torch.float64 else copied


def without_tiny_(values: torch.Tensor) -> torch.Tensor:
    """Zero factors in place whose squares may be no numbers, where the product of two factors is one."""
    return values.masked_fill_(values.abs() < _TINY, 0.0)


def finite_(values: torch.Tensor) -> torch.Tensor:
    """Zero what is not finite, in place: it belongs to records whose weight is zero, and 0 · NaN would be NaN."""
    return values.nan_to_num_(0.0, 0.0, 0.0)


def weighted_(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Multiply the gradients of every record by its weight, in place; those of weight zero become zero, NaN or not."""
    return finite_(values.mul_(weights.view(*weights.shape, *[1] * (values.dim() - 2))))


def held(slot: Slot, gradients: torch.Tensor) -> RecordGradients:
    """The part whose gradients are ``[runs, records, ...]``, as many numbers as the slot has.

    n̄² is the computed sum of d squares times 1 + (d + 8)u. The gradients are the contributions themselves, so that
    A = n̄: nothing cancels in a sum over records.
    """
    flat = gradients.flatten(2)
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
