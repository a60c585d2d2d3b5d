"""x ↦ xWᵀ + b on the last dimension, for any number of positions; also x @ W, b + x @ W and embeddings.

With inputs a_l and output gradients g_l at the positions l of a record, its gradient is Σ_l g_l a_lᵀ, and Σ_l g_l for
the bias. Three ways to its norm, p and r being the widths and L the number of positions:

* L = 1: ‖a‖²‖g‖², with the bias (‖a‖² + 1)‖g‖², and A is the norm itself.
* *ghost*, 2L² < pr: n̂² = Σ_{l,l′} ⟨a_l, a_l′⟩⟨g_l, g_l′⟩ in double precision. The terms cancel, so what is used is
  n̄² = max(0, n̂²) + γ(p + r + L² + 4)·A², A = Σ_l ‖a_l‖‖g_l‖.
* *held* otherwise: the gradients themselves (``products.held``). A GPU, which waits for its memory, does so where they
  are fewer numbers than three times what they are made of.

An embedding is a linear layer on one-hot inputs. With t_l the token at position l, A = Σ_l ‖g_l‖ and
n̂² = Σ_{l,l′ : t_l = t_l′} ⟨g_l, g_l′⟩, summed over l′, then over l and the width r: n̄² = max(0, n̂²) + γ(Lr + L + 4)·A².
A record with a token that the table has no row for counts zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from dphypo.dpsgd.book import COMMON, Axis, Book, Handlers, Note, UnknownUse
from dphypo.dpsgd.layers import elementwise
from dphypo.dpsgd.layers.products import add_outer, added, cat, finite_, held, product, squared, tiled, weighted_, wide
from dphypo.dpsgd.stack import Slot, Sums
from dphypo.dpsgd.step import RecordGradients
from dphypo.dpsgd.sum_on_grid import UNIT


@dataclass(frozen=True)
class Linear:
    """One call. ``turned`` if the parameter is [inputs, outputs], as in x @ W."""

    weight: int
    bias: int | None
    turned: bool = False

    def forward(self, book: Book, inputs: torch.Tensor, axis: Axis) -> torch.Tensor:
        return product(book, inputs, axis, self.weight, self.bias, turned=self.turned)

    def backward(self, book: Book, inputs: torch.Tensor, gradient: torch.Tensor, axis: Axis) -> torch.Tensor:
        return product(book, gradient, axis, self.weight, turned=not self.turned).to(inputs.dtype)

    def parts(self, book: Book, notes: Sequence[Note]) -> list[RecordGradients]:
        weight, bias = book.layout.slot(self.weight), None if self.bias is None else book.layout.slot(self.bias)
        sizes = (book.shape.runs, book.shape.records, -1)
        inputs = cat([note.axis.split(note.inputs, *sizes) for note in notes], 2)
        gradients = cat([note.axis.split(note.gradient, *sizes) for note in notes], 2)
        return outer(weight, bias, inputs, gradients, turned=self.turned)


def outer(
    weight: Slot, bias: Slot | None, inputs: torch.Tensor, gradients: torch.Tensor, *, turned: bool = False
) -> list[RecordGradients]:
    """The parts of a weight [outputs, inputs], or the other way if ``turned``, and of its bias.

    ``inputs`` and ``gradients`` are a and g, [runs, records, positions, width].
    """
    positions, p, r = *inputs.shape[2:], gradients.shape[-1]
    if positions == 1:
        return [_single(weight, bias, wide(inputs.squeeze(2)), wide(gradients.squeeze(2)), turned)]
    left, right = (inputs, gradients) if turned else (gradients, inputs)
    single = torch.promote_types(torch.promote_types(left.dtype, right.dtype), torch.float32)
    biases = [] if bias is None else [held(bias, gradients.sum(2, dtype=single))]
    if 2 * positions**2 >= p * r or (inputs.is_cuda and 3 * positions * (p + r) >= p * r):
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


def _single(
    weight: Slot, bias: Slot | None, inputs: torch.Tensor, gradients: torch.Tensor, turned: bool
) -> RecordGradients:
    """One position: the norm is a product of two, and nothing cancels."""
    p, r = inputs.shape[-1], gradients.shape[-1]
    one, two = (squared(values) for values in (inputs, gradients))
    square = (one if bias is None else one.add_(1)).mul_(two).mul_(1 + 2 * (p + r + 16) * UNIT)

    def add(weights: torch.Tensor, sums: Sums) -> None:
        given, seen = weighted_(gradients, weights), finite_(inputs)
        add_outer(sums, weight, *((seen, given) if turned else (given, seen)))
        if bias is not None:
            sums.at(bias, bias.size).add_(given.sum(1))

    slots = (weight,) if bias is None else (weight, bias)
    return RecordGradients(slots, 1, square, None, (inputs, gradients), add)


def _linear(
    book: Book, func: object, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    place, shift = book.place(weight), book.place(bias)
    if place is not None and (shift is not None or bias is None):
        return book.tap(Linear(place, shift), input, book.axis(input, rows_last=book.in_attention))
    if place is not None:
        made = book.tap(Linear(place, None), input)
    elif input.is_cuda or input.shape[0] % book.shape.runs or torch.is_autocast_enabled("cpu"):
        made = functional.linear(input, weight)
    else:  # it is not trained: run by run, and with the rows as columns, as in ``products.py``
        each = [torch.mm(weight, some.flatten(0, -2).t()).t() for some in input.chunk(book.shape.runs)]
        made = torch.cat(each).reshape(*input.shape[:-1], weight.shape[0])
    if bias is None:
        return made
    return made + (bias if shift is None else elementwise.copies(book, shift, made))


def _matmul(book: Book, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    places = [book.place(arg) for arg in args]
    if places[1:] and places[1] is not None and places[0] is None and args[1].dim() == 2:
        return book.tap(Linear(places[1], None, turned=True), args[0])
    return book.otherwise(func, args, kwargs)


def _addmm(book: Book, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """b + x @ W, as the layers of GPT-2 compute it."""
    places = [book.place(arg) for arg in args]
    if len(places) == 3 and not kwargs and places[2] is not None and places[1] is None:
        if places[0] is not None:
            return book.tap(Linear(places[2], places[0], turned=True), args[1])
        return args[0] + book.tap(Linear(places[2], None, turned=True), args[1])
    return book.otherwise(func, args, kwargs)


@dataclass(frozen=True)
class Embedding:
    """One call on whole numbers that are rows of the table."""

    weight: int
    padding: int | None

    def forward(self, book: Book, inputs: torch.Tensor, axis: Axis) -> torch.Tensor:
        sizes = [1] * inputs.dim()
        sizes[axis.dim] = inputs.shape[axis.dim]
        runs = torch.arange(book.shape.runs, device=inputs.device)
        return book.slots[self.weight][runs.repeat_interleave(sizes[axis.dim] // len(runs)).view(sizes), inputs]

    def backward(self, book: Book, inputs: torch.Tensor, gradient: torch.Tensor, axis: Axis) -> torch.Tensor:
        raise AssertionError("tokens have no gradient")

    def parts(self, book: Book, notes: Sequence[Note]) -> list[RecordGradients]:
        shape, layout, weight = book.shape, book.layout, self.weight
        sizes = (shape.runs, shape.records, -1)
        tokens = cat([note.axis.first(note.inputs).reshape(sizes) for note in notes], 2)
        gradients = wide(cat([note.axis.split(note.gradient, *sizes) for note in notes], 2))
        if self.padding is not None:
            gradients = torch.where((tokens == self.padding)[..., None], 0.0, gradients)
        positions, width = gradients.shape[2:]
        spread = added(squared(gradients).sqrt()) * (1 + (width + positions + 8) * UNIT)
        same = (tokens[..., :, None] == tokens[..., None, :]).to(gradients.dtype)
        ghost = added((gradients * (same @ gradients)).flatten(2))
        terms = (positions * (width + 1) + 4) * UNIT
        square = ghost.clamp_min(0) + terms / (1 - terms) * spread.square()

        def add(weights: torch.Tensor, sums: Sums) -> None:
            table = sums.at(layout.slot(weight), *layout.shapes[weight])
            rows = weighted_(gradients, weights).flatten(1, 2)
            for into, places, values in zip(table.unbind(), tokens.flatten(1).unbind(), rows.unbind(), strict=True):
                into.index_add_(0, places, values)

        return [RecordGradients((layout.slot(weight),), positions, square, spread, (tokens, gradients), add)]


def _embedding(
    book: Book,
    func: object,
    input: torch.Tensor,
    weight: torch.Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> torch.Tensor:
    place = book.place(weight)
    if max_norm is not None or scale_grad_by_freq:
        raise UnknownUse("an embedding that is renormalised, or scaled by how often a token occurs")
    axis = book.axis(input, common=True)
    if axis == COMMON and place is None:
        return functional.embedding(input, weight, padding_idx)
    if axis == COMMON:
        own = input.shape[1:] if input.dim() > 1 and len(input) == 1 else input.shape
        input, axis = input.expand(book.shape.rows, *own), Axis(0)
    known = (input >= 0) & (input < weight.shape[0])
    book.leave_out(~axis.first(known).reshape(book.shape.rows, -1).all(1))
    tokens = torch.where(known, input, 0)
    if place is None:
        return functional.embedding(tokens, weight, padding_idx)
    padding = padding_idx if padding_idx is None or padding_idx >= 0 else weight.shape[0] + padding_idx
    return book.tap(Embedding(place, padding), tokens, axis)


HANDLERS: Handlers = {
    functional.linear: _linear,
    torch.addmm: _addmm,
    **dict.fromkeys((torch.matmul, torch.mm), _matmul),
    **dict.fromkeys((torch.Tensor.matmul, torch.Tensor.mm, torch.Tensor.__matmul__), _matmul),
    functional.embedding: _embedding,
}
