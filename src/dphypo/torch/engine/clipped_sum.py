"""Clipping and summing per-record gradients, on the grid.

A record has weight w = min(1, C₀/n̄, κC₀/A). n̄ is an upper bound on the norm of its gradient, so no record adds more
than C₀ to the sum. A bounds the rounding errors of the sum: with wA ≤ κC₀ the computed sum is within ρ of the real one
(``sum_on_grid.py``). A record whose norm is not finite has weight zero, and its gradient's factors are replaced by zero
where they are not finite.

The parameters of a run, and their sums, are a row of numbers, in which each parameter has a slot. Slots begin at
multiples of 64 bytes, so that the arithmetic on a run's slot does not depend on which run of a group it is. The gaps
between slots belong to no parameter.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from dphypo.errors import UnsupportedModelError
from dphypo.training.sum_on_grid import NORMALISED, SPREAD, UNIT, SumGrid

_ALIGNED = 16  # elements


@dataclass(frozen=True)
class Shape:
    """The rows of one pass: ``runs`` × ``records`` × ``views``, in this order."""

    runs: int
    records: int
    views: int = 1

    @property
    def rows(self) -> int:
        return self.runs * self.records * self.views


class Slot(NamedTuple):
    """A part of a row: ``size`` numbers from ``start``."""

    start: int
    size: int

    def of(self, rows: torch.Tensor) -> torch.Tensor:
        """[runs, size], a view."""
        return rows[:, self.start : self.start + self.size]


def trained(model: nn.Module) -> list[nn.Parameter]:
    """The trainable parameters of a model, each once."""
    return [value for value in model.parameters() if value.requires_grad]


@dataclass(frozen=True, eq=False)
class Layout:
    """The positions of an architecture's trainable parameters in a row.

    >>> layout = Layout.of(nn.Linear(3, 2))
    >>> layout.names, layout.size, layout.width
    (('weight', 'bias'), 8, 32)
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    dtype: torch.dtype

    @functools.cached_property
    def starts(self) -> tuple[int, ...]:
        """The start of each slot, and the width of a row."""
        rooms = (_ALIGNED * math.ceil(math.prod(shape) / _ALIGNED) for shape in self.shapes)
        return tuple(itertools.accumulate(rooms, initial=0))

    @property
    def width(self) -> int:
        return self.starts[-1]

    @classmethod
    def of(cls, model: nn.Module) -> Layout:
        """The layout of a model's trainable parameters, each once even if several layers use it."""
        named = {name: value for name, value in model.named_parameters() if value.requires_grad}
        return cls(tuple(named), tuple(value.shape for value in named.values()), trained(model)[0].dtype)

    @property
    def size(self) -> int:
        """How many numbers are trained, without the gaps."""
        return sum(math.prod(shape) for shape in self.shapes)

    @functools.cache  # noqa: B019 - a layout lives as long as its program
    def slot(self, place: int, group: int = 0, groups: int = 1) -> Slot:
        """The slot of a parameter, or of one of several equal groups of its first dimension."""
        size = math.prod(self.shapes[place]) // groups
        return Slot(self.starts[place] + group * size, size)

    def values(self, rows: torch.Tensor, place: int) -> torch.Tensor:
        """The parameter at a place, for every run: [runs, ...], a view."""
        return self.slot(place).of(rows).view(len(rows), *self.shapes[place])

    def each(self, row: torch.Tensor) -> list[torch.Tensor]:
        """All parameters of one run, views of its row."""
        ends = [min(end, len(row)) for end in self.starts]  # the gap at the end may be missing
        slots = row.split_with_sizes([end - start for start, end in itertools.pairwise(ends)])
        return [slot[: math.prod(shape)].view(shape) for slot, shape in zip(slots, self.shapes, strict=True)]

    def stacked(self, models: Sequence[nn.Module], device: torch.device) -> torch.Tensor:
        """The parameters of several models, copied."""
        rows = torch.zeros((len(models), self.width), dtype=self.dtype, device=device)
        for row, model in zip(rows, models, strict=True):
            if tuple(value.shape for value in trained(model)) != self.shapes:
                raise UnsupportedModelError(
                    "the trained weights of the model have other shapes than those of the one that was captured: let "
                    "its factory build one architecture from its arguments"
                )
            for into, value in zip(self.each(row), trained(model), strict=True):
                into.copy_(value.detach())
        return rows

    @torch.no_grad()
    def write(self, row: torch.Tensor, model: nn.Module) -> None:
        """Write the parameters of one run to a model."""
        for value, given in zip(trained(model), self.each(row), strict=True):
            if any(value.stride()):
                value.copy_(given)
            else:  # by drop()
                value.data = given.clone()


def drop(model: nn.Module) -> None:
    """Free the memory of a model's trainable parameters, whose numbers are in a row; they keep their shapes."""
    for value in trained(model):
        if value.is_contiguous():
            value.data = value.new_zeros(()).expand(value.shape)


class Sums:
    """The sums over the records of every run, [runs, width], in double precision; views of them are cached."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = torch.zeros(rows.shape, dtype=torch.float64, device=rows.device)
        self._views: dict[tuple[int, ...], tuple[torch.Tensor, Sequence[torch.Tensor]]] = {}

    def _view(self, slot: Slot, shape: tuple[int, ...]) -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
        key = (*slot, *shape)
        if key not in self._views:
            whole = slot.of(self.rows).view(len(self.rows), *shape)
            self._views[key] = whole, whole.unbind()
        return self._views[key]

    def at(self, slot: Slot, *shape: int) -> torch.Tensor:
        """A slot as [runs, *shape]."""
        return self._view(slot, shape)[0]

    def each(self, slot: Slot, *shape: int) -> Sequence[torch.Tensor]:
        """The same, run by run."""
        return self._view(slot, shape)[1]


@dataclass(frozen=True, eq=False)
class RecordGradients:
    """The gradients of a weight and its bias, or of a part of a weight, for every record.

    Args:
        slots: their slots in a row. The norms of parts that have a number in common are added; of other parts, the
            squared norms are.
        terms: how many terms the longest sum of a record has.
        square: [runs, records], an upper bound on the squared norm of each record's gradient.
        spread: [runs, records], A: the sum of the norms of the terms of the gradient; None if that is its norm.
        factors: [runs, records, ...] each, what ``add`` sums: records with equal bits here add the same bits.
        add: ``add(weights, sums)`` adds Σ weights · gradient to the sums, in double precision. It works in place, so it
            may be called once. A record of weight zero adds zero, whatever its numbers are.
    """

    slots: tuple[Slot, ...]
    terms: int
    square: torch.Tensor
    spread: torch.Tensor | None
    factors: tuple[torch.Tensor, ...]
    add: Callable[[torch.Tensor, Sums], None]


class Weights:
    """Weights of records, from the grids of their runs: ``scale`` and ``most`` are [runs, 1] in double precision."""

    def __init__(self, grids: Sequence[SumGrid], *, normalise: bool, device: torch.device) -> None:
        scales = [(grid.scale, grid.most) for grid in grids]
        self.scale, self.most = torch.tensor(scales, dtype=torch.float64, device=device).T[..., None].unbind()
        self.normalise, self.zero = normalise, torch.zeros((), dtype=torch.float64, device=device)

    def of(self, norms: torch.Tensor, spreads: torch.Tensor | None) -> torch.Tensor:
        """w·2^bits/h for each record."""
        made = self.most / (norms + NORMALISED if self.normalise else norms)
        made = made if self.normalise else torch.minimum(self.scale, made)
        return made if spreads is None else torch.minimum(made, SPREAD * self.most / spreads)


@functools.lru_cache(maxsize=64)
def _overlapping(slots: tuple[tuple[Slot, ...], ...]) -> list[list[int]]:
    """Groups of the parts whose slots have a number in common, whose norms are added.

    Slots may overlap without being equal: a kernel may be used as a whole, and elsewhere in groups of its outputs.
    """
    group, end, last = list(range(len(slots))), 0, 0
    for start, size, part in sorted((start, size, part) for part, some in enumerate(slots) for start, size in some):
        if start < end:
            old, new = group[part], group[last]
            group = [new if one == old else one for one in group]
        if start + size > end:
            end, last = start + size, part
    return [[part for part, one in enumerate(group) if one == some] for some in dict.fromkeys(group)]


def combined(parts: Sequence[RecordGradients]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """n̄ and A of the whole gradients; A is None if it equals n̄."""
    groups = [[parts[place] for place in some] for some in _overlapping(tuple(part.slots for part in parts))]
    add, margin = functools.partial(functools.reduce, torch.add), 1 + (8 * len(parts) + 16) * UNIT
    squares = [
        some[0].square if len(some) == 1 else add([part.square.sqrt() for part in some]).square() for some in groups
    ]
    norms = add(squares).sqrt() * margin
    if all(part.spread is None for part in parts):
        return norms, None
    spreads = [[part.square.sqrt() if part.spread is None else part.spread for part in some] for some in groups]
    return norms, add([add(some).square() for some in spreads]).sqrt() * margin


def add_clipped(parts: Sequence[RecordGradients], valid: torch.Tensor, weights: Weights, sums: Sums) -> None:
    """Add the clipped gradients of a piece's records to the sums, in units of h·2^−bits."""
    norms, spreads = combined(parts)
    fine = valid & (norms < torch.inf)  # false for NaN
    if spreads is not None:
        fine = fine & (spreads < torch.inf)
    factors = torch.where(fine, weights.of(norms, spreads), weights.zero)
    for part in parts:
        part.add(factors, sums)
