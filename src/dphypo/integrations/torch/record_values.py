"""A value for each record: losses, of which per-sample gradients are the gradients, and what scores add up.

What a record adds to a score depends on that record and the model alone, to the bit: records go through the model in
batches of one size, the last one filled up. Some products of matrices round a row by its place in the batch. This is
tried out on made-up records, and where it is so, each record goes through the model alone.

As it does if the model, or the loss, may look across the records of a batch: ``if mask.all(): ...`` takes another path
for all records because of one (``dpsgd/watch.py``). What models of ``transformers`` ask of their masks has one answer
for all batches (``dpsgd/device.py``).
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from dphypo.dpsgd import synthetic_records
from dphypo.dpsgd.batches import Batch, Loss
from dphypo.dpsgd.device import SomePadding, padded_attention
from dphypo.dpsgd.trainable import extreme, looks_across
from dphypo.errors import UnsupportedModelError
from dphypo.integrations.measures import Floats
from dphypo.integrations.torch.data import TorchRecords
from dphypo.integrations.torch.domain import Domain, is_single
from dphypo.integrations.torch.fields import called
from dphypo.mechanisms.one_record import or_none


@dataclass(frozen=True, eq=False)
class PerRecord:
    """A loss that gives one value a record: a mean over the positions whose label is not ``ignored``."""

    unreduced: Callable[..., Any]
    ignored: int | None = None

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        result = self.unreduced(outputs, targets)
        if not isinstance(result, torch.Tensor) or result.dim() == 0 or len(result) != len(targets):
            raise TypeError(
                "the loss does not return one value a record: give one of PyTorch's losses, or a function "
                "loss(outputs, targets) that returns a tensor as long as the batch, not an average over it"
            )
        if result.dim() == 1:
            return result
        if self.ignored is None or result.shape != targets.shape:
            return result.flatten(1).mean(1)
        counts = (targets.long() != self.ignored).flatten(1)  # −100 as an unsigned byte would be 156
        return (result.flatten(1) * counts).sum(1) / counts.sum(1).clamp(min=1)


def per_record(loss: Callable[..., Any]) -> PerRecord:
    """A loss that gives one value a record, whatever reduction the given one has by default.

    PyTorch's own losses, functions and modules, are called with ``reduction="none"``. Any other function must return
    one value a record: an average over the batch depends on how many records are in it, which is private. Positions
    whose label is the loss's ``ignore_index`` count for nothing.

    >>> loss = per_record(nn.MSELoss())
    >>> loss(torch.tensor([[1.0, 3.0], [0.0, 0.0]]), torch.zeros(2, 2))
    tensor([5., 0.])
    """
    if isinstance(loss, nn.Module):
        if hasattr(loss, "reduction"):
            loss = copy.copy(loss)
            vars(loss)["reduction"] = "none"
        return PerRecord(loss, getattr(loss, "ignore_index", None))
    ignored = None
    with contextlib.suppress(TypeError, ValueError):  # it may have no signature
        known = inspect.signature(loss).parameters
        ignored = known["ignore_index"].default if "ignore_index" in known else None
        if "reduction" in known:
            loss = functools.partial(loss, reduction="none")
    return PerRecord(loss, ignored if isinstance(ignored, int) else None)


_CHUNK = 1024


def correct(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """1 for each record classified correctly."""
    labels = targets.reshape(len(targets)) > 0.5 if is_single(outputs) else targets
    return (predicted(outputs, targets) == labels).double()


def predicted(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The class of each record: that of the largest output, or by the sign of a single one."""
    return outputs.reshape(len(targets)) > 0 if is_single(outputs) else outputs.argmax(1)


@torch.no_grad()
def classes_of(model: nn.Module, records: TorchRecords) -> int:
    """How many classes the model tells apart, from its output on made-up records."""
    device = next(model.parameters()).device
    example = records.example[0]
    outputs = called(model, records.fields)(torch.zeros((2, *example.shape[1:]), dtype=example.dtype, device=device))
    return int(max(outputs.shape[1] if outputs.dim() > 1 else 2, 2))


def values(
    model: nn.Module,
    records: TorchRecords,
    value: Callable[..., torch.Tensor],
    declared: int = _CHUNK,
    loss: Loss | None = None,
    *,
    beside: bool = False,
    ignored: int | None = None,
) -> Floats:
    """``value(outputs, targets)`` for each record in the domain of the model and the loss, or of the model's classes.

    With ``beside``, the value is a function of the inputs too. Records with the label ``ignored`` are left out.
    """
    model = called(model, records.fields)
    device = next(model.parameters()).device
    records = records.within(Domain.of(model, records.example, loss, labelled=loss is None, ignored=ignored))
    was_training = model.training
    model.eval()
    with torch.no_grad(), padded_attention(), SomePadding():
        size = min(_CHUNK, declared)
        inputs, targets = (part.to(device) for part in records.example)
        size = 1 if mixes(copy.deepcopy(model), loss, (inputs, targets), size) else size
        made_up = synthetic_records((inputs, targets), size)
        _at(model, value, made_up, list(range(size)), size, beside)  # if this raises, it is no record's doing
        batches = (np.arange(start, min(start + size, len(records))) for start in range(0, len(records), size))
        found = [_of_batch(model, value, records.batch(batch, device), size, beside) for batch in batches]
    model.train(was_training)
    return np.concatenate(found) if found else np.zeros(0)


@torch.no_grad()
def mixes(model: nn.Module, loss: Loss | None, example: Batch, size: int) -> bool:
    """Whether a record's output, or its loss, may depend on its place in a batch or on other records, to the bit."""
    kept = torch.arange(size, device=example[0].device) % 2 == 0

    def values(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        outputs = model(inputs.clone())
        return (outputs if loss is None else loss(outputs, targets.clone())).nan_to_num()

    if looks_across(values, example, model, backward=False):
        return True
    records = synthetic_records(example, size + 1)
    first = [part[:-1] for part in records]
    wanted = values(*first)
    for moved, large in ((1, False), (size // 3 + 1, False), (1, True)):
        inputs, targets = (part.roll(-moved, 0) for part in first)
        inputs[~kept] = extreme(inputs[None], large=True)[0][~kept] if large else records[0][-1]
        with contextlib.suppress(Exception):  # a model may refuse large numbers
            if torch.equal(wanted.roll(-moved, 0)[kept], values(inputs, targets)[kept]):
                continue
        return True
    return False


def _of_batch(model: nn.Module, value: Callable[..., torch.Tensor], batch: Batch, size: int, beside: bool) -> Floats:
    """The values of a batch; a record on which the model or the value raises by itself is left out, as in training."""
    everywhere = list(range(len(batch[0])))
    at = functools.partial(_at, model, value, batch, size=size, beside=beside)
    if everywhere and (found := or_none(lambda: at(everywhere))) is not None:
        return found.numpy()
    each = [or_none(functools.partial(at, [place])) for place in everywhere]
    return torch.cat([torch.zeros(0), *(one for one in each if one is not None)]).double().numpy()


def _at(
    model: nn.Module, value: Callable[..., torch.Tensor], batch: Batch, places: list[int], size: int, beside: bool
) -> torch.Tensor:
    """The values of some records, computed in a batch of ``size``: the last one fills it up."""
    inputs, targets = batch
    filled = places + [places[-1]] * (size - len(places))
    more = [inputs[filled]] if beside else []
    found = value(model(inputs[filled]), targets[filled], *more)
    if found.shape != (size,):
        raise UnsupportedModelError("the score is not one value a record")
    return found[: len(places)].double().cpu()
