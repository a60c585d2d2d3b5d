"""The private records, whatever they come as, read by the indices of a Poisson batch."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, repr=False)
class TensorRecords:
    """Inputs and targets held as two tensors: a batch is one indexing operation."""

    inputs: torch.Tensor
    targets: torch.Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def to(self, device: torch.device) -> TensorRecords:
        return TensorRecords(self.inputs.to(device), self.targets.to(device))

    def batch(self, indices: npt.NDArray[np.int64], device: torch.device) -> Batch:
        chosen = torch.from_numpy(indices).to(self.inputs.device)
        return self.inputs[chosen].to(device), self.targets[chosen].to(device)

    def example(self) -> Batch:
        """The shape and type of one record, not its values."""
        return self.inputs.new_empty((1, *self.inputs.shape[1:])), self.targets.new_empty((1, *self.targets.shape[1:]))


@dataclass(frozen=True, repr=False)
class DatasetRecords:
    """A PyTorch data set that gives one (input, target) pair for an index."""

    dataset: Dataset[Any]

    def __len__(self) -> int:
        return len(cast(Sized, self.dataset))

    def to(self, device: torch.device) -> DatasetRecords:
        return self

    def batch(self, indices: npt.NDArray[np.int64], device: torch.device) -> Batch:
        if len(indices) == 0:
            return torch.empty(0, device=device), torch.empty(0, device=device)
        inputs, targets = default_collate([self.dataset[int(index)] for index in indices])
        return inputs.to(device), targets.to(device)

    def example(self) -> Batch:
        """The shape and type of one record, not its values."""
        inputs, targets = default_collate([self.dataset[0]])
        return torch.empty_like(inputs), torch.empty_like(targets)


Records = TensorRecords | DatasetRecords


def as_records(data: Any) -> Records:
    """Records from a pair of arrays or tensors, a ``TensorDataset`` of two, or any data set with an index.

    >>> records = as_records((np.zeros((5, 3), dtype=np.float32), np.arange(5)))
    >>> [tuple(part.shape) for part in records.batch(np.array([0, 4]), torch.device("cpu"))]
    [(2, 3), (2,)]
    """
    if isinstance(data, TensorRecords | DatasetRecords):
        return data
    if isinstance(data, IterableDataset):
        raise TypeError(
            "data is an IterableDataset: Poisson sampling decides for each record by itself whether it is in a batch, "
            "which needs a data set that can be read by index"
        )
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, Dataset) or not isinstance(data, Sequence):
        if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
            raise TypeError("data must be a pair (inputs, targets), a TensorDataset or a data set with an index")
        return DatasetRecords(data)
    if len(data) != 2:
        raise ValueError(f"data holds {len(data)} arrays: give a pair (inputs, targets)")
    inputs, targets = (_single_precision(torch.as_tensor(part)) for part in data)
    if len(inputs) != len(targets):
        raise ValueError("data holds inputs and targets of different lengths: give one target for every input")
    return TensorRecords(inputs, targets)


def _single_precision(values: torch.Tensor) -> torch.Tensor:
    """numpy's double precision as the precision PyTorch's layers have by default; anything else as it is."""
    return values.float() if values.dtype == torch.float64 else values
