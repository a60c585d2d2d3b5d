"""Matrix products of several runs, and sums of outer products in double precision.

On a CPU every run's product is a call of its own, with the same shapes as if the run were alone: so a run alone and
among others ends in the same bits. A GPU gets one batched product.
"""

from __future__ import annotations

import torch

from dphypo.dpsgd.book import Axis, Book
from dphypo.dpsgd.shapes import Shape

UNIT = 2.0**-53  # relative error of one rounding in double precision
_TILE = 16


def by_run(values: torch.Tensor, axis: Axis, shape: Shape) -> torch.Tensor:
    """[runs, rows and positions of a run, features], whatever dimension holds the rows."""
    return axis.first(values).reshape(shape.runs, -1, values.shape[-1])


def by_record(values: torch.Tensor, axis: Axis, shape: Shape) -> torch.Tensor:
    """[runs, records, positions, features]: the views of a record count as positions of it."""
    return axis.first(values).reshape(shape.runs, shape.records, -1, values.shape[-1])


def product(
    book: Book, values: torch.Tensor, axis: Axis, weight: int, bias: int | None = None, *, turned: bool
) -> torch.Tensor:
    """xWᵀ + b of every run on the last dimension, or xW if ``turned``; in autocast's type where that is on.

    A tensor of its own, not a view: models may write to it.
    """
    device = values.device.type
    kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else values.dtype
    left = by_run(values, axis, book.shape).to(kind)
    right = book.slots[weight].flatten(2).to(kind)
    right = right if turned else right.transpose(1, 2)
    shift = None if bias is None else book.slots[bias].to(kind)
    made = values.new_empty((*axis.first(values).shape[:-1], right.shape[2]), dtype=kind)
    into = made.view(*left.shape[:2], -1)
    if left.is_cuda:
        if shift is None:
            torch.bmm(left, right, out=into)
        else:
            torch.baddbmm(shift[:, None], left, right, out=into)
    else:
        shifts = [None] * len(left) if shift is None else shift.unbind()
        for run in zip(left.unbind(), right.unbind(), shifts, into.unbind(), strict=True):
            _multiply(*run)
    return made if axis.dim == 0 and not axis.last else axis.back(made).clone()


def _multiply(left: torch.Tensor, right: torch.Tensor, shift: torch.Tensor | None, into: torch.Tensor) -> None:
    """left · right + shift. The bits of a row must not depend on which row it is.

    Products whose width is not a multiple of 16 end in kernels for the rest that treat some rows otherwise. There the
    rows are made columns.
    """
    if right.shape[1] % _TILE == 0:
        if shift is None:
            torch.mm(left, right, out=into)
        else:
            torch.addmm(shift, left, right, out=into)
    elif shift is None:
        into.copy_(torch.mm(right.t(), left.t()).t())
    else:
        torch.add(torch.mm(right.t(), left.t()).t(), shift, out=into)


def tiled(values: torch.Tensor) -> torch.Tensor:
    """The last dimension, filled up with zeros: products of single records then begin at multiples of 64 bytes."""
    rest = -values.shape[-1] % _TILE
    return torch.nn.functional.pad(values, (0, rest)) if rest and not values.is_cuda else values


def add_product(sums: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """Add left[k]ᵀ · right[k] to sums[k], [runs, columns of left, columns of right], in double precision."""
    if sums.is_cuda:
        sums.baddbmm_(left.transpose(1, 2), right)
        return
    for into, one, other in zip(sums.unbind(), left.unbind(), right.unbind(), strict=True):
        into.addmm_(one.t(), other)


def masked(values: torch.Tensor, fine: torch.Tensor) -> torch.Tensor:
    """The values of records that are fine, zero for the others: 0 · NaN would be NaN."""
    return torch.where(fine.view(*fine.shape, *[1] * (values.dim() - 2)), values, 0.0)


def weighted(values: torch.Tensor, weights: torch.Tensor, fine: torch.Tensor) -> torch.Tensor:
    """The same, times a weight for each record."""
    spread = [*fine.shape, *[1] * (values.dim() - 2)]
    return torch.where(fine.view(spread), values * weights.view(spread), 0.0)
