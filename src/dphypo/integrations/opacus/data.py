"""The private records, whatever they come as, and which of them can be used.

A record outside its domain (a label that the model has no output for, a token that it has no row for, a value that is
not a finite number, another shape than the others') would make a run fail, and so show itself through any noise. Such
a record is left out, of training and of scoring. Whether a record is in the domain depends on that record and on public
things alone, so that leaving it out costs nothing: two neighbouring sets of records stay neighbours.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate

Batch = tuple[torch.Tensor, torch.Tensor]

_PAIR = "give a pair (inputs, targets) of arrays or tensors, a TensorDataset, or a data set that is read by index"


@dataclass(frozen=True, kw_only=True)
class Domain:
    """What a record may be, from public things alone.

    A record is in the domain if its input and target have the shape and the type of the others', all numbers among them
    are finite, the label is 0, 1, ..., ``classes - 1`` and every token is 0, 1, ..., ``vocabulary - 1``.

    Args:
        input_shape, target_shape: of one record.
        input_type, target_type: of one record, where they are known. Of records that are read one by one, numbers of
            another precision are converted; a fraction in place of a label or a token is outside the domain.
        classes: how many labels the loss knows, None if the targets are no labels.
        vocabulary: how many tokens the model knows, None if the inputs are no tokens.

    >>> domain = Domain(input_shape=(2,), target_shape=(), classes=3)
    >>> domain.contains(torch.tensor([[0.0, 1.0], [0.0, torch.nan], [0.0, 1.0]]), torch.tensor([2, 2, 3])).tolist()
    [True, False, False]
    """

    input_shape: tuple[int, ...]
    target_shape: tuple[int, ...]
    classes: int | None = None
    vocabulary: int | None = None
    input_type: torch.dtype | None = None
    target_type: torch.dtype | None = None

    @classmethod
    def of(cls, model: nn.Module, example: Batch, loss: Callable[..., Any] | None = None) -> Domain:
        """The domain of records that look like ``example``, found by trying made-up ones on a copy of the model."""
        input_shape, target_shape = (tuple(part.shape[1:]) for part in example)
        tokens = not example[0].dtype.is_floating_point
        labels = loss is not None and not example[1].dtype.is_floating_point
        vocabulary = classes = None
        if tokens or labels:
            with contextlib.suppress(RuntimeError, NotImplementedError):  # a model that runs on its device alone
                vocabulary, classes = _sizes(copy.deepcopy(model).cpu().eval(), example, loss if labels else None)
        return cls(
            input_shape=input_shape,
            target_shape=target_shape,
            classes=classes,
            vocabulary=vocabulary,
            input_type=example[0].dtype,
            target_type=example[1].dtype,
        )

    def contains(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """For each record of a batch, whether it is in the domain."""
        return _within(inputs, self.vocabulary) & _within(targets, self.classes)

    def typed(self, inputs: torch.Tensor, targets: torch.Tensor) -> Batch | None:
        """A record in the types of the others, or None if it is of another kind.

        Records that are read one by one are put together in batches, and one of another type would change the type of
        all records that it is put together with.
        """
        pairs = ((inputs, self.input_type or inputs.dtype), (targets, self.target_type or targets.dtype))
        if any(part.dtype.is_floating_point != kind.is_floating_point or part.is_complex() for part, kind in pairs):
            return None
        return pairs[0][0].to(pairs[0][1]), pairs[1][0].to(pairs[1][1])


@torch.no_grad()
def _sizes(model: nn.Module, example: Batch, loss: Callable[..., Any] | None) -> tuple[int | None, int | None]:
    """How many tokens the model has rows for, and how many labels its loss knows; None where it takes any."""
    inputs, targets = (torch.zeros((2, *part.shape[1:]), dtype=part.dtype) for part in example)
    vocabulary = classes = None
    if not inputs.dtype.is_floating_point:
        tables = (layer for layer in model.modules() if isinstance(layer, nn.Embedding | nn.EmbeddingBag))
        sizes = {layer.num_embeddings for layer in tables}
        vocabulary = _first_refused(sizes, lambda token: model(torch.full_like(inputs, token)))
    if loss is not None:
        outputs = model(inputs)
        if isinstance(outputs, torch.Tensor) and outputs.dim() > 1:
            classes = _first_refused({outputs.shape[1]}, lambda label: loss(outputs, torch.full_like(targets, label)))
    return vocabulary, classes


def _first_refused(sizes: set[int], use: Callable[[int], Any]) -> int | None:
    """The smallest size that is refused as an index where the one below it is not."""
    return next((size for size in sorted(sizes) if _works(use, size - 1) and not _works(use, size)), None)


def _works(use: Callable[[int], Any], value: int) -> bool:
    try:
        use(value)
    except Exception:
        return False
    return True


def _within(values: torch.Tensor, size: int | None) -> torch.Tensor:
    flat = values.reshape(len(values), -1)
    if flat.dtype.is_floating_point or flat.dtype.is_complex:
        return flat.isfinite().all(1)
    if size is None:
        return torch.ones(len(flat), dtype=torch.bool, device=flat.device)
    return ((flat >= 0) & (flat < size)).all(1)


@dataclass(frozen=True, repr=False)
class TensorRecords:
    """Inputs and targets held as two tensors: a batch is one indexing operation."""

    inputs: torch.Tensor
    targets: torch.Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def to(self, device: torch.device) -> TensorRecords:
        return TensorRecords(self.inputs.to(device), self.targets.to(device))

    def within(self, domain: Domain) -> TensorRecords:
        """The records that are in the domain."""
        inside = domain.contains(self.inputs, self.targets)
        return self if bool(inside.all()) else TensorRecords(self.inputs[inside], self.targets[inside])

    def batch(self, indices: npt.NDArray[np.int64], device: torch.device) -> Batch:
        chosen = torch.from_numpy(indices).to(self.inputs.device)
        return self.inputs[chosen].to(device), self.targets[chosen].to(device)

    def example(self) -> Batch:
        """The shape and type of one record, not its values."""
        return self.inputs.new_empty((1, *self.inputs.shape[1:])), self.targets.new_empty((1, *self.targets.shape[1:]))


@dataclass(frozen=True, repr=False)
class DatasetRecords:
    """A PyTorch data set that gives one (input, target) pair for an index.

    With a domain, a batch leaves out the records that are not in it, and those that cannot be read.
    """

    dataset: Dataset[Any]
    domain: Domain | None = None

    def __len__(self) -> int:
        return len(cast(Sized, self.dataset))

    def to(self, device: torch.device) -> DatasetRecords:
        return self

    def within(self, domain: Domain) -> DatasetRecords:
        """The records, of which every batch gives those that are in the domain."""
        return DatasetRecords(self.dataset, domain)

    def batch(self, indices: npt.NDArray[np.int64], device: torch.device) -> Batch:
        found = [record for index in indices if (record := self._record(int(index))) is not None]
        if not found:
            return torch.empty(0, device=device), torch.empty(0, device=device)
        inputs, targets = (torch.cat(parts) for parts in zip(*found, strict=True))
        return inputs.to(device), targets.to(device)

    def _record(self, index: int) -> Batch | None:
        if self.domain is None:
            return _pair(default_collate([self.dataset[index]]))
        try:
            inputs, targets = _pair(default_collate([self.dataset[index]]))
        except MemoryError:
            raise
        except Exception:
            return None
        shapes = (tuple(inputs.shape[1:]), tuple(targets.shape[1:]))
        if shapes != (self.domain.input_shape, self.domain.target_shape) or not self.domain.contains(inputs, targets):
            return None
        return self.domain.typed(inputs, targets)

    def example(self) -> Batch:
        """The shape and type of the first record, not its values."""
        inputs, targets = _pair(default_collate([self.dataset[0]]))
        return torch.empty_like(inputs), torch.empty_like(targets)


def _pair(collated: Any) -> Batch:
    if not (isinstance(collated, list | tuple) and len(collated) == 2):
        raise TypeError(f"the data set does not give an (input, target) pair for an index: {_PAIR}")
    inputs, targets = (_single_precision(torch.as_tensor(part)) for part in collated)
    return inputs, targets


Records = TensorRecords | DatasetRecords


def made_up(example: Batch, count: int) -> Batch:
    """Random records with the shape and type of an example: numbers for numbers, 0 and 1 for tokens and classes."""
    inputs, targets = example
    return _random_like(inputs, torch.randn, count), _random_like(targets, torch.rand, count)


def _random_like(part: torch.Tensor, draw: Callable[..., torch.Tensor], count: int) -> torch.Tensor:
    shape = (count, *part.shape[1:])
    if part.dtype.is_floating_point:
        return draw(shape, device=part.device, dtype=part.dtype)
    return torch.randint(0, 2, shape, device=part.device).to(part.dtype)


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
        indexed = hasattr(data, "__getitem__") and hasattr(data, "__len__")
        if not indexed or isinstance(data, torch.Tensor | np.ndarray | str) or hasattr(data, "iloc"):
            raise TypeError(f"data is a {type(data).__name__}: {_PAIR}, for example data=(X, y)")
        return DatasetRecords(data)
    if len(data) != 2:
        raise ValueError(f"data holds {len(data)} parts: {_PAIR}")
    inputs, targets = (_tensor(part) for part in data)
    if inputs.dim() == 0 or targets.dim() == 0 or len(inputs) != len(targets):
        raise ValueError("data holds inputs and targets of different lengths: give one target for every input")
    return TensorRecords(inputs, targets)


def _tensor(part: Any) -> torch.Tensor:
    if hasattr(part, "iloc") or (isinstance(part, np.ndarray) and not part.flags.writeable):
        part = np.array(part)
    try:
        return _single_precision(torch.as_tensor(part))
    except (TypeError, ValueError, RuntimeError):
        kind = type(part).__name__
    raise TypeError(f"data holds a {kind} that is no table of numbers: encode text as numbers first, or {_PAIR}")


def _single_precision(values: torch.Tensor) -> torch.Tensor:
    """numpy's double precision as the precision PyTorch's layers have by default; anything else as it is."""
    return values.float() if values.dtype == torch.float64 else values
