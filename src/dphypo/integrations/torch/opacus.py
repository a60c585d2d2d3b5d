"""What a loop of one's own has of Opacus: Poisson batches, clipped sums and Gaussian noise (``own_loop.py``).

Each step includes every record independently with probability ``rate`` and perturbs the clipped sum with Gaussian
noise of standard deviation ``noise_multiplier · max_grad_norm``: one Poisson-sampled Gaussian mechanism, if
floating-point numbers are taken as real ones, and if no record affects the gradients of others. Unlike Opacus alone, a
record whose gradient is not finite contributes zero: infinity times zero is NaN, and would show the record through any
noise. And noise is drawn in double precision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from opacus.grad_sample import AbstractGradSampleModule
from opacus.optimizers import DPOptimizer

from dphypo import noise
from dphypo.integrations.torch import seeds
from dphypo.mechanisms.sampled_gaussian import OwnRun


def poisson_batches(size: int, run: OwnRun) -> Iterator[npt.NDArray[np.int64]]:
    """The records of each step, each of the subsample independently with probability ``rate``; ``size`` is private."""
    kept = noise.poisson_sample(run.subsample, seeds.words(run.seed, "subsample"), size)
    words = seeds.words(run.seed, "sampling")
    for _ in range(run.steps):
        yield kept[noise.poisson_sample(run.rate, words, len(kept))]


def clipped_sum(grad_samples: Sequence[torch.Tensor], max_grad_norm: float) -> list[torch.Tensor]:
    """Sum over records of g·min(1, C/‖g‖), over all parameters together; records that are not finite count zero.

    >>> clipped_sum([torch.tensor([[3.0, 4.0], [0.3, 0.4], [torch.inf, 0.0]])], 1.0)
    [tensor([0.9000, 1.2000])]
    """
    grad_samples = [g.to(torch.promote_types(g.dtype, torch.float32)) for g in grad_samples]
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in grad_samples]).norm(dim=0)
    finite = norms.isfinite()
    factors = (max_grad_norm / (norms + 1e-6)).clamp(max=1.0)

    def beside(values: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return values.view(-1, *[1] * (g.dim() - 1))

    if not finite.all():
        factors = torch.where(finite, factors, 0.0)
        grad_samples = [torch.where(beside(finite, g), g, 0.0) for g in grad_samples]
    # No matrix product: its precision is a setting of the process.
    return [(beside(factors, g) * g).sum(0) for g in grad_samples]


def gaussian(std: float, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Normal draws in double precision, whose uniforms have 53 bits: larger ones than 8.57σ have probability 1e-17.

    Those of single precision have 24 bits on the CPU, none beyond 5.77σ: a larger value would show a record.
    """
    return torch.normal(0.0, std, like.shape, dtype=torch.float64, device=like.device, generator=generator)


class Optimizer(DPOptimizer):  # type: ignore[misc]
    """Opacus's optimiser, except for the noise, and that records whose gradients are not finite count zero."""

    def clip_and_accumulate(self) -> None:
        for parameter, total in zip(self.params, clipped_sum(self.grad_samples, self.max_grad_norm), strict=True):
            parameter.summed_grad = total if parameter.summed_grad is None else parameter.summed_grad + total

    def add_noise(self) -> None:
        std = self.noise_multiplier * self.max_grad_norm
        for parameter in self.params:
            total = parameter.summed_grad
            parameter.grad = (total + gaussian(std, total, self.generator)).to(parameter.dtype).view_as(parameter)


def leave_plain(module: AbstractGradSampleModule, optimizer: Optimizer) -> None:
    """Leave a plain model: no hooks, nothing that they noted of a batch, and no gradient."""
    module.cleanup()
    for layer in module.modules():
        for name in ("activations", "max_batch_len"):
            layer.__dict__.pop(name, None)
    for parameter in optimizer.params:
        parameter.grad = None
        parameter.__dict__.pop("summed_grad", None)
