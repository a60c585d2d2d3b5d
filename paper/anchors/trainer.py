"""What an experiment asks of a trainer, so that any engine can take its place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from paper.train.descent import Memories

Floats = npt.NDArray[np.float64]


class Records(StrEnum):
    """On which private records runs train."""

    TRAINING = "those that do not score"
    ALL = "all"


@dataclass(frozen=True, eq=False)
class Runs:
    """K runs of DP-SGD of one length, each with batches and noise of its own.

    Args:
        learning_rate, clip, noise: of each run; the noise is a multiplier of its clipping norm.
        steps: how many steps.
        rate: the probability with which a step takes a record.
        batch: the expected size of a batch, by which sums are divided.
        records: on which records.
        seed: all randomness of the group.
        memories: of the optimiser of all runs.
        average: how much of the average of the weights a step keeps; the average is the model.
        decay: whether the learning rate falls linearly to zero.
        subset: the probability with which a run may use a record at all, drawn once.
    """

    learning_rate: Floats
    clip: Floats
    noise: Floats
    steps: int
    rate: float
    batch: float
    records: Records
    seed: int
    memories: Memories = Memories(0.9)  # noqa: RUF009 - a frozen value
    average: float = 0.0
    decay: bool = False
    subset: float = 1.0

    def __len__(self) -> int:
        return len(self.learning_rate)

    def part(self, places: slice, seed: int) -> Runs:
        """Some of the runs, with a seed of their own."""
        rate, clip, noise = (one[places] for one in (self.learning_rate, self.clip, self.noise))
        return replace(self, learning_rate=rate, clip=clip, noise=noise, seed=seed)

    def factor(self, step: int) -> float:
        """On the learning rate of a step."""
        return 1 - step / self.steps if self.decay else 1.0

    @property
    def examples(self) -> float:
        """Examples that one run processes, on average."""
        return self.steps * self.batch


class Trainer(Protocol):
    """Trains any number of runs; a model is whatever ``correct`` understands."""

    def train(self, runs: Runs) -> Any: ...

    def correct(self, models: Any, *, test: bool) -> Floats: ...
