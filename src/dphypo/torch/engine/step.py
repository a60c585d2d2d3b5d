"""The exact step: from the parts of all gradients to a clipped sum on the grid.

Records are weighted by w = min(1, C₀/n̄, κC₀/A). n̄ is an upper bound on the norm of the record's gradient, so no record
adds more than C₀ to the sum. A bounds what the sum can lose to rounding: with wA ≤ κC₀ the computed sum is within ρ of
the real one (``sum_on_grid.py``). A record whose norm is not finite has weight zero, and both factors of its gradient
are zeroed where they are not finite.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from dphypo.torch.engine.stack import Slot, Sums
from dphypo.training.sum_on_grid import NORMALISED, SPREAD, UNIT, SumGrid


@dataclass(frozen=True, eq=False)
class RecordGradients:
    """The gradients of a weight and its bias, or of a part of a weight, record by record.

    Args:
        slots: which numbers of a row. Norms of parts with a number in common add up, squares of the others' do.
        terms: how many terms the longest sum of a record has.
        square: [runs, records], an upper bound on the squared norm of each record's gradient.
        spread: [runs, records], A: the sum of the norms of what the gradient is summed from; None if that is the norm.
        factors: [runs, records, ...] each, what ``add`` sums: records with equal bits in them add the same.
        add: ``add(weights, sums)`` adds Σ weights · gradient to the rows of sums, in double precision; once, since it
            works in place. Records of weight zero add zero, whatever their numbers are.
    """

    slots: tuple[Slot, ...]
    terms: int
    square: torch.Tensor
    spread: torch.Tensor | None
    factors: tuple[torch.Tensor, ...]
    add: Callable[[torch.Tensor, Sums], None]


class Weights:
    """The numbers of several runs' grids that weights need, each [runs, 1], in double precision."""

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
    """The parts whose slots have a number in common, one group after the other: their norms are added.

    Slots need not be equal: a kernel may be used whole, and in another place in groups of its outputs.
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
    """n̄ and A of whole gradients; A is None where it is n̄."""
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
