"""One run of DP-SGD: Poisson batches, clipped per-sample gradients, Gaussian noise, a step; so many times.

Each step includes every record independently with probability ``rate`` and perturbs the clipped sum with Gaussian
noise of standard deviation ``noise_multiplier · max_grad_norm``: one Poisson-sampled Gaussian mechanism. Whatever else
happens (the optimiser's state, the learning rate, dropout) sees the data through these sums alone. A subsample, if
there is one, is drawn once before the first step, every record with the same probability.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dp_accounting
import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from dphypo import _validate
from dphypo.integrations.opacus import optimizer as _optimizer
from dphypo.integrations.opacus import seeds
from dphypo.integrations.opacus.clipping import DivergedError, GradSampleMode, Noise, engine
from dphypo.integrations.opacus.data import Batch, Records
from dphypo.integrations.opacus.loss import Loss
from dphypo.integrations.opacus.state import Snapshot, no_writes_in_forward


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What a run costs, from public numbers alone: how many steps, at which rate, with which noise.

    >>> Schedule.of(records=60_000, batch_size=256, epochs=10, noise_multiplier=0.71).steps
    2344
    """

    rate: float
    steps: int
    noise_multiplier: float
    subsample: float = 1.0

    @classmethod
    def of(
        cls, *, records: int, batch_size: int, epochs: float, noise_multiplier: float, subsample: float = 1.0
    ) -> Schedule:
        batch_size = _validate.integer(at_least=1, batch_size=batch_size)
        used = records * _validate.within(0.0, 1.0, closed="right", subsample=subsample)
        if batch_size > used:
            raise _validate.fail("batch_size", batch_size, f"it must be at most the declared {used:g} records")
        steps = math.ceil(_validate.positive(epochs=epochs) * used / batch_size)
        sigma = _validate.positive(noise_multiplier=noise_multiplier)
        return cls(rate=batch_size / used, steps=steps, noise_multiplier=sigma, subsample=subsample)

    @property
    def on_the_subsample(self) -> dp_accounting.DpEvent:
        """The event of the run for a record that is in the subsample."""
        step = dp_accounting.PoissonSampledDpEvent(self.rate, dp_accounting.GaussianDpEvent(self.noise_multiplier))
        return dp_accounting.SelfComposedDpEvent(step, self.steps)

    @property
    def event(self) -> dp_accounting.DpEvent:
        """The event of the run, under adding or removing one record."""
        run = self.on_the_subsample
        return run if self.subsample == 1 else dp_accounting.PoissonSampledDpEvent(self.subsample, run)


@dataclass(frozen=True, kw_only=True)
class Descent:
    """How the noisy gradients are used: none of this changes what a run costs."""

    batch_size: int
    max_grad_norm: float
    learning_rate: float
    optimizer: str
    options: Mapping[str, Any]
    mode: GradSampleMode
    physical_batch_size: int | None


def fit(model: nn.Module, records: Records, loss: Loss, schedule: Schedule, descent: Descent, *, seed: int) -> None:
    """Train a model in place. PyTorch's global generators must be seeded already."""
    device = next(model.parameters()).device
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = _optimizer.build(descent.optimizer, trainable, descent.learning_rate, descent.options)
    noise = Noise(
        multiplier=schedule.noise_multiplier,
        max_grad_norm=descent.max_grad_norm,
        expected_batch_size=descent.batch_size,
        generator=seeds.noise(seed, device),
    )
    model.train()
    kept = Snapshot.of(model, loss, trained=False)
    with warnings.catch_warnings(), no_writes_in_forward(model):
        # Opacus hooks every layer, the first too, whose inputs need no gradient.
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        steps = engine(model, optimizer, loss, noise, descent.mode)
        chosen = subsampled(len(records), schedule, seed)
        for batch in poisson_batches(len(chosen), schedule, seeds.sampling(seed)):
            steps.step(list(_chunks(records, chosen[batch], device, descent.physical_batch_size)))
    steps.close()
    kept.refuse_changes(model, loss)
    if not all(bool(parameter.isfinite().all()) for parameter in trainable):
        raise DivergedError("the weights are not finite: training diverged")
    model.eval()


def subsampled(size: int, schedule: Schedule, seed: int) -> npt.NDArray[np.int64]:
    """The records that the run may use: each one independently with probability ``schedule.subsample``."""
    if schedule.subsample == 1:
        return np.arange(size)
    return np.flatnonzero(seeds.subsample(seed).random(size) < schedule.subsample)


def poisson_batches(size: int, schedule: Schedule, generator: np.random.Generator) -> Iterator[npt.NDArray[np.int64]]:
    """The records of each step: each one independently with probability ``rate``; possibly none.

    ``size`` is how many records there really are, which is private; the rate and the number of steps do not depend
    on it.
    """
    for _ in range(schedule.steps):
        yield np.flatnonzero(generator.random(size) < schedule.rate)


def _chunks(
    records: Records, indices: npt.NDArray[np.int64], device: torch.device, at_most: int | None
) -> Iterator[Batch]:
    """A batch in pieces that fit into memory; their clipped sums are added before the noise."""
    if at_most is None or len(indices) <= at_most:
        yield records.batch(indices, device)
        return
    for start in range(0, len(indices), at_most):
        yield records.batch(indices[start : start + at_most], device)
