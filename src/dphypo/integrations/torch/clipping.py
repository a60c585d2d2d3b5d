"""Per-sample gradients, clipped and summed: the part of a DP-SGD step whose sensitivity is the clipping norm.

Opacus computes the per-sample gradients in several ways; :class:`Instantiated` and :class:`Ghost` are the two shapes
they come in. Both keep one promise that Opacus alone does not: **a record whose gradient is not finite, or cannot be
computed, contributes zero.** Clipping multiplies a gradient by C/norm, and infinity times zero is NaN, so that one
record with an overflowing loss would otherwise show itself by turning the whole model into NaN, through any amount of
noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import torch
from opacus.grad_sample import AbstractGradSampleModule, prepare_module
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from torch import nn

from dphypo.errors import UnfitModelError
from dphypo.integrations.torch.domain import Batch
from dphypo.integrations.torch.loss import Loss


class GradSampleMode(StrEnum):
    """How Opacus computes per-sample gradients."""

    AUTO = "auto"
    """The fastest of those below that gives the right gradients for the model."""

    GHOST = "ghost"
    """Norms without the gradients themselves, and a second backward pass: the fastest for wide linear layers.

    Only where every layer gets one vector a record: norms of more (frames, tokens, pixels) are differences of large
    numbers in single precision, so that a record whose frames cancel would not be clipped.
    """

    HOOKS = "hooks"
    """A hand-written rule for each kind of layer."""

    FUNCTORCH = "functorch"
    """PyTorch's vmap: any layer, slower."""


class DivergedError(ArithmeticError):
    """The weights are no longer finite. They are already private, so stopping here reveals nothing more."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What is added to the clipped sum, and what the result is divided by."""

    multiplier: float
    max_grad_norm: float
    expected_batch_size: float
    generator: torch.Generator


class Engine(Protocol):
    """Makes one step of DP-SGD out of a Poisson batch, given in one or more chunks."""

    model: nn.Module
    module: AbstractGradSampleModule
    loss: Loss
    optimizer: DPOptimizer

    def attach(self) -> None:
        """Put Opacus's hooks on the model."""
        ...

    def differentiate(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Leave the per-sample gradients of a batch, or their clipped sum, on the parameters."""
        ...

    def step(self, chunks: Sequence[Batch]) -> None:
        """Clip and sum over all chunks, add noise once, update the parameters once."""
        ...

    def close(self) -> None:
        """Leave a plain model: no hooks, and no gradient of a record kept anywhere."""
        ...


def engine(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss: Loss, noise: Noise, mode: GradSampleMode
) -> Engine:
    """The engine for a mode; AUTO must have been resolved."""
    if mode is GradSampleMode.GHOST:
        return Ghost(model, optimizer, loss, noise)
    return Instantiated(model, optimizer, loss, noise, mode)


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


def _add_noise(optimizer: DPOptimizer) -> None:
    std = optimizer.noise_multiplier * optimizer.max_grad_norm
    for parameter in optimizer.params:
        total = parameter.summed_grad
        parameter.grad = (total + gaussian(std, total, optimizer.generator)).to(parameter.dtype).view_as(parameter)


class _Optimizer(DPOptimizer):  # type: ignore[misc]
    """Opacus's optimiser, except for the noise, and that records whose gradients are not finite count zero."""

    add_noise = _add_noise

    def clip_and_accumulate(self) -> None:
        for parameter, total in zip(self.params, clipped_sum(self.grad_samples, self.max_grad_norm), strict=True):
            parameter.summed_grad = total if parameter.summed_grad is None else parameter.summed_grad + total


class _GhostOptimizer(DPOptimizerFastGradientClipping):  # type: ignore[misc]
    """Opacus's optimiser for ghost clipping, except for the noise."""

    add_noise = _add_noise


def _arguments(noise: Noise) -> dict[str, Any]:
    return {
        "noise_multiplier": noise.multiplier,
        "max_grad_norm": noise.max_grad_norm,
        "expected_batch_size": noise.expected_batch_size,
        "generator": noise.generator,
    }


class Instantiated:
    """Per-sample gradients held in memory (modes "hooks" and "functorch")."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Loss, noise: Noise, mode: GradSampleMode
    ) -> None:
        self.model, self.loss, self.mode = model, loss, mode
        self.optimizer = _Optimizer(optimizer, **_arguments(noise))
        self.attach()

    def attach(self) -> None:
        """Put Opacus's hooks on the model."""
        # strict=False: buffers are allowed, because state.py refuses those that change in training.
        self.module = prepare_module(self.model, self.mode.value, loss_reduction="sum", strict=False)

    def step(self, chunks: Sequence[Batch]) -> None:
        _step(self, chunks)

    def close(self) -> None:
        _strip(self.module, self.optimizer)

    def differentiate(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        if len(inputs) == 0:
            for parameter in self.optimizer.params:
                parameter.grad_sample = parameter.new_zeros((0, *parameter.shape))
            return
        self.loss(self.module(inputs), targets).sum().backward()  # type: ignore[no-untyped-call]


class Ghost:
    """Per-sample norms first, then a second backward pass with the clipped weights (mode "ghost")."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Loss, noise: Noise) -> None:
        self.model, self.loss, self.max_grad_norm = model, loss, noise.max_grad_norm
        self.optimizer = _GhostOptimizer(optimizer, **_arguments(noise))
        self.attach()

    def attach(self) -> None:
        """Put Opacus's hooks on the model."""
        self.module = prepare_module(
            self.model, "ghost", loss_reduction="sum", strict=False, max_grad_norm=self.max_grad_norm
        )

    def step(self, chunks: Sequence[Batch]) -> None:
        _step(self, chunks)

    def close(self) -> None:
        _strip(self.module, self.optimizer)

    def differentiate(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        if len(inputs) == 0:
            for parameter in self.optimizer.params:
                parameter.grad = torch.zeros_like(parameter)
            return
        before = _random_state(inputs.device)
        losses = self.loss(self.module(inputs), targets)
        losses.sum().backward(retain_graph=True)  # type: ignore[no-untyped-call]
        self.optimizer.zero_grad(set_to_none=True)
        if not self.module.get_norm_sample().isfinite().all():
            self._differentiate_apart(inputs, targets, before)
            return
        self.module.disable_hooks()
        (self.module.get_clipping_coef() * losses).sum().backward()
        self.module.enable_hooks()

    def _differentiate_apart(self, inputs: torch.Tensor, targets: torch.Tensor, before: torch.Tensor) -> None:
        """The same sum from gradients kept apart: in one backward pass a record that is not finite spoils the others.

        The random state is put back, so that dropout is the same as in the pass that found the record: what the other
        records contribute must not depend on it.
        """
        if not all(bool(parameter.isfinite().all()) for parameter in self.optimizer.params):
            raise DivergedError("the weights are not finite: training diverged")
        _set_random_state(inputs.device, before)
        _detach(self.module)
        for parameter in self.optimizer.params:
            parameter.grad = None
        apart = prepare_module(self.model, "hooks", loss_reduction="sum", strict=False)
        self.loss(apart(inputs), targets).sum().backward()  # type: ignore[no-untyped-call]
        sums = clipped_sum([parameter.grad_sample for parameter in self.optimizer.params], self.max_grad_norm)
        _detach(apart)
        self.attach()
        for parameter, total in zip(self.optimizer.params, sums, strict=True):
            parameter.grad = total


def _step(engine: Engine, chunks: Sequence[Batch]) -> None:
    """One step on a batch, whose chunks are added up before noise is added."""
    for number, (inputs, targets) in enumerate(chunks):
        _differentiate_what_works(engine, inputs, targets)
        engine.optimizer.signal_skip_step(number < len(chunks) - 1)
        engine.optimizer.step()
        engine.optimizer.zero_grad(set_to_none=True)


def _differentiate_what_works(engine: Engine, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Differentiate a batch; a record whose forward or backward pass raises by itself counts zero.

    Otherwise one record on which, say, a loss of the user's raises would fail the run, and so show itself. If the batch
    raises, each of its records is differentiated, clipped and added by itself. Whether a record counts depends on that
    record and on the weights, which are private already.
    """
    before = _random_state(inputs.device)
    if _differentiates(engine, inputs, targets):
        return
    _set_random_state(inputs.device, before)
    for place in range(len(inputs)):
        if _differentiates(engine, inputs[place : place + 1], targets[place : place + 1]):
            engine.optimizer.signal_skip_step(True)
            engine.optimizer.step()  # adds to the sum, as for one more chunk of the batch
            engine.optimizer.zero_grad(set_to_none=True)
    engine.differentiate(inputs[:0], targets[:0])


def _differentiates(engine: Engine, inputs: torch.Tensor, targets: torch.Tensor) -> bool:
    """Differentiate; False, and nothing left on the parameters, if that raises."""
    try:
        engine.differentiate(inputs, targets)
    except FATAL:
        raise
    except Exception:
        _detach(engine.module)
        for parameter in engine.optimizer.params:
            parameter.grad = None
        engine.attach()
        return False
    return True


FATAL = (DivergedError, UnfitModelError, MemoryError, torch.OutOfMemoryError)
"""Errors that are not a record's: training diverged, the model is unfit, memory is short."""


def works(use: Callable[[list[int]], Any], records: list[int]) -> bool:
    """Whether something can be computed for these records."""
    try:
        with torch.no_grad():
            use(records)
    except FATAL:
        raise
    except Exception:
        return False
    return True


def _detach(module: AbstractGradSampleModule) -> None:
    """Take Opacus's hooks off the model, and what they noted of a batch, also of one that was not finished."""
    module.cleanup()
    for layer in module.modules():
        for name in ("activations", "max_batch_len"):
            layer.__dict__.pop(name, None)


def _strip(module: AbstractGradSampleModule, optimizer: DPOptimizer) -> None:
    _detach(module)
    for parameter in optimizer.params:
        parameter.grad = None
        parameter.__dict__.pop("summed_grad", None)


def _random_state(device: torch.device) -> torch.Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_random_state(device: torch.device, state: torch.Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
