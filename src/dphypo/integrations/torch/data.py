"""The private records, whatever they come as: arrays, tensors, fields, or a data set that is read by index.

The shape and type of a record are public: an array's own, or those of an example that the user makes up. Of a data set
that is read by index, no record says what the others look like: it is private what any of them looks like.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset, default_collate

from dphypo.integrations.split import Origin
from dphypo.integrations.torch.domain import Batch, Domain
from dphypo.integrations.torch.fields import TARGET, Fields

Indices = npt.NDArray[np.int64]
_PAIR = (
    "give a pair (inputs, targets) of arrays or tensors, a mapping of fields with 'labels' among them, a "
    "TensorDataset, or a data set that is read by index"
)


@dataclass(frozen=True, repr=False)
class TensorRecords:
    """Inputs and targets held as two tensors: a batch is one indexing operation."""

    inputs: torch.Tensor
    targets: torch.Tensor
    like: Batch | None = None
    origin: Origin = Origin()  # noqa: RUF009 - a frozen value
    fields: Fields | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def to(self, device: torch.device) -> TensorRecords:
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device))

    def within(self, domain: Domain) -> TensorRecords:
        """The records that are in the domain."""
        inputs, targets = domain.chosen(self.inputs, self.targets)
        return replace(self, inputs=inputs, targets=targets)

    def batch(self, indices: Indices, device: torch.device) -> Batch:
        chosen = torch.from_numpy(indices).to(self.inputs.device)
        return self.inputs[chosen].to(device), self.targets[chosen].to(device)

    def example(self) -> Batch:
        """The shape and type of one record, not its values."""
        if self.like is not None:
            return self.like
        return self.inputs.new_empty((1, *self.inputs.shape[1:])), self.targets.new_empty((1, *self.targets.shape[1:]))


@dataclass(frozen=True, repr=False)
class DatasetRecords:
    """A data set that gives one (input, target) pair, or one mapping of fields, for an index.

    With a domain, a batch leaves out the records that are not in it, and those that cannot be read. ``like`` is a batch
    of one made-up record.
    """

    dataset: Dataset[Any]
    like: Batch
    domain: Domain | None = None
    origin: Origin = Origin()  # noqa: RUF009 - a frozen value
    fields: Fields | None = None

    def __len__(self) -> int:
        return len(cast(Sized, self.dataset))

    def to(self, device: torch.device) -> DatasetRecords:
        return self

    def within(self, domain: Domain) -> DatasetRecords:
        """The records, of which every batch gives those that are in the domain."""
        return replace(self, domain=domain)

    def batch(self, indices: Indices, device: torch.device) -> Batch:
        numbers = torch.from_numpy(indices)
        inputs, targets, usable = self.rows(numbers, torch.ones_like(numbers, dtype=torch.bool))
        return inputs[usable].to(device), targets[usable].to(device)

    def rows(self, numbers: torch.Tensor, valid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """One row for each number, and which of them count: what :class:`dphypo.dpsgd.Records` asks for."""
        pairs = zip(numbers.tolist(), valid.tolist(), strict=True)
        found = [self._record(number) if counts else None for number, counts in pairs]
        blank = tuple(torch.zeros_like(part) for part in self.like)
        filled = [blank if record is None else record for record in found]
        inputs, targets = (torch.cat([pair[part] for pair in filled] or [blank[part][:0]]) for part in (0, 1))
        usable = torch.tensor([record is not None for record in found], dtype=torch.bool)
        return inputs.to(numbers.device), targets.to(numbers.device), usable.to(numbers.device)

    def _record(self, index: int) -> Batch | None:
        if self.domain is None:
            return self._read(index)
        try:
            inputs, targets = self._read(index)
        except MemoryError:
            raise
        except Exception:
            return None
        shapes = (tuple(inputs.shape[1:]), tuple(targets.shape[1:]))
        if shapes != (self.domain.input_shape, self.domain.target_shape) or not self.domain.contains(inputs, targets):
            return None
        return self.domain.typed(inputs, targets)

    def _read(self, index: int) -> Batch:
        record = self.dataset[index]
        if self.fields is None:
            return _pair(default_collate([record]))
        return self.fields.pack(_one({name: record[name] for name in (*self.fields.shapes, TARGET)}))

    def example(self) -> Batch:
        """The shape and type of one record, as the user stated them."""
        return self.like


def _pair(collated: Any) -> Batch:
    if not (isinstance(collated, list | tuple) and len(collated) == 2):
        raise TypeError(f"the data set does not give an (input, target) pair for an index: {_PAIR}")
    inputs, targets = (_single_precision(torch.as_tensor(part)) for part in collated)
    return inputs, targets


Records = TensorRecords | DatasetRecords


def as_records(data: Any, example: Any = None, *, public: bool = False) -> Records:
    """Records from a pair of arrays or tensors, a mapping of fields, a ``TensorDataset`` of two, or any data set.

    Args:
        data: the records.
        example: one made-up record (input, target) that shows the shape and the type of all. Arrays have a shape and a
            type of their own; a data set that is read by index needs an example.
        public: whether the records are nobody's secret: then the first of them is the example.

    >>> records = as_records((np.zeros((5, 3), dtype=np.float32), np.arange(5)))
    >>> [tuple(part.shape) for part in records.batch(np.array([0, 4]), torch.device("cpu"))]
    [(2, 3), (2,)]
    """
    origin = Origin.of(data)
    if isinstance(data, TensorRecords | DatasetRecords):
        if example is None or data.fields is not None:
            return data
        data = data.dataset if isinstance(data, DatasetRecords) else (data.inputs, data.targets)
    if isinstance(data, IterableDataset):
        raise TypeError(
            "data is an IterableDataset: Poisson sampling decides for each record by itself whether it is in a batch, "
            "which needs a data set that can be read by index"
        )
    data, fields = _unwrapped(data), None
    if isinstance(data, Mapping):
        given = {name: _tensor(part) for name, part in data.items()}
        fields = Fields.of(given)
        data = fields.pack(given)
    if isinstance(data, Dataset) or not isinstance(data, Sequence):
        return replace(_indexed(data, example, public), origin=origin)
    if len(data) != 2:
        raise ValueError(f"data holds {len(data)} parts: {_PAIR}")
    inputs, targets = (_tensor(part) for part in data)
    if inputs.dim() == 0 or targets.dim() == 0 or len(inputs) != len(targets):
        raise ValueError("data holds inputs and targets of different lengths: give one target for every input")
    like = None if example is None else _example(example, fields)
    for name, part, shown in zip(("inputs", "targets"), (inputs, targets), like or (), strict=False):
        if part.shape[1:] != shown.shape[1:] or part.is_complex() != shown.is_complex():
            kinds = [f"{tuple(one.shape[1:])} of {one.dtype}" for one in (part, shown)]
            raise ValueError(f"the {name} of data are {kinds[0]}, and those of example are {kinds[1]}: they must agree")
    return TensorRecords(inputs, targets, like, origin, fields)


def _unwrapped(data: Any) -> Any:
    """The tensors of a ``TensorDataset``, or of a part of one (``Subset``): they show the shape of their records."""
    if isinstance(data, TensorDataset):
        return data.tensors
    if type(data) is not Subset:
        return data
    whole = _unwrapped(data.dataset)
    return [part[list(data.indices)] for part in whole] if isinstance(whole, list | tuple) else data


def _indexed(data: Any, example: Any, public: bool) -> DatasetRecords:
    indexed = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if not indexed or isinstance(data, torch.Tensor | np.ndarray | str) or hasattr(data, "iloc"):
        raise TypeError(f"data is a {type(data).__name__}: {_PAIR}, for example data=(X, y)")
    if example is not None:
        fields = Fields.of(_one(example)) if isinstance(example, Mapping) else None
        return DatasetRecords(data, _example(example, fields), fields=fields)
    if not public:
        raise ValueError(
            f"data is a {type(data).__name__}, which is read by index, and nothing public says what its records look "
            f"like: what the first one looks like is private. Give one made-up record, for example "
            f"example=(torch.zeros(3, 32, 32), 0); records of another shape or type are left out"
        )
    fields = Fields.of(_one(data[0])) if isinstance(data[0], Mapping) else None
    return DatasetRecords(data, _example(data[0], fields), fields=fields)


def _one(record: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """One record of several fields as a batch of one."""
    return {name: _single_precision(torch.as_tensor(value)).unsqueeze(0) for name, value in record.items()}


def _example(example: Any, fields: Fields | None) -> Batch:
    """One made-up record as a batch of one."""
    with contextlib.suppress(TypeError, ValueError, RuntimeError):
        if fields is not None:
            return fields.pack(_one(example))
        return _pair(default_collate([example]))
    raise TypeError(
        f"example is a {type(example).__name__} that is not a record: give a pair (input, target) of tensors, arrays "
        f"or numbers with made-up values, for example example=(torch.zeros(3, 32, 32), 0)"
    )


def _tensor(part: Any) -> torch.Tensor:
    if hasattr(part, "iloc") or (isinstance(part, np.ndarray) and not part.flags.writeable):
        part = np.array(part)
    try:
        return _single_precision(torch.as_tensor(part))
    except (TypeError, ValueError, RuntimeError):
        kind = type(part).__name__
    raise TypeError(f"data holds a {kind} that is not a table of numbers: encode text as numbers first, or {_PAIR}")


def _single_precision(values: torch.Tensor) -> torch.Tensor:
    """numpy's double precision as the precision PyTorch's layers have by default; anything else as it is."""
    return values.float() if values.dtype == torch.float64 else values
