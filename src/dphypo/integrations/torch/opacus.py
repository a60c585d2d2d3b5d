"""``engine="opacus"``: Poisson batches, per-sample gradients of Opacus, Gaussian noise, a step; repeated.

Each step includes every record independently with probability ``rate`` and perturbs the clipped sum with Gaussian
noise of standard deviation ``noise_multiplier · max_grad_norm``: one Poisson-sampled Gaussian mechanism, if
floating-point numbers are taken as real ones. Whatever else happens (the optimiser's state, the learning rate, dropout)
sees the data through these sums alone.

Opacus computes the per-sample gradients, by a rule for each kind of layer ("hooks") or by PyTorch's vmap ("functorch").
Its ghost norms are not used: of several frames or tokens they are differences of large numbers in single precision, so
that a record whose frames cancel would not be clipped. Unlike Opacus alone, a record whose gradient is not finite, or
cannot be computed, contributes zero: infinity times zero is NaN, and would show the record through any noise. And noise
is drawn in double precision.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from opacus.grad_sample import AbstractGradSampleModule, prepare_module
from opacus.optimizers import DPOptimizer
from opacus.validators import ModuleValidator
from torch import nn

from dphypo import dpsgd, noise
from dphypo.dpsgd.batches import Batch, Loss
from dphypo.dpsgd.stack import trained
from dphypo.dpsgd.trainable import looks_across
from dphypo.errors import UnsupportedModelError
from dphypo.integrations.torch import check, hyperparameters, seeds
from dphypo.integrations.torch.data import TorchRecords
from dphypo.integrations.torch.state import WrittenStateError, no_writes_in_forward, unchanged
from dphypo.mechanisms.one_record import is_signal
from dphypo.mechanisms.sampled_gaussian import OwnRun


def fit(model: nn.Module, loss: Loss, example: Batch) -> str:
    """The mode in which Opacus computes the model's gradients; :class:`UnsupportedModelError` if there is none.

    The choice depends on the model alone, never on a clock, so that a resumed study makes the same run again.
    """
    errors = ModuleValidator.validate(copy.deepcopy(model).train(), strict=False)
    if errors:
        raise UnsupportedModelError(
            f"Opacus refuses the model: {errors[0]}. opacus.validators.ModuleValidator.fix(model) replaces what it can"
        )
    batch = check.synthetic_batches(example)[0]
    reference = check.gradients(copy.deepcopy(model).train(), loss, batch)
    for mode in ("hooks", "functorch"):
        if _agrees(copy.deepcopy(model).train(), loss, batch, reference, mode):
            return mode
    raise UnsupportedModelError(
        "Opacus does not compute this model's per-sample gradients correctly in any mode: use layers that it knows, "
        "each once a pass, or register a rule with opacus.grad_sample.register_grad_sampler"
    )


def _agrees(model: nn.Module, loss: Loss, batch: Batch, reference: torch.Tensor, mode: str) -> bool:
    try:
        module = attached(model, mode)
        seeds.seed_global(0)
        loss(module(batch[0]), batch[1]).sum().backward()  # type: ignore[no-untyped-call]
        found = [p.grad_sample.flatten(1) for p in trained(model)]  # type: ignore[attr-defined]
        return check.close(torch.cat(found, 1), reference, 1e-3)
    except Exception:
        # Whatever a mode stumbles over, it is not the mode for this model.
        return False


def train(
    mode: str, loss: Loss, model: nn.Module, run: dpsgd.Run, setting: dpsgd.Setting, records: TorchRecords
) -> nn.Module:
    """Train a model in place."""
    device = next(model.parameters()).device
    trainable = trained(model)
    with seeds.everything_else(run.seed, device, setting.threads, "trial"):
        # If one record may change what others give, each is differentiated by itself.
        inputs, targets = (part.to(device) for part in records.example)
        probe = copy.deepcopy(model).requires_grad_(False).train()
        alone = looks_across(lambda inputs, targets: loss(probe(inputs), targets), (inputs, targets), probe)
    plain, kept = warnings.catch_warnings(), unchanged(model.train(), loss, trained=trainable)
    with seeds.everything_else(run.seed, device, setting.threads, "training"), plain, kept:
        # Opacus hooks every layer, the first too, whose inputs need no gradient.
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        optimizer = hyperparameters.build(run.optimizer, trainable, run.learning_rate, run.options)
        private = Optimizer(
            optimizer,
            noise_multiplier=run.noise_multiplier,
            max_grad_norm=run.max_grad_norm,
            expected_batch_size=run.batch_size,
            generator=seeds.noise(run.seed, device),
        )
        with no_writes_in_forward(model):
            steps = Steps(model, private, loss, mode)
            for number, batch in enumerate(poisson_batches(len(records), run)):
                for group in optimizer.param_groups:
                    group["lr"] = run.rate_at(number)
                # A batch in pieces that fit into memory; their clipped sums are added before the noise.
                size = 1 if alone else setting.physical_batch_size or max(1, len(batch))
                pieces = (batch[start : start + size] for start in range(0, len(batch), size))
                steps.step([records.batch(piece, device) for piece in pieces])
        leave_plain(steps.module, private)
    return model


def poisson_batches(size: int, run: OwnRun | dpsgd.Run) -> Iterator[npt.NDArray[np.int64]]:
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


class Steps:
    """Steps of one run, which train the model in place."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, loss: Loss, mode: str) -> None:
        self._model, self._optimizer, self._loss, self._mode = model, optimizer, loss, mode
        self.module = attached(model, mode)

    def step(self, chunks: Sequence[Batch]) -> None:
        """Clip and sum over all chunks of a batch, add noise once, update the parameters once."""
        for inputs, targets in chunks:
            self._add(inputs, targets)
        for parameter in self._optimizer.params:  # a batch may have no record that counts
            parameter.grad_sample = parameter.new_zeros((0, *parameter.shape))
        self._accumulate(skip_step=False)

    def _add(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Add the clipped gradients of some records.

        A record on which the model or the loss raises would fail the run, and so show itself. If a chunk raises, each
        of its records is added by itself, and one that raises counts zero. Whether a record counts depends on that
        record and on the weights, which are private already.
        """
        if len(inputs) and self._differentiates(inputs, targets):
            self._accumulate(skip_step=True)
        elif len(inputs) > 1:
            for place in range(len(inputs)):
                self._add(inputs[place : place + 1], targets[place : place + 1])

    def _accumulate(self, *, skip_step: bool) -> None:
        self._optimizer.signal_skip_step(skip_step)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def _differentiates(self, inputs: torch.Tensor, targets: torch.Tensor) -> bool:
        """Leave the per-sample gradients of a batch on the parameters; nothing, and False, if that raises."""
        try:
            self._loss(self.module(inputs), targets).sum().backward()  # type: ignore[no-untyped-call]
        except BaseException as error:
            if is_signal(error) or isinstance(error, WrittenStateError):
                raise  # the pass has written to the model's state: dropping the batch would not undo that
            leave_plain(self.module, self._optimizer, sums=True)
            self.module = attached(self._model, self._mode)
            return False
        return True


def attached(model: nn.Module, mode: str) -> AbstractGradSampleModule:
    """A model with Opacus's hooks on it."""
    # strict=False: buffers are allowed, because state.py refuses those that change in training.
    return prepare_module(model, mode, loss_reduction="sum", strict=False)


def leave_plain(module: AbstractGradSampleModule, optimizer: Optimizer, *, sums: bool = False) -> None:
    """Leave a plain model: no hooks, nothing that they noted of a batch, and no gradient but ``sums`` of a step."""
    module.cleanup()
    for layer in module.modules():
        for name in ("activations", "max_batch_len"):
            layer.__dict__.pop(name, None)
    for parameter in optimizer.params:
        parameter.grad = None
        if not sums:
            parameter.__dict__.pop("summed_grad", None)
