"""Sees what a run of DP-SGD really does, from outside: which records each step met, and the gradient it applied.

The records of a piece tell their numbers (their first feature), what the optimiser is given the gradients. With a
loss whose gradient is zero, these are the noise alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy import stats
from torch import nn

from dphypo.torch.engine.batch_rows import Piece
from dphypo.torch.engine.optimisers import SGD
from dphypo.torch.engine.run import Group

FALSE_ALARM = 1e-6


@dataclass
class Witness:
    """One list entry a step: the numbers of the records in the batch, and the gradient before the learning rate."""

    gradients: list[np.ndarray] = field(default_factory=list)
    batches: list[list[int]] = field(default_factory=list)
    met: list[int] = field(default_factory=list)

    def read(self, inputs: torch.Tensor) -> None:
        self.met.extend(int(number) for number in inputs[:, 0])

    def step(self, gradient: torch.Tensor) -> None:
        self.gradients.append(gradient.detach().flatten().double().numpy().copy())  # it is written to again
        self.batches.append(sorted(set(self.met)))
        self.met = []

    @property
    def steps(self) -> int:
        return len(self.gradients)


class Net(nn.Module):
    """A linear model."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 20)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.linear(inputs)  # type: ignore[no-any-return]


def numbered(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Records whose first feature is their number."""
    inputs = np.zeros((count, 3), dtype=np.float32)
    inputs[:, 0] = np.arange(count)
    return inputs, np.zeros(count, dtype=np.int64)


def no_gradient(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return 0.0 * outputs.sum(1)


@contextmanager
def watching() -> Iterator[Witness]:
    witness, plain_parts, plain_update = Witness(), Group._parts, SGD.step

    def parts(self: Group, piece: Piece) -> Any:
        witness.read(piece.inputs[piece.valid.reshape(-1)])
        return plain_parts(self, piece)

    def update(self: SGD, rows: torch.Tensor, gradient: torch.Tensor, rates: torch.Tensor) -> None:
        witness.step(gradient)
        plain_update(self, rows, gradient, rates)

    with mock.patch.object(Group, "_parts", parts), mock.patch.object(SGD, "step", update):
        yield witness


def chi_square(statistic: float, freedom: float) -> float:
    """Two-sided p-value of a sum of squared standard deviations."""
    law = stats.chi2(freedom)
    return float(2 * min(law.cdf(statistic), law.sf(statistic)))


def p_values(witness: Witness, *, count: int, rate: float, sigma: float, divisor: float) -> dict[str, float]:
    """How likely each aspect of a run is, two-sided, if it was Poisson sampling at ``rate`` with noise ``sigma``."""
    noise = np.concatenate(witness.gradients) * divisor / sigma
    included = np.zeros((witness.steps, count))
    for number, batch in enumerate(witness.batches):
        included[number, batch] = 1
    spread = rate * (1 - rate)
    total = int(included.sum())
    by_step, by_record = included.sum(1) - count * rate, included.sum(0) - witness.steps * rate
    repeats = np.sum((included[1:] - rate) * (included[:-1] - rate)) / (spread * np.sqrt(included[1:].size))
    return {
        "noise level": chi_square(float(np.sum(noise**2)), noise.size),
        "noise mean": float(2 * stats.norm.sf(abs(noise.mean()) * np.sqrt(noise.size))),
        "rate": float(stats.binomtest(total, witness.steps * count, rate).pvalue),
        "spread of batch sizes": chi_square(float(np.sum(by_step**2) / (count * spread)), witness.steps),
        "spread of a record's steps": chi_square(float(np.sum(by_record**2) / (witness.steps * spread)), count),
        "steps one after the other": float(2 * stats.norm.sf(abs(repeats))),
    }


def looks_right(found: dict[str, float]) -> bool:
    """At a false-alarm rate of 1e-6 over all aspects. The χ² laws are approximate for counts: a margin of 10."""
    return min(found.values()) * len(found) * 10 > FALSE_ALARM
