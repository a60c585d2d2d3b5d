"""x ↦ xWᵀ + b on the last dimension, for any number of positions; also x @ W, b + x @ W and embeddings.

With inputs a_l and output gradients g_l at the positions l of a record, its gradient is Σ_l g_l a_lᵀ, and Σ_l g_l for
the bias. Three ways to its norm, p and r being the widths and L the number of positions:

* L = 1: ‖a‖²‖g‖², with the bias (‖a‖² + 1)‖g‖², and A is the norm itself.
* *ghost*, 2L² < pr: n̂² = Σ_{l,l′} ⟨a_l, a_l′⟩⟨g_l, g_l′⟩ in double precision. The terms cancel, so what is used is
  n̄² = max(0, n̂²) + γ(p + r + L² + 4)·A², A = Σ_l ‖a_l‖‖g_l‖.
* *held* otherwise: the gradients themselves (``products.held``). A GPU, which waits for its memory, does so where they
  are fewer numbers than three times what they are made of.

An embedding is a linear layer on one-hot inputs. With t_l the token at position l, A = Σ_l ‖g_l‖ and
n̂² = Σ_{l,l′ : t_l = t_l′} ⟨g_l, g_l′⟩, summed over l′, then over l and the width r: n̄² = max(0, n̂²) + γ(Lr + L + 4)·A².
A record with a token that the table has no row for counts zero.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from dphypo.dpsgd.layers.products import (
    add_outer,
    added,
    finite_,
    held,
    squared,
    tiled,
    weighted_,
    wide,
    without_tiny_,
)
from dphypo.dpsgd.stack import Slot, Sums
from dphypo.dpsgd.step import RecordGradients
from dphypo.dpsgd.sum_on_grid import UNIT


def outer(weight: Slot, bias: Slot | None, inputs: torch.Tensor, gradients: torch.Tensor) -> list[RecordGradients]:
    """The parts of a weight [outputs, inputs], and of its bias.

    ``inputs`` and ``gradients`` are a and g, [runs, records, positions, width].
    """
    positions, p, r = *inputs.shape[2:], gradients.shape[-1]
    if positions == 1:
        return [_single(weight, bias, wide(inputs.squeeze(2)), wide(gradients.squeeze(2)))]
    left, right = gradients, inputs
    single = torch.promote_types(torch.promote_types(left.dtype, right.dtype), torch.float32)
    biases = [] if bias is None else [held(bias, gradients.sum(2, dtype=single))]
    if 2 * positions**2 >= p * r or (inputs.is_cuda and 3 * positions * (p + r) >= p * r):
        whole = tiled(left.to(single)).transpose(2, 3) @ tiled(right.to(single))
        return [held(weight, whole[..., : left.shape[-1], : right.shape[-1]]), *biases]
    left, right = wide(left), wide(right)
    one, two = (some @ some.transpose(2, 3) for some in (tiled(left), tiled(right)))  # all inner products
    lengths = one.diagonal(dim1=2, dim2=3) * two.diagonal(dim1=2, dim2=3)  # [runs, records, positions]
    spread = added(lengths.sqrt()) * (1 + (p + r + positions + 8) * UNIT)
    terms = (p + r + positions**2 + 4) * UNIT
    square = added(one.mul_(two).flatten(2)).clamp_min(0) + terms / (1 - terms) * spread.square()

    def add(weights: torch.Tensor, sums: Sums) -> None:
        add_outer(sums, weight, weighted_(left, weights).flatten(1, 2), finite_(right).flatten(1, 2))

    return [RecordGradients((weight,), positions, square, spread, (left, right), add), *biases]


def _single(weight: Slot, bias: Slot | None, inputs: torch.Tensor, gradients: torch.Tensor) -> RecordGradients:
    """One position: the norm is a product of two, and nothing cancels."""
    p, r = inputs.shape[-1], gradients.shape[-1]
    one, two = (squared(values) for values in (inputs, gradients))
    square = (one if bias is None else one.add_(1)).mul_(two).mul_(1 + 2 * (p + r + 16) * UNIT)

    def add(weights: torch.Tensor, sums: Sums) -> None:
        given, seen = weighted_(gradients, weights), finite_(inputs)
        add_outer(sums, weight, given, seen)
        if bias is not None:
            sums.at(bias, bias.size).add_(given.sum(1))

    slots = (weight,) if bias is None else (weight, bias)
    return RecordGradients(slots, 1, square, None, (inputs, gradients), add)


def singles(
    slots: Sequence[tuple[Slot, Slot | None]], inputs: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]
) -> RecordGradients:
    """Several layers of one position, [runs, records, width] each, all with a bias or none: fewer calls on a CPU."""
    widths = [values.shape[-1] for values in (*inputs, *gradients)]
    both = inputs[0].new_empty((*inputs[0].shape[:2], sum(widths)), dtype=torch.float64)
    torch.cat([*inputs, *gradients], -1, out=both)
    if inputs[0].dtype == torch.float64:
        without_tiny_(both)
    count, factors = len(slots), both.split_with_sizes(widths, -1)
    lengths = [some.sum(-1) for some in both.square().split_with_sizes(widths, -1)]
    pairs = list(zip(lengths[:count], lengths[count:], strict=True))
    biased = slots[0][1] is not None
    squares = [torch.addcmul(g, g, a) if biased else a * g for a, g in pairs]
    longest = max(p + r for p, r in zip(widths[:count], widths[count:], strict=True))
    square = functools.reduce(torch.Tensor.add_, squares).mul_(1 + 2 * (longest + 4 * count + 16) * UNIT)

    def add(weights: torch.Tensor, sums: Sums) -> None:
        given = both[..., sum(widths[:count]) :].mul_(weights[..., None])
        finite_(both)
        shifts = given.sum(1).split_with_sizes(widths[count:], -1) if biased else ()
        for (weight, _), seen, slope in zip(slots, factors[:count], factors[count:], strict=True):
            add_outer(sums, weight, slope, seen)
        for (_, bias), shift in zip(slots, shifts, strict=False):
            assert bias is not None
            sums.at(bias, bias.size).add_(shift)

    taken = tuple(slot for pair in slots for slot in pair if slot is not None)
    ordered = tuple(one for pair in zip(factors[:count], factors[count:], strict=True) for one in pair)
    return RecordGradients(taken, 1, square, None, ordered, add)


def rows(weight: Slot, shape: Sequence[int], tokens: torch.Tensor, slopes: torch.Tensor) -> RecordGradients:
    """The part of a table, from tokens [runs, records, positions] and the gradients of the rows they name."""
    gradients = wide(slopes)
    positions, width = gradients.shape[2:]
    spread = added(squared(gradients).sqrt()) * (1 + (width + positions + 8) * UNIT)
    same = (tokens[..., :, None] == tokens[..., None, :]).to(gradients.dtype)
    ghost = added((gradients * (same @ gradients)).flatten(2))
    terms = (positions * (width + 1) + 4) * UNIT
    square = ghost.clamp_min(0) + terms / (1 - terms) * spread.square()

    def add(weights: torch.Tensor, sums: Sums) -> None:
        table = sums.at(weight, *shape)
        made = weighted_(gradients, weights).flatten(1, 2)
        for into, places, values in zip(table.unbind(), tokens.flatten(1).unbind(), made.unbind(), strict=True):
            into.index_add_(0, places, values)

    return RecordGradients((weight,), positions, square, spread, (tokens, gradients), add)
