"""Poisson batches of fixed shape: who is in, and the rows of a piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from dphypo import noise

Indices = npt.NDArray[np.int64]
Batch = tuple[torch.Tensor, torch.Tensor]


class Records(Protocol):
    """The private records, read by number."""

    def __len__(self) -> int: ...

    def rows(self, numbers: Indices) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Inputs and targets, one row for each number, and which of them can be used (None: all)."""
        ...


@dataclass(frozen=True, repr=False)
class Tensors:
    """Records held as two tensors."""

    inputs: torch.Tensor
    targets: torch.Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def rows(self, numbers: Indices) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        chosen = torch.from_numpy(numbers).to(self.inputs.device)
        return self.inputs.index_select(0, chosen), self.targets.index_select(0, chosen), None


class Piece(NamedTuple):
    """Rows of all runs, [runs × records, ...]; their records' numbers, and which are records, [runs, records]."""

    inputs: torch.Tensor
    targets: torch.Tensor
    numbers: torch.Tensor
    valid: torch.Tensor


class Sampler:
    """The Poisson batches of one run: each record independently with the rate, in every step.

    Args:
        words: the run's; the batches and the subsample have streams of their own.
        size: how many records there are, which is private.
        rate: the probability with which a step takes a record.
        subsample: the probability with which the run may use a record at all.
    """

    def __init__(self, words: noise.Words, size: int, rate: float, subsample: float = 1.0) -> None:
        self._words, self._rate = words.stream("batches"), rate
        self._kept = noise.chosen(subsample, words.stream("subsample"), size)

    def batch(self) -> Indices:
        """The numbers of the records of the next step."""
        return self._kept[noise.chosen(self._rate, self._words, len(self._kept))]


class Pieces:
    """The rows of a step, in pieces of ``size`` records a run; rows that no record fills are zero.

    Every step has ``count`` pieces. A batch that does not fit makes more of them: nothing is cut off.
    """

    def __init__(self, records: Records, example: Batch, runs: int, size: int, count: int) -> None:
        self._records, self._size, self._count = records, size, count
        self._device = example[0].device
        self._parts = [part.new_zeros((runs, size, *part.shape[1:])) for part in example]
        self._numbers = np.zeros((runs, size), dtype=np.int64)
        self._valid = np.zeros((runs, size), dtype=np.bool_)

    def of(self, batches: Sequence[Indices]) -> Iterator[Piece]:
        """The pieces of a step. Each is overwritten by the next."""
        count = max(self._count, -(-max(len(batch) for batch in batches) // self._size))
        for start in range(0, count * self._size, self._size):
            for run, batch in enumerate(batches):
                self._fill(run, batch[start : start + self._size])
            numbers, valid = (torch.from_numpy(part).to(self._device) for part in (self._numbers, self._valid))
            yield Piece(self._parts[0].flatten(0, 1), self._parts[1].flatten(0, 1), numbers, valid)

    def _fill(self, run: int, batch: Indices) -> None:
        filled = len(batch)
        *found, usable = self._records.rows(batch)
        for part, rows in zip(self._parts, found, strict=True):
            part[run, :filled] = rows
            part[run, filled:] = 0
        self._numbers[run, :filled] = batch
        self._valid[run, :filled] = True if usable is None else usable.cpu().numpy()
        self._valid[run, filled:] = False
