"""A parameter that is added, multiplied or expanded: every record gets a copy of it, and its gradient is the copy's.

This covers biases and scales on their own, class tokens, position embeddings, and the affine part of LayerNorm,
GroupNorm and RMSNorm, whose rows PyTorch normalises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from dphypo.dpsgd.book import Axis, Book, Handlers, Note, UnknownUse
from dphypo.dpsgd.layers.products import held, wide
from dphypo.dpsgd.step import RecordGradients


@dataclass(frozen=True)
class Copies:
    """One call: [rows, *shape of the parameter]."""

    place: int

    def forward(self, book: Book, inputs: torch.Tensor, axis: Axis) -> torch.Tensor:
        values, shape = book.slots[self.place], book.shape
        spread = values[:, None].expand(-1, shape.records * shape.views, *values.shape[1:])
        return spread.reshape(shape.rows, *values.shape[1:])

    def backward(self, book: Book, inputs: torch.Tensor, gradient: torch.Tensor, axis: Axis) -> torch.Tensor:
        raise AssertionError("a parameter has no inputs")

    def parts(self, book: Book, notes: Sequence[Note]) -> list[RecordGradients]:
        shape = book.shape
        total = notes[0].gradient if len(notes) == 1 else torch.stack([note.gradient for note in notes]).sum(0)
        total = total.reshape(shape.runs, shape.records, shape.views, -1)
        total = total.squeeze(2) if shape.views == 1 else wide(total).sum(2)
        return [held(book.layout.slot(self.place), total)]


def copies(book: Book, place: int, like: torch.Tensor, dims: int = 0) -> torch.Tensor:
    """A parameter, copied for each row, so that it broadcasts against ``like`` as the parameter itself would.

    ``dims`` dimensions of ``like`` follow those of the parameter: a scale for each channel is followed by the pixels.
    """
    axis, shape = book.axis(like), (*book.layout.shapes[place], *[1] * dims)
    aligned = [1] * (like.dim() - len(shape)) + list(shape)
    if len(aligned) > like.dim() or aligned[axis.dim] != 1:
        raise UnknownUse("a parameter that is not the same for every record")
    spread = book.tap(Copies(place), torch.empty(0, device=like.device), axis)
    spread = spread.reshape(book.shape.rows, *aligned).squeeze(axis.dim + 1)
    if axis.each > 1:
        spread = spread.repeat_interleave(axis.each, 0)
    return spread.movedim(0, axis.dim)


def _binary(book: Book, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    places = [book.place(arg) for arg in args[:2]]
    other = args[places.index(None)] if places.count(None) == len(places) - 1 == 1 else None
    if not isinstance(other, torch.Tensor) or other.dim() == 0:
        return book.otherwise(func, args, kwargs)
    made = [arg if place is None else copies(book, place, other) for arg, place in zip(args[:2], places, strict=True)]
    return func(*made, *args[2:], **kwargs)


def _expand(book: Book, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    place = book.place(args[0])
    sizes = args[1] if len(args) == 2 and not isinstance(args[1], int) else args[1:]
    if place is None or kwargs or len(sizes) != args[0].dim() or args[0].shape[0] != 1 or sizes[0] != book.shape.rows:
        return book.otherwise(func, args, kwargs)
    made = book.tap(Copies(place), torch.empty(0, device=args[0].device), Axis(0))
    return func(made.squeeze(1), *sizes)


def _normalise(book: Book, func: Callable[..., Any], *args: Any, **kwargs: Any) -> torch.Tensor:
    """PyTorch normalises each row; scale and shift, trained or frozen, are applied to what it gives."""
    grouped = func is functional.group_norm
    names = ("input", "num_groups" if grouped else "normalized_shape", "weight")
    given = dict(zip((*names, *(() if func is functional.rms_norm else ("bias",)), "eps"), args, strict=False)) | kwargs
    weight, bias = given.pop("weight", None), given.pop("bias", None)
    made: torch.Tensor = func(**given)
    after = made.dim() - 2 if grouped else 0  # dimensions behind the channels

    def factor(value: torch.Tensor) -> torch.Tensor:
        place = book.place(value)
        return value.view(*value.shape, *[1] * after) if place is None else copies(book, place, made, after)

    if weight is not None:
        made = made * factor(weight)
    return made if bias is None else made + factor(bias)


_NAMES = ("add", "mul", "sub", "div", "true_divide", "multiply", "subtract", "maximum", "minimum")
_OPERATORS = [f"__{name}__" for name in ("add", "radd", "mul", "rmul", "sub", "rsub", "truediv", "iadd", "imul")]

HANDLERS: Handlers = {
    **{getattr(torch, name): _binary for name in _NAMES},
    **{getattr(torch.Tensor, name): _binary for name in (*_NAMES, *_OPERATORS, "add_", "mul_")},
    torch.Tensor.expand: _expand,
    **dict.fromkeys((functional.layer_norm, functional.rms_norm, functional.group_norm), _normalise),
}
