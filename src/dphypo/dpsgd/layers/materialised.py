"""Gradients that are held record by record: whatever they were computed in, these numbers are what a record adds."""

from __future__ import annotations

import torch

from dphypo.dpsgd.book import Part, Sums
from dphypo.dpsgd.layers import kernels
from dphypo.dpsgd.layers.products import UNIT, add_product, finite_, joined, squared, wide
from dphypo.dpsgd.stack import Slot

_CHUNK = 2**24  # numbers converted to double precision at a time


def part(slot: Slot, gradients: torch.Tensor) -> Part:
    """The part whose gradients are ``[runs, records, ...]``, as many numbers as the slot has.

    n̄² is the computed sum of d squares times 1 + (d + 8)u. The gradients are the contributions themselves, so that
    A = n̄: nothing cancels in a sum over records.
    """
    flat = gradients.flatten(2)
    runs, records, size = flat.shape
    step = max(1, _CHUNK // max(1, runs * size))
    blocks = [slice(start, start + step) for start in range(0, records, step)]
    by_kernels = flat.is_cuda and kernels.AVAILABLE
    squares = [kernels.squares(flat)] if by_kernels else [squared(wide(flat[:, block])) for block in blocks]

    def add(weights: torch.Tensor, sums: Sums) -> None:
        if by_kernels:
            kernels.add_weighted(slot.of(sums.rows), flat, weights)
            return
        for block in blocks:
            values = finite_(wide(flat[:, block]))
            add_product(sums, slot, weights[:, block, None], values)

    return Part((slot,), 1, joined(squares, 1) * (1 + (size + 8) * UNIT), None, (flat,), add)
