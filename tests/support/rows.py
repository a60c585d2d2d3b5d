"""Records as tensors, whatever they are read from."""

from __future__ import annotations

import numpy.typing as npt
import torch

from dphypo.torch.data import TorchRecords


def rows_of(records: TorchRecords, numbers: npt.ArrayLike) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets of those records of these numbers that count."""
    wanted = torch.as_tensor(numbers)
    inputs, targets, counts = records.rows(wanted, torch.ones_like(wanted, dtype=torch.bool))
    return inputs[counts], targets[counts]
