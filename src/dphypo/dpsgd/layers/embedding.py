"""Rows of a table: the gradient of a record is the output gradients, each added to the row of its token.

Norms: with t_l the token at position l, n̂² = Σ_{l,l′ : t_l = t_l′} ⟨g_l, g_l′⟩, the ghost norm of one-hot inputs, and
A = Σ_l ‖g_l‖. A token that the table has no row for puts the record outside the domain: it counts zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from dphypo.dpsgd.book import COMMON, Axis, Book, Handlers, Note, Part, Sums, UnknownUse
from dphypo.dpsgd.layers.products import UNIT, added, by_record, joined, squared, weighted_, wide


@dataclass(frozen=True)
class Embedding:
    """One call on whole numbers that are rows of the table."""

    weight: int
    padding: int | None

    @property
    def key(self) -> tuple[Any, ...]:
        return "embedding", self.weight, self.padding

    def forward(self, book: Book, inputs: torch.Tensor, axis: Axis) -> torch.Tensor:
        sizes = [1] * inputs.dim()
        sizes[axis.dim] = inputs.shape[axis.dim]
        runs = torch.arange(book.shape.runs, device=inputs.device)
        return book.slots[self.weight][runs.repeat_interleave(sizes[axis.dim] // len(runs)).view(sizes), inputs]

    def backward(self, book: Book, inputs: torch.Tensor, gradient: torch.Tensor, axis: Axis) -> torch.Tensor:
        raise AssertionError("tokens have no gradient")

    def parts(self, book: Book, notes: Sequence[Note]) -> list[Part]:
        shape, layout, weight = book.shape, book.layout, self.weight
        sizes = (shape.runs, shape.records, -1)
        tokens = joined([note.axis.first(note.inputs).reshape(sizes) for note in notes], 2)
        gradients = wide(joined([by_record(note.gradient, note.axis, shape) for note in notes], 2))
        if self.padding is not None:
            gradients = torch.where((tokens == self.padding)[..., None], 0.0, gradients)
        positions, width = gradients.shape[2:]
        spread = added(squared(gradients).sqrt()) * (1 + (width + positions + 8) * UNIT)
        same = (tokens[..., :, None] == tokens[..., None, :]).to(gradients.dtype)
        ghost = added((gradients * (same @ gradients)).flatten(2))
        terms = (width + positions**2 + positions + 4) * UNIT
        square = ghost.clamp_min(0) + terms / (1 - terms) * spread.square()

        def add(weights: torch.Tensor, sums: Sums) -> None:
            table = sums.at(layout.slot(weight), *layout.shapes[weight])
            rows = weighted_(gradients, weights).flatten(1, 2)
            for into, places, values in zip(table.unbind(), tokens.flatten(1).unbind(), rows.unbind(), strict=True):
                into.index_add_(0, places, values)

        return [Part((layout.slot(weight),), positions, square, spread, (tokens, gradients), add)]


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


HANDLERS: Handlers = {functional.embedding: _embedding}
