"""A small data set of two classes, and DP-SGD on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from dphypo.torch import DPSGD

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 2, 60)
INPUTS = (RNG.normal(size=(60, 5)) + 2 * LABELS[:, None]).astype(np.float32)
EXAMPLE = (torch.zeros(5), 0)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5), nn.ReLU(), nn.Linear(4, 2))


def dpsgd(**changes: Any) -> DPSGD:
    arguments: dict[str, Any] = {
        "model": net,
        "data": (INPUTS, LABELS),
        "score": lambda model: 0.5,
        "noise_multiplier": 1.0,
        "epochs": 2,
        "batch_size": 30,
        "device": "cpu",
    }
    return DPSGD(**{**arguments, **changes})


def weights(mechanism: DPSGD, seed: int = 1) -> torch.Tensor:
    return torch.cat([value.detach().flatten() for value in mechanism({}, seed=seed).model.parameters()])
