"""Losses as one value a record: per-sample gradients are the gradients of these."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, eq=False)
class PerRecord:
    """A loss that gives one value a record; a mean over what more values it gives."""

    unreduced: Callable[..., Any]

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        result = self.unreduced(outputs, targets)
        if not isinstance(result, torch.Tensor) or result.dim() == 0 or len(result) != len(targets):
            raise TypeError(
                "the loss does not return one value a record: give one of PyTorch's losses, or a function "
                "loss(outputs, targets) that returns a tensor as long as the batch, not an average over it"
            )
        return result if result.dim() == 1 else result.flatten(1).mean(1)


def per_record(loss: Callable[..., Any]) -> Loss:
    """A loss that gives one value a record, whatever reduction the given one has by default.

    PyTorch's own losses, functions and modules, are called with ``reduction="none"``. Any other function must return
    one value a record: an average over the batch depends on how many records are in it, which is private.

    >>> loss = per_record(nn.MSELoss())
    >>> loss(torch.tensor([[1.0, 3.0], [0.0, 0.0]]), torch.zeros(2, 2))
    tensor([5., 0.])
    """
    if isinstance(loss, nn.Module):
        if hasattr(loss, "reduction"):
            loss = copy.copy(loss)
            vars(loss)["reduction"] = "none"
        return PerRecord(loss)
    try:
        takes_reduction = "reduction" in inspect.signature(loss).parameters
    except (TypeError, ValueError):
        takes_reduction = False
    return PerRecord(functools.partial(loss, reduction="none") if takes_reduction else loss)
