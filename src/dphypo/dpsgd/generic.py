"""Gradients of any model: ``vmap(grad)`` over the records, or one record after the other. Slower than the formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from dphypo.dpsgd.batches import Loss
from dphypo.dpsgd.book import Book, Part
from dphypo.dpsgd.layers import HANDLERS, materialised
from dphypo.dpsgd.masks import Masks
from dphypo.dpsgd.shapes import Shape
from dphypo.dpsgd.stack import Layout, Slot


def parts(
    model: nn.Module,
    loss: Loss,
    layout: Layout,
    rows: torch.Tensor,
    shape: Shape,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    masks: Masks,
    *,
    alone: bool,
) -> tuple[list[Part], torch.Tensor]:
    """The gradients of all records, held as numbers, and which rows are outside the domain.

    Where a device treats places of a batch differently, records go ``alone``, each as a batch of its own.
    """
    one = Shape(1, 1, shape.views)
    sizes = (shape.runs, shape.records, shape.views)
    some = [part.reshape(*sizes, *part.shape[1:]) for part in (inputs, targets, masks.keys)]

    def value(
        parameters: dict[str, torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor, keys: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        book = Book(layout, rows[:1], one, (), HANDLERS, None)
        book.begin(Masks(keys))
        with book:
            losses = loss(functional_call(model, parameters, (inputs,)), targets)
        outside = keys != keys if book.outside is None else book.outside
        return losses.sum() / shape.views, outside

    single = grad(value, has_aux=True)
    each = _one_by_one(single) if alone else vmap(single, in_dims=(None, 0, 0, 0), randomness="error")
    gradients = rows.new_zeros((shape.runs, shape.records, layout.width))
    outside = torch.zeros(sizes, dtype=torch.bool, device=rows.device)
    for run in range(shape.runs):
        parameters = dict(zip(layout.names, _values(layout, rows[run : run + 1]), strict=True))
        found, outside[run] = each(parameters, *(part[run] for part in some))
        for place, name in enumerate(layout.names):
            layout.slot(place).of(gradients[run]).copy_(found[name].flatten(1))
    return [materialised.part(Slot(0, layout.width), gradients)], outside.reshape(-1)


def _one_by_one(single: Callable[..., Any]) -> Callable[..., Any]:
    def each(parameters: dict[str, torch.Tensor], *parts: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        made = [single(parameters, *(part.clone() for part in record)) for record in zip(*parts, strict=True)]
        gradients = {name: torch.stack([found[name] for found, _ in made]) for name in parameters}
        return gradients, torch.stack([outside for _, outside in made])

    return each


def _values(layout: Layout, row: torch.Tensor) -> Sequence[torch.Tensor]:
    return [layout.values(row, place)[0] for place in range(len(layout.names))]
