"""Is a model fit for DP-SGD, and in which mode? Decided on made-up records, before any private one is looked at.

DP-SGD bounds what one record adds to a step. That needs three things of the model and its loss:

1. a record's gradient does not depend on the other records of the batch (batch normalisation breaks this), nor on how
   many they are or where in the batch it stands (a positional encoding along the wrong dimension breaks that);
2. a forward pass changes nothing that the model reaches: what it learnt there would get no noise (``state.py``);
3. the per-sample gradients are those of the loss: a wrong one is clipped to the wrong norm.

Layers known to break 1 are refused by name; all three are then tried out on random records of the right shape. The
trial is a numerical check, not a proof: it finds what a layer does on the records it is shown.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from opacus.grad_sample import AbstractGradSampleModule, GradSampleModuleFastGradientClipping, prepare_module
from opacus.validators import ModuleValidator
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dphypo.errors import UnfitModelError
from dphypo.integrations.torch import seeds
from dphypo.integrations.torch.clipping import GradSampleMode
from dphypo.integrations.torch.data import made_up
from dphypo.integrations.torch.domain import Batch
from dphypo.integrations.torch.loss import Loss
from dphypo.integrations.torch.state import Snapshot

_RECORDS = 4
_MANY_RECORDS = 37  # whose losses are compared, without their gradients
# Relative differences: of batches of other sizes, where a CPU rounds to about 1e-6 and a GPU may use fewer digits; and
# of gradients that are computed in another way, where a wrong one differs by about 1.
_ROUNDING = 1e-5
_TOLERANCE = 1e-3

# Below this many parameters, or with a smaller share of them in layers whose norms need no gradients, a second backward
# pass costs more than it saves.
_GHOST_PARAMETERS = 2000
_GHOST_SHARE = 0.9


def resolve(model: nn.Module, loss: Loss, example: Batch, mode: GradSampleMode) -> GradSampleMode:
    """The mode to train the model in; :class:`UnfitModelError` if there is none.

    The choice depends on the model alone, never on a clock, so that a resumed study makes the same run again.
    """
    if any(nn.parameter.is_lazy(parameter) for parameter in model.parameters()):
        raise UnfitModelError("the model has lazy layers, whose shape is not known yet: give every layer its sizes")
    _refuse_known_layers(model)
    probe = copy.deepcopy(model).train()
    device = example[0].device
    with seeds.everything_else(0, device, torch.get_num_threads()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ignore warnings on synthetic input
        try:
            first, second = made_up(example, _RECORDS), made_up(example, _RECORDS)
            _refuse_mixing(probe, loss, first, second)
            _refuse_places(probe, loss, made_up(example, _MANY_RECORDS))
        except UnfitModelError:
            raise
        except Exception as error:
            raise UnfitModelError(
                f"the model cannot be tried on made-up records with the shape and type of the data "
                f"({type(error).__name__}: {error}): check that model(inputs) and loss(model(inputs), targets) work "
                f"for a batch of any size, with the batch in the first dimension"
            ) from error
        reference = _gradients(probe, loss, first)
        for candidate in _candidates(model, mode):
            if _agrees(probe, loss, first, reference, candidate):
                return candidate
    raise UnfitModelError(
        "Opacus does not compute this model's per-sample gradients correctly in any mode: write its forward pass with "
        "layers that Opacus knows (opacus.GradSampleModule), one call of each layer a pass, or register a rule with "
        "opacus.grad_sample.register_grad_sampler"
    )


def _refuse_known_layers(model: nn.Module) -> None:
    for name, layer in model.named_modules():
        if isinstance(layer, _BatchNorm) and not isinstance(layer, nn.modules.instancenorm._InstanceNorm):
            raise UnfitModelError(
                f"layer {name!r} is {type(layer).__name__}: batch normalisation makes each record's output depend on "
                f"the others in its batch, so that no noise on the gradient makes it private. Replace it by GroupNorm "
                f"or LayerNorm; opacus.validators.ModuleValidator.fix(model) does it for you"
            )
        if getattr(layer, "max_norm", None) is not None:
            raise UnfitModelError(
                f"layer {name!r} is {type(layer).__name__} with max_norm: its forward pass renormalises the rows that "
                f"occur in the batch, without noise. Leave max_norm out"
            )
    errors = ModuleValidator.validate(copy.deepcopy(model).train(), strict=False)
    if errors:
        raise UnfitModelError(
            f"Opacus refuses the model: {errors[0]}. opacus.validators.ModuleValidator.fix(model) replaces what it can"
        )
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and torch.finfo(parameter.dtype).bits < 32:
            raise UnfitModelError(
                f"parameter {name!r} is {parameter.dtype}: sums of gradients would be rounded to its few digits, and "
                f"that rounding is not covered by the noise. Use float32: model=lambda: YourModel(...).float()"
            )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UnfitModelError("the model has no trainable parameter: there is nothing to train")


def _refuse_mixing(model: nn.Module, loss: Loss, first: Batch, second: Batch) -> None:
    before = Snapshot.of(model, loss)
    alone = _gradients(model, loss, first)
    before.refuse_changes(model, loss)
    # Dropout is the same in all passes.
    if not all(map(_equal, alone, _gradients(model, loss, first))):
        raise UnfitModelError(
            "the same records give other gradients in a second pass with the same random numbers: the model keeps "
            "something of a batch that gets no noise, or has a random generator of its own. Make the forward pass a "
            "function of the parameters, one batch and PyTorch's global generator"
        )
    # Record 0 stays, all others change: its gradient must stay too.
    mixed = tuple(torch.cat([old[:1], new[1:]]) for old, new in zip(first, second, strict=True))
    drawn = seeds.global_states()
    beside = _gradients(model, loss, (mixed[0], mixed[1]))
    if drawn != seeds.global_states():
        raise UnfitModelError(
            "the values of the records decide how many random numbers a pass draws, or seed a global generator: "
            "a record would change the dropout of others. Draw random numbers by the shapes of the records alone"
        )
    if not _equal(alone[0], beside[0]):
        raise UnfitModelError(
            "a record's gradient depends on the other records of its batch: some layer, or the loss, mixes records "
            "(batch statistics, attention or a softmax across the batch dimension, outputs and targets of different "
            "shapes). Make each record's output and loss a function of that record alone"
        )


def refuse_mixed_scores(model: nn.Module, loss: Loss, example: Batch) -> None:
    """:class:`UnfitModelError` if a value that a score sums up for each record depends on the other records."""
    device = next(model.parameters()).device
    inputs, targets = (part.to(device) for part in example)
    with seeds.everything_else(0, device, torch.get_num_threads()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _refuse_places(model, loss, made_up((inputs, targets), _MANY_RECORDS), modes=(False,))


def _refuse_places(model: nn.Module, loss: Loss, batch: Batch, modes: tuple[bool, ...] = (False, True)) -> None:
    """Compare the losses of a batch with those of the batch turned round and of each record alone.

    Both as for scoring and, unless dropout or the like makes every pass differ, as in training.
    """
    inputs, targets = batch
    was_training = model.training
    for training in modes:
        model.train(training)
        before = Snapshot.of(model, loss)
        with torch.no_grad():
            whole = _losses(model, loss, inputs, targets)
            if training and not torch.equal(whole, _losses(model, loss, inputs, targets, seed=1)):
                continue
            turned = _losses(model, loss, inputs.flip(0), targets.flip(0)).flip(0)
            alone = [_losses(model, loss, inputs[i : i + 1], targets[i : i + 1]) for i in range(_RECORDS)]
        before.refuse_changes(model, loss)
        if not _close([whole], [turned]) or not _close([whole[:_RECORDS]], alone):
            raise UnfitModelError(
                "a record's loss depends on its place in the batch, or on how many records are in it, and so on the "
                "other records: do not divide by the batch size, and use the first dimension for nothing but the "
                "records (positions go along the second: x + encoding[:, : x.shape[1]])"
            )
    model.train(was_training)


def _losses(
    model: nn.Module, loss: Loss, inputs: torch.Tensor, targets: torch.Tensor, *, seed: int = 0
) -> torch.Tensor:
    """The losses, with one number for all that are not finite: they count the same wherever losses are used."""
    seeds.seed_global(seed)
    return loss(model(inputs), targets).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def _gradients(model: nn.Module, loss: Loss, batch: Batch) -> list[list[torch.Tensor]]:
    """For each record, the gradient of its loss by plain automatic differentiation."""
    seeds.seed_global(0)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    losses = loss(model(batch[0]), batch[1])
    gradients = []
    for value in losses:
        parts = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        if any(part is None for part in parts):
            raise UnfitModelError(
                "a trainable parameter of the model does not enter its output: remove it, or freeze it with "
                "requires_grad_(False)"
            )
        gradients.append(list(parts))
    return gradients


def _candidates(model: nn.Module, mode: GradSampleMode) -> Iterator[GradSampleMode]:
    if mode is not GradSampleMode.AUTO:
        yield mode
        return
    known = tuple(GradSampleModuleFastGradientClipping.NORM_SAMPLERS)
    total = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    ghostly = sum(
        parameter.numel()
        for layer in model.modules()
        if type(layer) in known
        for parameter in layer.parameters(recurse=False)
        if parameter.requires_grad
    )
    if total >= _GHOST_PARAMETERS and ghostly >= _GHOST_SHARE * total:
        yield GradSampleMode.GHOST
    yield GradSampleMode.HOOKS
    yield GradSampleMode.FUNCTORCH


def _agrees(
    probe: nn.Module, loss: Loss, batch: Batch, reference: list[list[torch.Tensor]], mode: GradSampleMode
) -> bool:
    model = copy.deepcopy(probe)
    kept_apart = GradSampleMode.HOOKS if mode is GradSampleMode.GHOST else mode
    try:
        module = prepare_module(model, kept_apart.value, loss_reduction="sum", strict=False)
        _backward(module, loss, batch)
        found = [p.grad_sample for p in model.parameters() if p.requires_grad]  # type: ignore[attr-defined]
        right = all(_close([part[i] for part in found], reference[i], _TOLERANCE) for i in range(_RECORDS))
        if right and mode is GradSampleMode.GHOST:
            module.cleanup()
            if not _one_vector_a_record(model, batch):
                return False
            module = prepare_module(model, "ghost", loss_reduction="sum", strict=False, max_grad_norm=1.0)
            _backward(module, loss, batch)
            norms = torch.stack([torch.cat([part.flatten() for part in record]).norm() for record in reference])
            right = _close([module.get_norm_sample()], [norms], _TOLERANCE)
    except Exception:
        # Whatever a mode stumbles over, it is not the mode for this model.
        return False
    return right


def _one_vector_a_record(model: nn.Module, batch: Batch) -> bool:
    """Whether no trained layer gets or gives more than one vector a record."""
    dimensions: list[int] = []

    def note(layer: nn.Module, inputs: Any, output: Any) -> None:
        dimensions.extend(part.dim() for part in (*inputs, output) if isinstance(part, torch.Tensor))

    layers = [m for m in model.modules() if any(p.requires_grad for p in m.parameters(recurse=False))]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    model(batch[0])
    for hook in hooks:
        hook.remove()
    return all(dimension <= 2 for dimension in dimensions)


def _backward(module: AbstractGradSampleModule, loss: Loss, batch: Batch) -> None:
    seeds.seed_global(0)
    loss(module(batch[0]), batch[1]).sum().backward()  # type: ignore[no-untyped-call]


def _equal(these: list[torch.Tensor], those: list[torch.Tensor]) -> bool:
    """Whether batches of one shape give the same: to the bit on the CPU; a GPU adds up in any order."""
    if these[0].device.type != "cpu":
        return _close(these, those)
    return all(torch.equal(this.nan_to_num(), that.nan_to_num()) for this, that in zip(these, those, strict=True))


def _close(these: list[torch.Tensor], those: list[torch.Tensor], tolerance: float | None = None) -> bool:
    this, that = (torch.cat([part.flatten() for part in parts]) for parts in (these, those))
    if tolerance is None:
        tolerance = _ROUNDING if this.device.type == "cpu" else _TOLERANCE
    return bool((this - that).norm() <= tolerance * that.norm() + 1e-12)
