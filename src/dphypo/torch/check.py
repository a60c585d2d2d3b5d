"""What public things say about a model and its records, before any private one is looked at."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from dphypo import _validate
from dphypo.errors import UnsupportedModelError
from dphypo.torch import engine
from dphypo.torch.data import TensorRecords, TorchRecords
from dphypo.torch.engine.batches import Batch, Loss
from dphypo.torch.engine.record_graph import place_of, reads_values


def captured(model: nn.Module, loss: Loss, example: Batch, **options: Any) -> engine.Program:
    """The program of a model; :class:`UnsupportedModelError` with what to do instead if there is none."""
    try:
        return engine.Program.of(model, loss, example, **options)
    except UnsupportedModelError as error:
        cause = error.__cause__
        if isinstance(cause, AttributeError) and cause.name == "loss":
            raise UnsupportedModelError(
                "the loss asks for the model's own .loss, which averages over all tokens of a batch and so mixes "
                "records. Compute one value per record from the logits: loss=lambda logits, targets: ..."
            ) from None
        if not isinstance(cause, Exception) or reads_values(cause):
            raise
        raise not_callable(cause, *example) from cause


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
    elif inputs.dim() == 1 and not inputs.is_floating_point():
        remedy += ". If inputs and targets were swapped, give data=(inputs, targets)"
    elif isinstance(error, IndexError) and "out of bounds" in str(error):
        remedy = "The model has fewer outputs than there are classes: give it one output per class"
    return UnsupportedModelError(
        f"model fails on made-up records like those of data, each of shape {tuple(inputs.shape[1:])} and type {kind} "
        f"({type(error).__name__}: {error}{place_of(error)}). {remedy}"
    )


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
        f"one public size, by collate= or before; fitting_records shows the curator alone how many fit"
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
