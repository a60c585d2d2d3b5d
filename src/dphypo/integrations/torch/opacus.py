"""``engine="opacus"``: Poisson batches, per-sample gradients of Opacus, Gaussian noise, a step; repeated.

Each step includes every record independently with probability ``rate`` and perturbs the clipped sum with Gaussian
noise of standard deviation ``noise_multiplier · max_grad_norm``: one Poisson-sampled Gaussian mechanism, if
floating-point numbers are taken as real ones. Whatever else happens (the optimiser's state, the learning rate, dropout)
sees the data through these sums alone.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from opacus.validators import ModuleValidator
from torch import nn

from dphypo import noise
from dphypo.errors import UnfitModelError
from dphypo.integrations.torch import check, clipping, hyperparameters, seeds
from dphypo.integrations.torch.data import Records
from dphypo.integrations.torch.domain import Batch
from dphypo.integrations.torch.loss import Loss
from dphypo.integrations.torch.state import Snapshot, no_writes_in_forward
from dphypo.integrations.torch.training import Training
from dphypo.mechanisms import DpSgd

_MODES = ("hooks", "functorch")


def fit(model: nn.Module, loss: Loss, example: Batch) -> str:
    """The mode in which Opacus computes the model's gradients; :class:`UnfitModelError` if there is none.

    The choice depends on the model alone, never on a clock, so that a resumed study makes the same run again.
    """
    errors = ModuleValidator.validate(copy.deepcopy(model).train(), strict=False)
    if errors:
        raise UnfitModelError(
            f"Opacus refuses the model: {errors[0]}. opacus.validators.ModuleValidator.fix(model) replaces what it can"
        )
    batch = check.made_up(example)[0]
    reference = check.gradients(copy.deepcopy(model).train(), loss, batch)
    for mode in _MODES:
        if _agrees(copy.deepcopy(model).train(), loss, batch, reference, mode):
            return mode
    raise UnfitModelError(
        "Opacus does not compute this model's per-sample gradients correctly in any mode: write its forward pass with "
        "layers that Opacus knows (opacus.GradSampleModule), one call of each layer a pass, or register a rule with "
        "opacus.grad_sample.register_grad_sampler"
    )


def _agrees(model: nn.Module, loss: Loss, batch: Batch, reference: list[list[torch.Tensor]], mode: str) -> bool:
    try:
        module = clipping.attached(model, mode)
        seeds.seed_global(0)
        loss(module(batch[0]), batch[1]).sum().backward()  # type: ignore[no-untyped-call]
        found = [p.grad_sample for p in model.parameters() if p.requires_grad]  # type: ignore[attr-defined]
    except Exception:
        # Whatever a mode stumbles over, it is not the mode for this model.
        return False
    return all(check.close([part[i] for part in found], record, 1e-3) for i, record in enumerate(reference))


def train(mode: str, training: Training, records: Records, loss: Loss) -> None:
    """Train a model in place. PyTorch's global generators must be seeded already."""
    model, run, descent, seed = training.model, training.run, training.descent, training.seed
    device = next(model.parameters()).device
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = hyperparameters.build(descent.optimizer, trainable, descent.learning_rate, descent.options)
    added = clipping.Noise(
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
        steps = clipping.Steps(model, optimizer, loss, added, mode)
        chosen = noise.chosen(run.subsample, seeds.words(seed, "subsample"), len(records))
        for number, batch in enumerate(poisson_batches(len(chosen), run, seeds.words(seed, "sampling"))):
            if descent.schedule is not None:
                for group in optimizer.param_groups:
                    group["lr"] = descent.learning_rate * descent.schedule(number / run.steps)
            steps.step(list(_chunks(records, chosen[batch], device, descent.setting.physical_batch_size)))
    steps.close()
    kept.refuse_changes(model, loss)


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
    at_most = at_most or max(1, len(indices))
    for start in range(0, max(1, len(indices)), at_most):
        yield records.batch(indices[start : start + at_most], device)
