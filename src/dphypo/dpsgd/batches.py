"""Poisson batches of fixed shape, drawn some steps ahead; and the rows of the records in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from dphypo import noise

Batch = tuple[torch.Tensor, torch.Tensor]
Indices = npt.NDArray[np.int64]
_AHEAD = 2**16  # words drawn at a time, about


class Records(Protocol):
    """The private records, read by number."""

    def __len__(self) -> int: ...

    def rows(self, numbers: torch.Tensor, valid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Inputs, targets and which rows count, one for each number.

        Rows that are not valid may hold anything, and do not count; a valid one counts if its record can be used.
        """
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Tensors:
    """Records held as two tensors; ``usable`` says which of them can be used, None if all can."""

    inputs: torch.Tensor
    targets: torch.Tensor
    usable: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def rows(self, numbers: torch.Tensor, valid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if not len(self.inputs):
            blank = (part.new_zeros((len(numbers), *part.shape[1:])) for part in (self.inputs, self.targets))
            return *blank, valid  # type: ignore[return-value]
        counts = valid if self.usable is None else valid & self.usable.index_select(0, numbers)
        return self.inputs.index_select(0, numbers), self.targets.index_select(0, numbers), counts

    def labelled(self, classes: int, ignored: int) -> Tensors:
        """The records without those whose label is not 0, …, ``classes − 1``: they cannot be used."""
        inside = self.targets.clamp(0, classes - 1)
        wrong = (inside != self.targets) & (self.targets != ignored)
        wrong = wrong if wrong.dim() == 1 else wrong.flatten(1).any(1)
        usable = ~wrong if self.usable is None else self.usable & ~wrong
        return Tensors(self.inputs, torch.where(self.targets == ignored, self.targets, inside), usable)


class Piece(NamedTuple):
    """Rows of all runs, [runs × records, ...]; their records' numbers, and which count, [runs, records]."""

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

    def batches(self, steps: int) -> list[Indices]:
        """The numbers of the records of the next steps."""
        size = len(self._kept)
        places = noise.chosen(self._rate, self._words, steps * size)
        ends = np.searchsorted(places, np.arange(1, steps) * size)
        return [self._kept[some % size] if size else some for some in np.split(places, ends)]


class Batches:
    """The rows of the runs' steps, in pieces of ``size`` records a run, drawn on the CPU.

    Every step has ``count`` pieces. A batch that does not fit makes more of them: nothing is cut off.
    """

    def __init__(self, records: Records, samplers: Sequence[Sampler], size: int, count: int) -> None:
        self._records, self._samplers, self._size, self._count = records, samplers, size, count
        self._ahead = max(1, min(32, _AHEAD // max(1, len(records))))
        self._waiting: list[list[Indices]] = []

    def pieces(self, device: torch.device) -> Iterator[Piece]:
        """The pieces of the next step."""
        if not self._waiting:
            drawn = [sampler.batches(self._ahead) for sampler in self._samplers]
            self._waiting = [list(step) for step in zip(*drawn, strict=True)]
        batches = self._waiting.pop(0)
        lengths = np.array([len(batch) for batch in batches])
        count = max(self._count, -(-int(lengths.max()) // self._size))
        numbers = np.zeros((len(batches), count * self._size), dtype=np.int64)
        for row, batch in zip(numbers, batches, strict=True):
            row[: len(batch)] = batch
        valid = np.arange(count * self._size) < lengths[:, None]
        for start in range(0, count * self._size, self._size):
            some = slice(start, start + self._size)
            yield piece(self._records, *(torch.from_numpy(part[:, some]).to(device) for part in (numbers, valid)))


def piece(records: Records, numbers: torch.Tensor, valid: torch.Tensor) -> Piece:
    """The rows of some numbers, [runs, records]."""
    inputs, targets, counts = records.rows(numbers.reshape(-1), valid.reshape(-1))
    return Piece(inputs, targets, numbers, counts.view(valid.shape))
