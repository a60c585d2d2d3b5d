"""What an engine is given: an untrained model, what the run costs, and how noisy gradients are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from torch import nn

from dphypo import dpsgd
from dphypo.mechanisms import DpSgd


class Engine(StrEnum):
    """What trains with DP-SGD."""

    DPHYPO = "dphypo"
    """Our own: a step is a Gaussian mechanism to the last bit, and many runs are made at once."""

    OPACUS = "opacus"
    """Opacus, whose floating-point numbers are taken as real ones. One run at a time."""


@dataclass(frozen=True, kw_only=True)
class Descent:
    """How the noisy gradients are used: none of this changes what a run costs."""

    batch_size: int
    max_grad_norm: float
    learning_rate: float
    optimizer: str
    options: Mapping[str, Any]
    schedule: Callable[[float], float] | None = None
    setting: dpsgd.Setting = field(default_factory=dpsgd.Setting)


@dataclass(frozen=True, eq=False, repr=False)
class Training:
    """One run: an untrained model on its device, and the declared number of records that batches are drawn from."""

    model: nn.Module
    run: DpSgd
    descent: Descent
    records: int
    seed: int
