"""Records of several fields, and models that take them by name: what ``transformers`` and ``peft`` work with.

A record such as ``{"input_ids": ..., "attention_mask": ..., "labels": ...}`` is kept as one row of numbers. The model
receives the row as arguments by name, or by position for a tuple. A field that is itself a mapping or a tuple has
subfields, such as ``image.left``. One field is the target, which the model never sees, so it computes no loss itself.
If a model returns an object with ``logits``, these are its output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dphypo import _validate
from dphypo.errors import UnsupportedModelError
from dphypo.training.split import fields_of

TARGET = "labels"


def by_name(record: object, target: str | None = None) -> dict[str, Any] | None:
    """The fields of a mapping, a dataclass, or a tuple of three or more; None for an (input, target) pair.

    For a pair whose input has fields, these fields and the target.

    >>> by_name((1, 2, 3)), by_name((1, 2))
    ({'0': 1, '1': 2, '2': 3}, None)
    >>> by_name(({"left": 1, "right": {"up": 2}}, 3))
    {'left': 1, 'right.up': 2, 'labels': 3}
    """
    found = fields_of(record)
    if isinstance(record, tuple | list) and len(record) == 2 and (named := fields_of(record[0])) is not None:
        found = {**named, target or TARGET: record[1]}
    elif found is None and isinstance(record, tuple | list) and (len(record) > 2 or target is not None):
        found = dict(zip(getattr(record, "_fields", map(str, range(len(record)))), record, strict=True))
    return None if found is None else dict(_flat(found))


def _flat(fields: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Nested fields by their paths. A tuple of numbers is one field."""
    for name, value in fields.items():
        inner = fields_of(value)
        if isinstance(value, tuple) and any(getattr(part, "shape", ()) or fields_of(part) for part in value):
            inner = {str(place): part for place, part in enumerate(value)}
        if inner is None:
            yield f"{above}{name}", value
        else:
            yield from _flat(inner, f"{above}{name}.")


def _nested(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of flattening: nested fields from fields by their paths.

    >>> _nested({"ids": 1, "image.0": 2, "image.1.left": 3})
    {'ids': 1, 'image': (2, {'left': 3})}
    """
    found: dict[str, Any] = {}
    for path, value in fields.items():
        name, _, rest = path.partition(".")
        found.setdefault(name, {})[rest] = value
    read = {name: inner[""] if list(inner) == [""] else _nested(inner) for name, inner in found.items()}
    return {
        name: tuple(part.values()) if isinstance(part, dict) and all(map(str.isdigit, part)) else part
        for name, part in read.items()
    }


@dataclass(frozen=True)
class Fields:
    """Where the fields of a record lie in its row.

    A row of whole numbers and fractions is in double precision, which holds both.

    >>> given = {"ids": torch.tensor([[5, 6]]), "age": torch.tensor([0.5]), "labels": torch.tensor([1])}
    >>> fields = Fields.of(given)
    >>> fields.pack(given)
    (tensor([[5.0000, 6.0000, 0.5000]], dtype=torch.float64), tensor([1]))
    >>> fields.unpack(fields.pack(given)[0])
    {'ids': tensor([[5, 6]]), 'age': tensor([0.5000])}
    """

    shapes: Mapping[str, tuple[int, ...]]
    kinds: Mapping[str, torch.dtype]
    target: str = TARGET

    @classmethod
    def of(cls, records: Mapping[str, torch.Tensor], target: str | None = None) -> Fields:
        """The fields of records that are given as one tensor per field; the last field of a tuple is the target."""
        last = list(records)[-1]
        target = target or (last if last.isdigit() else TARGET)
        names = [name for name in records if name != target]
        if target not in records or not names:
            known = ", ".join(records)
            raise _validate.fail("target", target, f"records have the fields {known}: name the one that is the target")
        types = {name: records[name].dtype for name in names}  # a model receives whole numbers in 64 bits
        kinds = {name: k if k.is_floating_point or k is torch.bool else torch.int64 for name, k in types.items()}
        return cls({name: tuple(records[name].shape[1:]) for name in names}, kinds, target)

    @property
    def names(self) -> tuple[str, ...]:
        """All fields that are read, the target last."""
        return (*self.shapes, self.target)

    def pack(self, records: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows and targets; an error if a field is missing or has another shape. Other fields are dropped."""
        if missing := [name for name in self.names if name not in records]:
            raise ValueError(f"a record has no field {missing[0]!r}")
        for name, shape in self.shapes.items():
            if tuple(records[name].shape[1:]) != shape:
                raise ValueError(f"the field {name!r} of a record has shape {tuple(records[name].shape[1:])}")
        parts = ((records[name], self.kinds[name]) for name in self.shapes)
        read = (part.to(kind) if kind.is_floating_point else part for part, kind in parts)
        rows = [part.reshape(-1, math.prod(part.shape[1:])) for part in read]
        kind = _common([row.dtype for row in rows])
        return torch.cat([row.to(kind) for row in rows], 1), records[self.target]

    def unpack(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """The arguments of the model."""
        parts = ((name, rows[:, place].to(self.kinds[name])) for name, place in self.places())
        return {name: part.reshape(len(rows), *self.shapes[name]) for name, part in parts}

    def places(self) -> Iterator[tuple[str, slice]]:
        """Each field, and the part of a row that it occupies."""
        start = 0
        for name, shape in self.shapes.items():
            stop = start + math.prod(shape)
            yield name, slice(start, stop)
            start = stop

    def example(self) -> torch.Tensor:
        """A row of zeros, or NaN for whole numbers among fractions, so that made-up records have whole ones there."""
        width = sum(math.prod(shape) for shape in self.shapes.values())
        row = torch.zeros(1, width, dtype=_common(list(self.kinds.values())))
        for name, place in self.places():
            if row.is_floating_point() and not self.kinds[name].is_floating_point:
                row[:, place] = torch.nan
        return row


def _common(kinds: list[torch.dtype]) -> torch.dtype:
    """The type of a row that holds all of these exactly."""
    if not any(kind.is_floating_point for kind in kinds):
        return torch.int64
    return kinds[0] if len(set(kinds)) == 1 else torch.float64


class Called(nn.Module):
    """Wraps a model that takes fields or returns logits: it takes one tensor and returns one."""

    def __init__(self, module: nn.Module, fields: Fields | None) -> None:
        super().__init__()
        self.module, self.fields, self.training = module, fields, module.training

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.fields is None:
            given: Any = self.module(inputs)
        else:  # arguments by name, or by position where records are tuples
            named = _nested(self.fields.unpack(inputs))
            given = self.module(*named.values()) if next(iter(named)).isdigit() else self.module(**named)
        if isinstance(given, torch.Tensor):
            return given
        if not isinstance(logits := getattr(given, "logits", None), torch.Tensor):
            raise UnsupportedModelError(
                f"the model returns a {type(given).__name__} without logits, from which the loss is computed: use a "
                f"model with a head, such as AutoModelForSequenceClassification, or return a tensor"
            )
        return logits


def called(model: nn.Module, fields: Fields | None) -> nn.Module:
    """The model as the engines and scores call it."""
    named = fields is not None or type(model).__module__.partition(".")[0] in ("transformers", "peft")
    return Called(model, fields) if named and not isinstance(model, Called) else model


def plain(model: nn.Module) -> nn.Module:
    """The model as its factory returned it."""
    return model.module if isinstance(model, Called) else model
