"""Convolutions in one and two dimensions: linear layers on the patches of a picture, one position a place.

The largest numbers of windows are PyTorch's own, and on a GPU those of kernels that are some times faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from dphypo.dpsgd.book import Axis, Book, Handlers, Note, UnknownUse
from dphypo.dpsgd.layers import elementwise, kernels
from dphypo.dpsgd.layers.linear import outer
from dphypo.dpsgd.layers.products import batched, cat
from dphypo.dpsgd.step import RecordGradients

Pair = tuple[int, int]


@dataclass(frozen=True)
class Convolution:
    """One call without padding on [rows, channels, height, width]; a line is a picture of height 1."""

    weight: int
    bias: int | None
    stride: Pair
    dilation: Pair
    groups: int

    def forward(self, book: Book, inputs: torch.Tensor, axis: Axis) -> torch.Tensor:
        weight, bias = self._weight(book), None if self.bias is None else book.slots[self.bias]
        shifts: Sequence[torch.Tensor | None]
        if not inputs.is_cuda:
            shifts = [None] * len(weight) if bias is None else bias.unbind()
            each = [
                functional.conv2d(one, kernel, shift, self.stride, 0, self.dilation, self.groups)
                for one, kernel, shift in zip(inputs.chunk(len(weight)), weight.unbind(), shifts, strict=True)
            ]
            return cat(each, 0)
        columns, height = self._patches(inputs, weight.shape[-2:])
        runs, size = book.shape.runs, columns[0].shape[1]
        shifts = [None] * self.groups if bias is None else bias.chunk(self.groups, 1)
        pieces = [
            batched(one.reshape(runs, -1, one.shape[-1]), kernel.transpose(1, 2), shift)
            for one, kernel, shift in zip(columns, self._by_group(weight), shifts, strict=True)
        ]
        made = cat(pieces, -1).reshape(book.shape.rows, height, size // height, -1)
        return made.permute(0, 3, 1, 2).clone(memory_format=torch.contiguous_format)

    def backward(self, book: Book, inputs: torch.Tensor, gradient: torch.Tensor, axis: Axis) -> torch.Tensor:
        weight = self._weight(book).to(gradient.dtype)
        if gradient.is_cuda:
            return self._folded(book, inputs, gradient, weight).to(inputs.dtype)
        pairs = zip(gradient.chunk(len(weight)), inputs.chunk(len(weight)), weight.unbind(), strict=True)
        made = [
            torch.ops.aten.convolution_backward(
                *(one, seen.to(one.dtype), kernel, None, self.stride, (0, 0), self.dilation, False, (0, 0)),
                *(self.groups, (True, False, False)),
            )[0]
            for one, seen, kernel in pairs
        ]
        return cat(made, 0).to(inputs.dtype)

    def parts(self, book: Book, notes: Sequence[Note]) -> list[RecordGradients]:
        sizes, layout, kernel = (book.shape.runs, book.shape.records, -1), book.layout, self._weight(book).shape[-2:]
        seen = [self._patches(note.inputs, kernel)[0] for note in notes]
        found = [note.gradient.flatten(2).transpose(1, 2).chunk(self.groups, -1) for note in notes]
        parts = []
        for group in range(self.groups):
            inputs, gradients = (
                cat([one[group].reshape(*sizes, one[group].shape[-1]) for one in some], 2) for some in (seen, found)
            )
            bias = None if self.bias is None else layout.slot(self.bias, group, self.groups)
            parts += outer(layout.slot(self.weight, group, self.groups), bias, inputs, gradients)
        return parts

    @property
    def _plain(self) -> bool:
        """Whether there are kernels for it."""
        return kernels.AVAILABLE and self.groups == 1 and self.dilation == (1, 1)

    def _weight(self, book: Book) -> torch.Tensor:
        weight = book.slots[self.weight]
        return weight if weight.dim() == 5 else weight.unsqueeze(3)

    def _by_group(self, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return weight.flatten(2).chunk(self.groups, 1)

    def _patches(self, inputs: torch.Tensor, kernel: Sequence[int]) -> tuple[list[torch.Tensor], int]:
        """[rows, places, channels × kernel] for each group, and how many places are below each other."""
        if inputs.is_cuda and self._plain:
            sides = zip(inputs.shape[2:], kernel, self.stride, strict=True)
            places = [(whole - size) // step + 1 for whole, size, step in sides]
            return [kernels.unfold(inputs, places, kernel, self.stride)], places[0]
        found = inputs
        for dim, (size, step, gap) in enumerate(zip(kernel, self.stride, self.dilation, strict=True)):
            found = found.unfold(2 + dim, (size - 1) * gap + 1, step)[..., ::gap]
        height = found.shape[2]
        return [
            one.permute(0, 2, 3, 1, 4, 5).reshape(len(inputs), -1, one.shape[1] * kernel[0] * kernel[1])
            for one in found.chunk(self.groups, 1)
        ], height

    def _folded(self, book: Book, inputs: torch.Tensor, gradient: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """The gradient of the inputs from those of the patches."""
        runs, rows, kernel = book.shape.runs, book.shape.rows, tuple(weight.shape[-2:])
        if self._plain:
            given = gradient.flatten(2).transpose(1, 2).reshape(runs, -1, gradient.shape[1])
            matrix = weight.permute(0, 1, 3, 4, 2).flatten(2)  # channels last
            sizes = (rows, *inputs.shape[1:])
            return kernels.fold(torch.bmm(given, matrix), sizes, gradient.shape[2:], kernel, self.stride)
        pieces = [
            batched(one.transpose(1, 2).reshape(runs, -1, one.shape[1]), matrix).reshape(rows, -1, matrix.shape[-1])
            for one, matrix in zip(gradient.flatten(2).chunk(self.groups, 1), self._by_group(weight), strict=True)
        ]
        columns = cat(pieces, -1).transpose(1, 2)
        return functional.fold(columns, tuple(inputs.shape[2:]), kernel, self.dilation, 0, self.stride)


def _convolution(
    book: Book,
    func: Callable[..., Any],
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> torch.Tensor:
    place, shift = book.place(weight), book.place(bias)
    if place is None:
        rest = (weight, None if shift is not None else bias, stride, padding, dilation, groups)
        made = torch.cat([func(some, *rest) for some in input.chunk(1 if input.is_cuda else book.shape.runs)])
        return made if shift is None else made + elementwise.copies(book, shift, made, weight.dim() - 2)
    if bias is not None and shift is None:
        raise UnknownUse("a trained kernel with a frozen bias")
    line = weight.dim() == 3
    steps, gaps = (_pair(value, 1 if line else None) for value in (stride, dilation))
    picture = input.unsqueeze(2) if line else input
    if padding == "same":
        kernel = (1, weight.shape[2]) if line else tuple(weight.shape[2:])
        total = [gap * (size - 1) for gap, size in zip(gaps, kernel, strict=True)]
        edges = [(whole // 2, whole - whole // 2) for whole in total]
    else:
        edges = [(edge, edge) for edge in _pair(0 if padding == "valid" else padding, 0 if line else None)]
    if edges != [(0, 0), (0, 0)]:
        picture = functional.pad(picture, (*edges[1], *edges[0]))
    made = book.tap(Convolution(place, shift, steps, gaps, groups), picture)
    return made.squeeze(2) if line else made


def _max_pool(book: Book, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    names = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
    given = dict(zip(names, args, strict=False)) | kwargs
    kernel = _pair(given["kernel_size"])
    stride = kernel if given.get("stride") in (None, [], ()) else _pair(given["stride"])
    plain = _pair(given.get("padding", 0)) == (0, 0) and _pair(given.get("dilation", 1)) == (1, 1)
    pictures = given["input"]
    usable = kernels.AVAILABLE and pictures.is_cuda and pictures.dim() == 4 and kernel[0] * kernel[1] < 128
    other = given.get("ceil_mode") or given.get("return_indices")
    if book.axes is None or not usable or not plain or other:  # vmap takes PyTorch's own
        return func(*args, **kwargs)
    return kernels.MaxPool.apply(pictures, kernel, stride)  # type: ignore[no-untyped-call]


def _pair(value: Any, height: int | None = None) -> Pair:
    """A number, or one or two of them, for both dimensions; of a line the first is given."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return (values[0] if height is None else height, values[-1])


HANDLERS: Handlers = {
    **dict.fromkeys((torch.conv1d, torch.conv2d), _convolution),
    **dict.fromkeys((functional.max_pool2d, torch.max_pool2d), _max_pool),
}
