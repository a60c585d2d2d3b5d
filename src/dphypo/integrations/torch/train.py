"""One run of DP-SGD: Poisson batches, clipped per-sample gradients, Gaussian noise, a step; repeated.

Each step includes every record independently with probability ``rate`` and perturbs the clipped sum with Gaussian
noise of standard deviation ``noise_multiplier · max_grad_norm``: one Poisson-sampled Gaussian mechanism. Whatever else
happens (the optimiser's state, the learning rate, dropout) sees the data through these sums alone. A subsample, if
there is one, is drawn once before the first step, every record with the same probability.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from dphypo import noise
from dphypo.integrations.torch import hyperparameters, seeds
from dphypo.integrations.torch.clipping import DivergedError, GradSampleMode, Noise, engine
from dphypo.integrations.torch.data import Records
from dphypo.integrations.torch.domain import Batch
from dphypo.integrations.torch.loss import Loss
from dphypo.integrations.torch.state import Snapshot, no_writes_in_forward
from dphypo.mechanisms import DpSgd


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
    schedule: Callable[[float], float] | None = None


def fit(model: nn.Module, records: Records, loss: Loss, run: DpSgd, descent: Descent, *, seed: int) -> None:
    """Train a model in place. PyTorch's global generators must be seeded already."""
    device = next(model.parameters()).device
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = hyperparameters.build(descent.optimizer, trainable, descent.learning_rate, descent.options)
    added = Noise(
        multiplier=run.noise_multiplier,
        max_grad_norm=descent.max_grad_norm,
        expected_batch_size=descent.batch_size,
        generator=seeds.noise(seed, device),
    )
    model.train()
    kept = Snapshot.of(model, loss, trained=trainable)
    with warnings.catch_warnings(), no_writes_in_forward(model):
        # Opacus hooks every layer, the first too, whose inputs need no gradient.
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        steps = engine(model, optimizer, loss, added, descent.mode)
        chosen = subsampled(len(records), run, seed)
        for number, batch in enumerate(poisson_batches(len(chosen), run, seeds.words(seed, "sampling"))):
            if descent.schedule is not None:
                for group in optimizer.param_groups:
                    group["lr"] = descent.learning_rate * descent.schedule(number / run.steps)
            steps.step(list(_chunks(records, chosen[batch], device, descent.physical_batch_size)))
    steps.close()
    kept.refuse_changes(model, loss)
    if not all(bool(parameter.isfinite().all()) for parameter in trainable):
        raise DivergedError("the weights are not finite: training diverged")
    model.eval()


def subsampled(size: int, run: DpSgd, seed: int) -> npt.NDArray[np.int64]:
    """The records that the run may use: each one independently with probability ``run.subsample``."""
    return noise.chosen(run.subsample, seeds.words(seed, "subsample"), size)


def poisson_batches(size: int, run: DpSgd, words: noise.Source) -> Iterator[npt.NDArray[np.int64]]:
    """The records of each step: each one independently with probability ``rate``; possibly none.

    ``size`` is how many records there really are, which is private; the rate and the number of steps do not depend
    on it.
    """
    for _ in range(run.steps):
        yield noise.chosen(run.rate, words, size)


def _chunks(
    records: Records, indices: npt.NDArray[np.int64], device: torch.device, at_most: int | None
) -> Iterator[Batch]:
    """A batch in pieces that fit into memory; their clipped sums are added before the noise."""
    if at_most is None or len(indices) <= at_most:
        yield records.batch(indices, device)
        return
    for start in range(0, len(indices), at_most):
        yield records.batch(indices[start : start + at_most], device)
