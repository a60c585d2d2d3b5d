"""Steps of DP-SGD with Opacus: per-sample gradients, clipped and summed, then noise.

Opacus computes the per-sample gradients, by a hand-written rule for each kind of layer ("hooks") or by PyTorch's vmap
("functorch"). Its ghost norms, which need no gradients, are not used: of several frames or tokens they are differences
of large numbers in single precision, so that a record whose frames cancel would not be clipped.

Two promises are kept that Opacus alone does not keep. A record whose gradient is not finite, or cannot be computed,
contributes zero: infinity times zero is NaN, and would show the record through any noise. And noise is drawn in double
precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from opacus.grad_sample import AbstractGradSampleModule, prepare_module
from opacus.optimizers import DPOptimizer
from torch import nn

from dphypo.integrations.torch.domain import FATAL, Batch
from dphypo.integrations.torch.loss import Loss


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What is added to the clipped sum, and what the result is divided by."""

    multiplier: float
    max_grad_norm: float
    expected_batch_size: float
    generator: torch.Generator


def clipped_sum(grad_samples: Sequence[torch.Tensor], max_grad_norm: float) -> list[torch.Tensor]:
    """Sum over records of g·min(1, C/‖g‖), over all parameters together; records that are not finite count zero.

    >>> clipped_sum([torch.tensor([[3.0, 4.0], [0.3, 0.4], [torch.inf, 0.0]])], 1.0)
    [tensor([0.9000, 1.2000])]
    """
    grad_samples = [g.to(torch.promote_types(g.dtype, torch.float32)) for g in grad_samples]
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in grad_samples]).norm(dim=0)
    finite = norms.isfinite()
    factors = (max_grad_norm / (norms + 1e-6)).clamp(max=1.0)
    if not finite.all():
        factors = torch.where(finite, factors, 0.0)
        grad_samples = [torch.where(_beside(finite, g), g, 0.0) for g in grad_samples]
    # No matrix product: its precision is a setting of the process.
    return [(_beside(factors, g) * g).sum(0) for g in grad_samples]


def _beside(values: torch.Tensor, grad_sample: torch.Tensor) -> torch.Tensor:
    """One value a record in a shape that multiplies per-sample gradients."""
    return values.view(-1, *[1] * (grad_sample.dim() - 1))


def gaussian(std: float, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Normal draws in double precision.

    PyTorch makes single-precision normals from uniforms of 24 bits on the CPU, none beyond 5.77 standard deviations: a
    larger value would show that a record is there. In double precision the uniforms have 53 bits and the largest draw
    is 8.57 standard deviations; larger ones have probability 1e-17.
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


class Steps:
    """Steps of one run. A batch comes in one or more chunks, whose clipped sums are added before the noise.

    Args:
        model: what is trained, in place.
        optimizer: what becomes of a noisy gradient.
        loss: one value a record.
        noise: of one step.
        mode: "hooks" or "functorch".
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Loss, noise: Noise, mode: str) -> None:
        self._model, self._loss, self._mode = model, loss, mode
        self._optimizer = Optimizer(
            optimizer,
            noise_multiplier=noise.multiplier,
            max_grad_norm=noise.max_grad_norm,
            expected_batch_size=noise.expected_batch_size,
            generator=noise.generator,
        )
        self._module = attached(model, mode)

    def step(self, chunks: Sequence[Batch]) -> None:
        """Clip and sum over all chunks, add noise once, update the parameters once."""
        for number, (inputs, targets) in enumerate(chunks):
            self._differentiate_what_works(inputs, targets)
            self._accumulate(skip_step=number < len(chunks) - 1)

    def close(self) -> None:
        """Leave a plain model: no hooks, and no gradient of a record kept anywhere."""
        detach(self._module)
        for parameter in self._optimizer.params:
            parameter.grad = None
            parameter.__dict__.pop("summed_grad", None)

    def _differentiate_what_works(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Differentiate a batch; a record whose forward or backward pass raises by itself counts zero.

        Otherwise one record on which, say, a loss of the user's raises would fail the run, and so show itself. If the
        batch raises, each of its records is differentiated, clipped and added by itself. Whether a record counts
        depends on that record and on the weights, which are private already.
        """
        if self._differentiates(inputs, targets):
            return
        for place in range(len(inputs)):
            if self._differentiates(inputs[place : place + 1], targets[place : place + 1]):
                self._accumulate(skip_step=True)
        self._differentiate(inputs[:0], targets[:0])

    def _accumulate(self, *, skip_step: bool) -> None:
        self._optimizer.signal_skip_step(skip_step)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def _differentiates(self, inputs: torch.Tensor, targets: torch.Tensor) -> bool:
        """Differentiate; False, and nothing left on the parameters, if that raises."""
        try:
            self._differentiate(inputs, targets)
        except FATAL:
            raise
        except Exception:
            detach(self._module)
            for parameter in self._optimizer.params:
                parameter.grad = None
            self._module = attached(self._model, self._mode)
            return False
        return True

    def _differentiate(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Leave the per-sample gradients of a batch on the parameters."""
        if len(inputs) == 0:
            for parameter in self._optimizer.params:
                parameter.grad_sample = parameter.new_zeros((0, *parameter.shape))
            return
        self._loss(self._module(inputs), targets).sum().backward()  # type: ignore[no-untyped-call]


def attached(model: nn.Module, mode: str) -> AbstractGradSampleModule:
    """A model with Opacus's hooks on it."""
    # strict=False: buffers are allowed, because state.py refuses those that change in training.
    return prepare_module(model, mode, loss_reduction="sum", strict=False)


def detach(module: AbstractGradSampleModule) -> None:
    """Take Opacus's hooks off the model, and what they noted of a batch, also of one that was not finished."""
    module.cleanup()
    for layer in module.modules():
        for name in ("activations", "max_batch_len"):
            layer.__dict__.pop(name, None)
