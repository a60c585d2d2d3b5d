"""The three tasks past the paper: the privacy of one training and the landscape, at any noise multiplier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import dp_accounting
import numpy as np

from dphypo.mechanisms import SampledGaussian
from paper.data.points import Floats
from paper.simulate import worlds
from paper.simulate.event import dp_sgd
from paper.simulate.worlds import World


@dataclass(frozen=True)
class Task:
    """``event`` and ``world`` take a noise multiplier between ``least`` and ``most``, which were trained."""

    event: Callable[[float], dp_accounting.DpEvent]
    world: Callable[..., World]
    least: float
    most: float
    loss: bool = False  # scores are losses, sign turned

    @property
    def kind(self) -> str:
        """What its scores are."""
        return "loss" if self.loss else "accuracy"

    @property
    def levels(self) -> Floats:
        """Noise multipliers between which costs are interpolated."""
        return np.geomspace(self.least, self.most, 9)


def federated_event(noise_multiplier: float = 1.0, rounds: int = 100) -> dp_accounting.DpEvent:
    """One run of the federated task: clients are the records, each in a round with probability 0.1.

    >>> federated_event(2.0, 30).count
    30
    """
    return SampledGaussian(rate=0.1, steps=rounds, noise_multiplier=noise_multiplier).event


TASKS = {
    "MNIST": Task(partial(dp_sgd, 60_000), worlds.mnist, 0.48, 3.3),
    "CIFAR-10": Task(partial(dp_sgd, 50_000), worlds.cifar_coarse, 0.48, 2.7),
    "federated": Task(federated_event, worlds.federated_at, 0.81, 5.8, loss=True),
}
