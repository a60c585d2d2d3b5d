"""Records of several fields, and models that take them by name: what ``transformers`` and ``peft`` work with.

A record such as ``{"input_ids": ..., "attention_mask": ..., "labels": ...}`` is kept as one row of numbers. The model
gets the row back as arguments by name. The field ``labels`` is the target. Where a model gives an object with
``logits``, these are its output; it never sees the labels, so that it computes no loss of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

TARGET = "labels"


@dataclass(frozen=True)
class Fields:
    """Where the fields of a record lie in its row.

    >>> given = {"ids": torch.tensor([[5, 6]]), "mask": torch.tensor([[1, 0]]), "labels": torch.tensor([1])}
    >>> fields = Fields.of(given)
    >>> fields.pack(given)
    (tensor([[5, 6, 1, 0]]), tensor([1]))
    >>> fields.unpack(torch.tensor([[5, 6, 1, 0]]))
    {'ids': tensor([[5, 6]]), 'mask': tensor([[1, 0]])}
    """

    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, records: Mapping[str, torch.Tensor]) -> Fields:
        """The fields of records that are given as one tensor a field."""
        names = [name for name in records if name != TARGET]
        if TARGET not in records or not names:
            raise ValueError(f"records have the fields {', '.join(records)}: give one named {TARGET!r}, the target")
        if len({records[name].is_floating_point() for name in names}) > 1:
            raise TypeError("records have fields of whole numbers and fields of fractions: give all as one kind")
        return cls({name: tuple(records[name].shape[1:]) for name in names})

    def pack(self, records: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows and targets; an error if a field is missing or has another shape. Further fields are left out."""
        if missing := [name for name in (*self.shapes, TARGET) if name not in records]:
            raise ValueError(f"a record has no field {missing[0]!r}")
        for name, shape in self.shapes.items():
            if tuple(records[name].shape[1:]) != shape:
                raise ValueError(f"the field {name!r} of a record has shape {tuple(records[name].shape[1:])}")
        rows = [records[name].reshape(-1, math.prod(shape)) for name, shape in self.shapes.items()]
        kind = rows[0].dtype if rows[0].is_floating_point() else torch.int64
        return torch.cat([row.to(kind) for row in rows], 1), records[TARGET]

    def unpack(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """The arguments of the model."""
        return {name: rows[:, place].reshape(len(rows), *self.shapes[name]) for name, place in self.places()}

    def places(self) -> Iterator[tuple[str, slice]]:
        """Which numbers of a row each field is."""
        start = 0
        for name, shape in self.shapes.items():
            stop = start + math.prod(shape)
            yield name, slice(start, stop)
            start = stop


class Called(nn.Module):
    """A model that takes one tensor and gives one, made of a model that takes fields or gives logits."""

    def __init__(self, module: nn.Module, fields: Fields | None) -> None:
        super().__init__()
        self.module, self.fields, self.training = module, fields, module.training

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        given: Any = self.module(inputs) if self.fields is None else self.module(**self.fields.unpack(inputs))
        return given if isinstance(given, torch.Tensor) else given.logits


def called(model: nn.Module, fields: Fields | None) -> nn.Module:
    """The model as the engines and scores call it."""
    named = fields is not None or type(model).__module__.partition(".")[0] in ("transformers", "peft")
    return Called(model, fields) if named and not isinstance(model, Called) else model


def plain(model: nn.Module) -> nn.Module:
    """The model as its factory gave it."""
    return model.module if isinstance(model, Called) else model
