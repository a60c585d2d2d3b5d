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
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from dphypo.dpsgd import synthetic_records
from dphypo.dpsgd.batches import Batch, Loss
from dphypo.dpsgd.device import SomePadding, padded_attention
from dphypo.dpsgd.trainable import extreme, looks_across
from dphypo.errors import UnsupportedModelError
from dphypo.integrations.persons import I64
from dphypo.integrations.scores import Floats, TrainedModel, Value, as_trained
from dphypo.integrations.torch import check
from dphypo.integrations.torch.data import DatasetRecords, TorchRecords, as_records
from dphypo.integrations.torch.domain import Domain, is_single
from dphypo.integrations.torch.fields import Called, called, plain
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
    rows: I64 | None = None,
) -> Floats:
    """``value(outputs, targets)`` of each record; NaN outside the domain of the model and the loss, or of its classes.

    With ``beside``, the value is a function of the inputs too. Records with the label ``ignored`` are left out. The
    numbers of the records that are asked for are ``rows``, by default all.
    """
    model = called(model, records.fields)
    device = next(model.parameters()).device
    read = records.reader(Domain.of(model, records.example, loss, labelled=loss is None, ignored=ignored))
    rows = np.arange(len(records)) if rows is None else rows
    was_training = model.training
    model.eval()
    with torch.no_grad(), padded_attention(), SomePadding():
        size = min(_CHUNK, declared)
        inputs, targets = (part.to(device) for part in records.example)
        size = 1 if mixes(copy.deepcopy(model), loss, (inputs, targets), size) else size
        made_up = synthetic_records((inputs, targets), size)
        _at(model, value, made_up, list(range(size)), size, beside)  # if this raises, it is no record's doing
        found = np.full(len(rows), np.nan)
        for start in range(0, len(rows), size):
            inputs, targets, usable = read(rows[start : start + size])
            places = start + np.flatnonzero(usable.cpu().numpy())
            batch = inputs[usable].to(device), targets[usable].to(device)
            found[places] = _of_batch(model, value, batch, size, beside)
    model.train(was_training)
    return found


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
    """The values of a batch; NaN for a record on which the model or the value raises by itself, as in training."""
    everywhere = list(range(len(batch[0])))
    at = functools.partial(_at, model, value, batch, size=size, beside=beside)
    if everywhere and (found := or_none(lambda: at(everywhere))) is not None:
        return found.numpy()
    each = [or_none(functools.partial(at, [place])) for place in everywhere]
    left_out = torch.full((1,), torch.nan, dtype=torch.float64)
    return torch.cat([left_out[:0], *(left_out if one is None else one for one in each)]).numpy()


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


REGRESSION = (
    *(functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss, functional.huber_loss),
    *(nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.GaussianNLLLoss, nn.PoissonNLLLoss),
)


class TorchModel(TrainedModel):
    """A model of PyTorch as scores see it; ``loss`` is that of its training, where it is known."""

    def __init__(self, model: nn.Module, loss: Any = None) -> None:
        self._called, self.model, self._loss = model, plain(model), loss

    @classmethod
    def records(cls, data: Any, example: Any = None, *, public: bool = False, person: Any = None) -> TorchRecords:
        return as_records(data, example, public=public, person=person)

    @classmethod
    def reads_once(cls, records: Any) -> bool:
        """Those of a data set, which are read twice."""
        return isinstance(records, DatasetRecords)

    def classes(self, records: TorchRecords) -> int:
        return classes_of(self._called, records)

    def labelled(
        self,
        records: TorchRecords,
        value: Value,
        *,
        declared: int | None = None,
        ignored: int | None = None,
        group: Callable[[Any], Any] | None = None,
        rows: I64 | None = None,
    ) -> Floats:
        fields = self._called.fields if isinstance(self._called, Called) else records.fields

        def group_of(row: torch.Tensor) -> float:
            assert group is not None
            found = torch.as_tensor(group(row if fields is None else fields.unpack(row)))
            return float(found.reshape(()).double())

        def of_batch(outputs: torch.Tensor, targets: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
            groups = None
            for some in inputs:  # each record by itself: its group must not depend on the others
                read = [or_none(functools.partial(group_of, row)) for row in some.unsqueeze(1)]
                groups = np.array([-1.0 if one is None else one for one in read])
            numbers, labels = (part.double().cpu().numpy() for part in (outputs, targets))
            return torch.from_numpy(value(numbers, labels, groups))

        given: dict[str, Any] = {} if declared is None else {"declared": declared}
        return values(self._called, records, of_batch, **given, beside=group is not None, ignored=ignored, rows=rows)

    def losses(
        self, records: TorchRecords, loss: Callable[..., Any] | None, declared: int, *, rows: I64 | None = None
    ) -> Floats:
        each = per_record(functional.cross_entropy if loss is None else loss)
        check.refuse_mixed_scores(called(self._called, records.fields), each, records.example)

        def worst(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return each(outputs, targets).double().nan_to_num(nan=math.inf, posinf=math.inf, neginf=-math.inf)

        return values(self._called, records, worst, declared, each, rows=rows)

    @torch.no_grad()
    def targets(self, measure: str, records: TorchRecords) -> dict[str, Any]:
        inputs, targets = records.example
        device = next(self._called.parameters()).device
        made_up = torch.zeros((2, *inputs.shape[1:]), dtype=inputs.dtype, device=device)
        try:
            outputs = called(self._called, records.fields)(made_up)
        except Exception as error:
            raise check.not_callable(error, inputs) from error
        return {
            "shape": tuple(targets.shape[1:]),
            "kind": str(targets.dtype).removeprefix("torch."),
            "outputs": tuple(outputs.shape[1:]),
            "regression": self._loss in REGRESSION or type(self._loss) in REGRESSION,
            "float_labels": is_single(outputs),
        }


@as_trained.register
def _(model: nn.Module) -> TorchModel:
    return TorchModel(model)
