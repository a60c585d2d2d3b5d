"""A parameter that is added, multiplied or expanded: every record gets a copy of it, and its gradient is the copy's.

This covers biases and scales on their own, class tokens, position embeddings, and the affine part of normalisations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dphypo.dpsgd.book import Axis, Book, Handlers, Note, Part, UnknownUse
from dphypo.dpsgd.layers import materialised
from dphypo.dpsgd.layers.products import wide


@dataclass(frozen=True)
class Copies:
    """One call: [rows, *shape of the parameter]."""

    place: int

    @property
    def key(self) -> tuple[Any, ...]:
        return "copies", self.place

    def forward(self, book: Book, inputs: torch.Tensor, axis: Axis) -> torch.Tensor:
        values, shape = book.slots[self.place], book.shape
        spread = values[:, None].expand(-1, shape.records * shape.views, *values.shape[1:])
        return spread.reshape(shape.rows, *values.shape[1:])

    def backward(self, book: Book, inputs: torch.Tensor, gradient: torch.Tensor, axis: Axis) -> torch.Tensor:
        raise AssertionError("a parameter has no inputs")

    def parts(self, book: Book, notes: Sequence[Note]) -> list[Part]:
        shape = book.shape
        total = notes[0].gradient if len(notes) == 1 else torch.stack([note.gradient for note in notes]).sum(0)
        total = total.reshape(shape.runs, shape.records, shape.views, -1)
        total = total.squeeze(2) if shape.views == 1 else wide(total).sum(2)
        return [materialised.part(book.layout.slot(self.place), total)]


def copies(book: Book, place: int, like: torch.Tensor, dims: int = 0) -> torch.Tensor:
    """A parameter, copied for each row, so that it broadcasts against ``like`` as the parameter itself would.

    Args:
        book: the pass.
        place: of the parameter.
        like: what it will be added to or multiplied with.
        dims: how many dimensions of ``like`` follow those of the parameter (a scale for each channel is followed by
            the pixels).
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
    if places == [None] * len(places):
        return func(*args, **kwargs)
    if len(places) < 2 or None not in places:
        raise UnknownUse(func)
    other = args[places.index(None)]
    if not isinstance(other, torch.Tensor) or other.dim() == 0:
        raise UnknownUse(func)
    made = [arg if place is None else copies(book, place, other) for arg, place in zip(args[:2], places, strict=True)]
    return func(*made, *args[2:], **kwargs)


def _expand(book: Book, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    place = book.place(args[0])
    if place is None:
        return func(*args, **kwargs)
    sizes = args[1] if len(args) == 2 and not isinstance(args[1], int) else args[1:]
    shape = book.layout.shapes[place]
    if kwargs or len(sizes) != len(shape) or shape[0] != 1 or sizes[0] != book.shape.rows:
        raise UnknownUse(func)
    made = book.tap(Copies(place), torch.empty(0, device=args[0].device), Axis(0))
    return func(made.squeeze(1), *sizes)


_NAMES = ("add", "mul", "sub", "div", "true_divide", "multiply", "subtract", "maximum", "minimum")
_OPERATORS = [f"__{name}__" for name in ("add", "radd", "mul", "rmul", "sub", "rsub", "truediv", "iadd", "imul")]

HANDLERS: Handlers = {
    **{getattr(torch, name): _binary for name in _NAMES},
    **{getattr(torch.Tensor, name): _binary for name in (*_NAMES, *_OPERATORS, "add_", "mul_")},
    torch.Tensor.expand: _expand,
}
