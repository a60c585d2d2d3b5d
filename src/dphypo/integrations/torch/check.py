"""Is a model fit for DP-SGD? Decided on made-up records, before any private one is looked at.

DP-SGD bounds what one record adds to a step. That needs two things of the model and its loss, whatever engine trains:

1. a record's gradient does not depend on the other records of the batch (batch normalisation breaks this), nor on how
   many they are or where in the batch it stands (a positional encoding along the wrong dimension breaks that);
2. a forward pass changes nothing that the model reaches: what it learnt there would get no noise (``state.py``).

Layers known to break them are refused by name; both are then tried out on random records of the right shape. The trial
is a numerical check, not a proof: it finds what a layer does on the records it is shown.
"""

from __future__ import annotations

import copy
import warnings

import torch
from torch import nn

from dphypo import _validate, dpsgd
from dphypo.dpsgd.batches import Batch, Loss
from dphypo.dpsgd.stack import trained
from dphypo.errors import UnsupportedModelError
from dphypo.integrations.torch import seeds
from dphypo.integrations.torch.data import TensorRecords, TorchRecords
from dphypo.integrations.torch.state import unchanged

_RECORDS = 4
_MANY_RECORDS = 37  # whose losses are compared, without their gradients
# Relative difference of losses in batches of other sizes: a CPU rounds to about 1e-6, a GPU may use fewer digits.
_ROUNDING, _ROUNDING_ELSEWHERE = 1e-5, 1e-3


def try_out(model: nn.Module, loss: Loss, example: Batch) -> None:
    """:class:`UnsupportedModelError` for a model that cannot be trained privately, with what to do instead."""
    dpsgd.refuse_layers(model)
    if any(getattr(layer, "gradient_checkpointing", False) for layer in model.modules()):
        raise UnsupportedModelError(
            "the model has gradient checkpointing, which hides forward passes from the formulas of per-record "
            "gradients: call model.gradient_checkpointing_disable(), and save memory with physical_batch_size="
        )
    probe = dpsgd.in_training(copy.deepcopy(model))
    device = example[0].device
    with seeds.everything_else(0, device, torch.get_num_threads()), warnings.catch_warnings(action="ignore"):
        try:
            _refuse_mixing(probe, loss, *synthetic_batches(example))
            _refuse_places(probe, loss, dpsgd.synthetic_records(example, _MANY_RECORDS))
        except UnsupportedModelError:
            raise
        except Exception as error:
            if isinstance(error, AttributeError) and error.name == "loss":
                raise UnsupportedModelError(
                    "the loss asks for the model's own .loss, which averages over all tokens of a batch and so mixes "
                    "records. Compute one value a record from the logits: loss=lambda logits, targets: ..."
                ) from None
            raise not_callable(error, *example) from error


def not_callable(error: Exception, inputs: torch.Tensor, targets: torch.Tensor | None = None) -> UnsupportedModelError:
    """The error for a model, or a loss, that raises on records of the right shape; both are a batch of them."""
    kind = str(inputs.dtype).removeprefix("torch.")
    remedy = (
        "Change the model, or reshape the records: model(inputs) and loss(model(inputs), targets) must work for a "
        "batch of any size, with the batch in the first dimension"
    )
    if inputs.dtype == torch.uint8:
        remedy = "Convert pictures to fractions: x.astype('float32') / 255, or x.float() / 255 of a tensor"
    elif targets is not None and targets.shape[1:] == (1,):
        remedy += ". Targets are a column: where the loss takes one number a record, give y[:, 0]"
    elif targets is not None and targets.is_floating_point() and targets.dim() == 1:
        remedy += ". Targets are fractions: where they are labels, give y.astype('int64')"
    return UnsupportedModelError(
        f"model fails on made-up records like those of data, each of shape {tuple(inputs.shape[1:])} and type {kind} "
        f"({type(error).__name__}: {error}). {remedy}"
    )


def synthetic_batches(example: Batch) -> tuple[Batch, Batch]:
    """Two batches of a few random records with the shape and type of an example."""
    inputs, targets = dpsgd.synthetic_records(example, 2 * _RECORDS)
    return (inputs[:_RECORDS], targets[:_RECORDS]), (inputs[_RECORDS:], targets[_RECORDS:])


def _refuse_mixing(model: nn.Module, loss: Loss, first: Batch, second: Batch) -> None:
    with unchanged(model, loss):
        alone = gradients(model, loss, first)
    # Dropout is the same in all passes.
    if not _equal(alone, gradients(model, loss, first)):
        raise UnsupportedModelError(
            "the same records give other gradients in a second pass with the same random numbers: the model keeps "
            "something of a batch, or has a random generator of its own. Make the forward pass a function of the "
            "parameters, one batch and PyTorch's global generator"
        )
    # Record 0 stays, all others change: its gradient must stay too.
    mixed = tuple(torch.cat([old[:1], new[1:]]) for old, new in zip(first, second, strict=True))
    drawn = seeds.global_states()
    beside = gradients(model, loss, (mixed[0], mixed[1]))
    if drawn != seeds.global_states():
        raise UnsupportedModelError(
            "the values of the records decide how many random numbers a pass draws, or seed a global generator: "
            "a record would change the dropout of others. Draw random numbers by the shapes of the records alone"
        )
    if not _equal(alone[0], beside[0]):
        raise UnsupportedModelError(
            "a record's gradient depends on the other records of its batch: a layer or the loss mixes records (batch "
            "statistics, attention or a softmax across the batch, outputs and targets of different shapes). Make each "
            "record's output and loss a function of that record alone"
        )


def refuse_mixed_scores(model: nn.Module, loss: Loss, example: Batch) -> None:
    """:class:`UnsupportedModelError` if a value that a score sums up for each record depends on the other records."""
    device = next(model.parameters()).device
    inputs, targets = (part.to(device) for part in example)
    with seeds.everything_else(0, device, torch.get_num_threads()), warnings.catch_warnings(action="ignore"):
        _refuse_places(model, loss, dpsgd.synthetic_records((inputs, targets), _MANY_RECORDS), modes=(False,))


def _refuse_places(model: nn.Module, loss: Loss, batch: Batch, modes: tuple[bool, ...] = (False, True)) -> None:
    """Compare the losses of a batch with those of the batch turned round and of each record alone.

    Both as for scoring and, unless dropout or the like makes every pass differ, as in training.
    """
    was_training = model.training
    rounding = _ROUNDING if batch[0].device.type == "cpu" else _ROUNDING_ELSEWHERE

    def losses(places: torch.Tensor, seed: int = 0) -> torch.Tensor:
        """With one number for all that are not finite: they count the same wherever losses are used."""
        seeds.seed_global(seed)
        inputs, targets = (part[places] for part in batch)
        return loss(model(inputs), targets).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)

    every = torch.arange(len(batch[0]), device=batch[0].device)
    for training in modes:
        model.eval()
        if training:
            dpsgd.in_training(model)
        with torch.no_grad(), unchanged(model, loss):
            whole = losses(every)
            if training and not torch.equal(whole, losses(every, seed=1)):
                continue
            turned = losses(every.flip(0)).flip(0)
            alone = torch.cat([losses(one) for one in every[:_RECORDS].unsqueeze(1)])
        if not close(whole, turned, rounding) or not close(whole[:_RECORDS], alone, rounding):
            raise UnsupportedModelError(
                "a record's loss depends on its place in the batch, or on how many records are in it, and so on the "
                "other records: do not divide by the batch size, and use the first dimension for nothing but the "
                "records (positions go along the second: x + encoding[:, : x.shape[1]])"
            )
    model.train(was_training)


def gradients(model: nn.Module, loss: Loss, batch: Batch) -> torch.Tensor:
    """For each record, the gradient of its loss by plain automatic differentiation, as a row."""
    seeds.seed_global(0)
    found = []
    for value in loss(model(batch[0]), batch[1]):
        parts = torch.autograd.grad(value, trained(model), retain_graph=True, allow_unused=True)
        if any(part is None for part in parts):
            remedy = "remove it, or freeze it with requires_grad_(False)"
            raise UnsupportedModelError(f"a trainable parameter of the model does not enter its output: {remedy}")
        found.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(found)


def _equal(these: torch.Tensor, those: torch.Tensor) -> bool:
    """Whether batches of one shape give the same: to the bit on the CPU; a GPU adds up in any order."""
    if these.device.type != "cpu":
        return close(these, those, _ROUNDING_ELSEWHERE)
    return torch.equal(these.nan_to_num(), those.nan_to_num())


def close(these: torch.Tensor, those: torch.Tensor, tolerance: float) -> bool:
    """Whether rows differ by a relative tolerance at most, each of them."""
    return bool(((these - those).norm(dim=-1) <= tolerance * those.norm(dim=-1) + 1e-12).all())


def warn_of_lost_records(model: nn.Module, records: TorchRecords) -> None:
    """Warn where public things say that records of another shape than the example's, which are left out, may exist."""
    if isinstance(records, TensorRecords) or records.collate is not None:
        return
    # Columns of a data set of Hugging Face that it declares to be lists of any length.
    inner = getattr(records.dataset, "dataset", None)
    features = getattr(records.dataset, "features", getattr(inner, "features", None))
    found = features.items() if isinstance(features, dict) else ()
    varying = {name for name, feature in found if getattr(feature, "length", None) == -1}
    if names := varying & set(records.fields.shapes if records.fields is not None else ()):
        why = f"the data set declares that lengths of {', '.join(sorted(names))!r} vary"
    elif records.fields is None and _takes_other_sizes(model, records.example[0]):
        why = "the model takes inputs of any size"
    else:
        return
    _validate.warn(
        f"{why}, and records of another size than the example are left out, in training and in scoring. Bring all to "
        f"one public size, by collate= or before; fitting_records says how many fit, to the curator alone"
    )


@torch.no_grad()
def _takes_other_sizes(model: nn.Module, example: torch.Tensor) -> bool:
    """Whether a convolutional model takes a made-up input whose last dimensions are larger."""
    if not any(isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d) for layer in model.modules()) or example.dim() < 3:
        return False
    shapes = [(2, *example.shape[1:]), (2, example.shape[1], *(size + 8 for size in example.shape[2:]))]
    tried = copy.deepcopy(model).eval()
    device = next(tried.parameters()).device
    try:
        outputs = [tried(torch.zeros(shape, dtype=example.dtype, device=device)) for shape in shapes]
    except Exception:
        return False
    return bool(outputs[0].shape == outputs[1].shape)
