"""What a full run is, apart from its learning rate: length, optimiser, averaging, clipping norm.

At a fixed ε larger batches always have less noise beside the signal, so linear models take all records in every step. A
run of T steps with the noise multiplier σ then costs what one Gaussian mechanism with ν = σ/√T does, whatever T, and
all ways to tune are planned in ν. Which structure is used is settled by a pilot on Fashion-MNIST's training records.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from paper.anchors.trainer import Floats
from paper.train.descent import Memories


@dataclass(frozen=True)
class Structure:
    """Of the full runs of a task.

    Args:
        steps: how many.
        first, second: memories of momentum, or of Adam's two averages.
        average: over about which share of the run weights are averaged, at its end; the last weights if 0.
        decay: whether the learning rate falls linearly to zero.
        clip: the clipping norm; nearly all gradients are longer than one.
        batch: expected size of a batch; all records if None.
        default: the learning rate of SGD that nobody tunes: of Opacus's MNIST example.
    """

    steps: int
    first: float = 0.9
    second: float | None = None
    average: float = 0.0
    decay: bool = False
    clip: float = 1.0
    batch: int | None = None
    default: float = 0.1

    @property
    def memories(self) -> Memories:
        return Memories(self.first, self.second)

    def kept(self, steps: int) -> float:
        """How much of the average of the weights a step keeps, in a run of so many steps."""
        return max(0.0, 1 - 1 / (self.average * steps)) if self.average else 0.0

    @property
    def rates(self) -> Floats:
        """The space of learning rates: three decades."""
        return np.logspace(-2, 1, 61) if self.second is None else np.logspace(-4.5, -1.5, 61)

    @property
    def untuned(self) -> float:
        """The default of SGD, or PyTorch's for Adam."""
        return self.default if self.second is None else 0.001

    @property
    def pilot_rates(self) -> Floats:
        """Around the best of runs of 400 steps on Fashion-MNIST, scaled to the length."""
        middle = 0.8 / self.clip if self.second is None else 0.005
        return np.asarray(middle * (400 / self.steps) * 2 ** np.arange(-3, 3.01, 0.5))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


EIGHTH = 0.125
LINEAR = Structure(800, average=EIGHTH)
NETWORK = Structure(400, average=EIGHTH, batch=8192)
WIDE = Structure(875, first=0.0, average=EIGHTH, batch=4096, default=2.0)  # as De and others publish it
STRUCTURES = {"linear": LINEAR, "cnn": NETWORK, "wide": WIDE}
ADAM_1600 = Structure(1600, second=0.999, average=EIGHTH)  # with which PyTorch's default learning rate is tried
