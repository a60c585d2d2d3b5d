"""The trainable parameters of several runs of one architecture: one row of numbers a run.

Each parameter has a slot in the row. Slots begin at multiples of 64 bytes, so that the arithmetic on one run's slot
does not depend on which run it is. The gaps between them belong to no parameter.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import nn

_ALIGNED = 16  # elements


class Slot(NamedTuple):
    """Some of the numbers of a row: from ``start``, so many."""

    start: int
    size: int

    def of(self, rows: torch.Tensor) -> torch.Tensor:
        """[runs, size], a view."""
        return rows[:, self.start : self.start + self.size]


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the trainable parameters of an architecture lie in a row.

    >>> layout = Layout.of(nn.Linear(3, 2))
    >>> layout.names, layout.size, layout.width
    (('weight', 'bias'), 8, 32)
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    dtype: torch.dtype
    starts: tuple[int, ...] = field(init=False)
    width: int = field(init=False)

    def __post_init__(self) -> None:
        starts, end = [], 0
        for shape in self.shapes:
            starts.append(end)
            end += _ALIGNED * math.ceil(math.prod(shape) / _ALIGNED)
        object.__setattr__(self, "starts", tuple(starts))
        object.__setattr__(self, "width", end)

    @classmethod
    def of(cls, model: nn.Module) -> Layout:
        """The layout of a model's trainable parameters, each once however often it is used."""
        named = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
        return cls(
            tuple(name for name, _ in named), tuple(value.shape for _, value in named), next(v.dtype for _, v in named)
        )

    @property
    def size(self) -> int:
        """How many numbers are trained."""
        return sum(math.prod(shape) for shape in self.shapes)

    @functools.cache  # noqa: B019 - a layout lives as long as its program
    def slot(self, place: int, group: int = 0, groups: int = 1) -> Slot:
        """Where a parameter lies; or one of several equal groups of its first dimension."""
        size = math.prod(self.shapes[place]) // groups
        return Slot(self.starts[place] + group * size, size)

    def place_of(self, slot: Slot) -> int:
        """The place of the parameter that a slot belongs to."""
        return bisect.bisect_right(self.starts, slot.start) - 1

    def values(self, rows: torch.Tensor, place: int) -> torch.Tensor:
        """The parameter at a place, for every run: [runs, ...], a view."""
        return self.slot(place).of(rows).view(len(rows), *self.shapes[place])

    def stacked(self, models: Sequence[nn.Module], device: torch.device) -> torch.Tensor:
        """The parameters of several models, copied."""
        rows = torch.zeros((len(models), self.width), dtype=self.dtype, device=device)
        for run, model in enumerate(models):
            self._fill(rows[run : run + 1], (value for value in model.parameters() if value.requires_grad))
        return rows

    def _fill(self, row: torch.Tensor, values: Iterable[torch.Tensor]) -> None:
        for place, value in enumerate(values):
            self.values(row, place)[0].copy_(value.detach())

    @torch.no_grad()
    def write(self, row: torch.Tensor, model: nn.Module) -> None:
        """Give a model the parameters of one run."""
        trained = [value for value in model.parameters() if value.requires_grad]
        for place, value in enumerate(trained):
            value.copy_(self.values(row[None], place)[0])
