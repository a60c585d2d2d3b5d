"""What public things say about a model and its records, before any private one is looked at.

One is how far noise in the weights moves what layers put out, rehearsed on made-up records. Noise of standard deviation
c in every weight moves the outputs of a linear layer by c·‖inputs − their mean‖. The layer that moves most bounds the
learning rate (:mod:`dphypo.search.rates`). The inputs of a network have a scale that is declared or bought; those of
its other layers follow from it, from the untrained weights and from the noise itself.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from dphypo import _validate
from dphypo.errors import UnsupportedModelError
from dphypo.torch import engine
from dphypo.torch.data import TensorRecords, TorchRecords
from dphypo.torch.engine.batch_rows import Batch, Loss
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


_RECORDS, _STEP = 32, 1e-3  # of a rehearsal


def synthetic_inputs(example: Batch, scale: float | None) -> torch.Tensor:
    """Made-up inputs of this scale, normal and about zero; without one, or if they are tokens, as they come."""
    inputs = engine.synthetic_records(example, _RECORDS)[0]
    if scale is None or not inputs.dtype.is_floating_point:
        return inputs
    return torch.randn_like(inputs) * (scale / math.sqrt(max(1, math.prod(inputs.shape[1:]))))


@torch.no_grad()
def movement(model: nn.Module, call: Callable[[torch.Tensor], Any], inputs: torch.Tensor, noise: float) -> float:
    """By how much ``noise`` in all trained weights moves the outputs of the layer that it moves most.

    >>> one = nn.Linear(100, 5)
    >>> records = 3 * torch.nn.functional.normalize(torch.randn(4096, 100))
    >>> 1.3 < movement(one, one, records, noise=0.5) < 1.7
    True
    """
    found = [0.0]

    def measure(layer: nn.Module, given: tuple[Any, ...], outputs: Any) -> None:
        weights = _matrices(layer)
        if not weights or not isinstance(outputs, torch.Tensor) or not outputs.dtype.is_floating_point:
            return
        with contextlib.suppress(TypeError), _shaken(weights, _STEP):  # a layer may take more than these arguments
            moved = (type(layer).forward(layer, *given) - outputs).double()
            found.append(noise / _STEP * float((moved - moved.mean(0)).square().mean().sqrt()))

    every = [weight for layer in model.modules() for weight in _matrices(layer)]
    handles = [layer.register_forward_hook(measure) for layer in model.modules()]
    try:
        with _shaken(every, noise):
            call(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return max(found) if all(map(math.isfinite, found)) else math.inf


def _matrices(layer: nn.Module) -> list[nn.Parameter]:
    return [one for one in layer.parameters(recurse=False) if one.requires_grad and one.dim() > 1]


@contextlib.contextmanager
def _shaken(weights: list[nn.Parameter], noise: float) -> Iterator[None]:
    """Inside, the weights have noise."""
    kept = [one.clone() for one in weights]
    try:
        for one in weights:
            one.add_(torch.randn_like(one), alpha=noise)
        yield
    finally:
        for one, before in zip(weights, kept, strict=True):
            one.copy_(before)
