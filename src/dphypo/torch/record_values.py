"""One value per record: the losses that per-record gradients differentiate, and the terms that scores add up.

To the last bit, a record's term of a score depends only on that record and the model. The model in evaluation mode and
the loss are captured as a graph of one record (``engine/capture.py``), which is applied to batches of one size; the
last one is padded. Some matrix products round a row differently depending on its place in the batch. This is tested on
made-up records; if it happens, the graph is applied to each record separately.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional

from dphypo import _validate
from dphypo.errors import UnsupportedModelError
from dphypo.mechanisms.mechanism import or_none
from dphypo.torch import engine
from dphypo.torch.data import DatasetRecords, TorchRecords, as_records
from dphypo.torch.domain import Domain, is_single
from dphypo.torch.engine import batch_rows, synthetic_records
from dphypo.torch.engine.batch_rows import Batch, Loss
from dphypo.torch.engine.capture import RecordGraph, place_of, reads_values
from dphypo.torch.engine.clipped_sum import Layout, Shape, trained
from dphypo.torch.engine.device import device_of
from dphypo.torch.engine.flat_graph import FlatGraph, flatten
from dphypo.torch.engine.operators import check_kernels
from dphypo.torch.engine.program import precision
from dphypo.torch.engine.trainable import code_of, given_by, random_weights, same_everywhere, whole
from dphypo.torch.fields import Called, called, plain
from dphypo.training.persons import I64
from dphypo.training.poisson_draws import MULTIPLE
from dphypo.training.scores import Asked, Floats, Targets, TrainedModel, Value, as_trained


@dataclass(frozen=True, eq=False)
class PerRecord:
    """A loss that gives one value per record: a mean over the positions whose label is not ``ignored``."""

    unreduced: Callable[..., Any]
    ignored: int | None = None

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        result = self.unreduced(outputs, targets)
        if not isinstance(result, torch.Tensor) or result.dim() == 0 or len(result) != len(targets):
            raise TypeError(
                "the loss does not return one value per record: give one of PyTorch's losses, or a function "
                "loss(outputs, targets) that returns a tensor as long as the batch, not an average over it"
            )
        if result.dim() == 1:
            return result
        if self.ignored is None or result.shape != targets.shape:
            return result.flatten(1).mean(1)
        counts = (targets.long() != self.ignored).flatten(1)  # −100 as an unsigned byte would be 156
        return (result.flatten(1) * counts).sum(1) / counts.sum(1).clamp(min=1)


@functools.lru_cache(maxsize=64)
def per_record(loss: Callable[..., Any]) -> PerRecord:
    """A loss that gives one value per record, whatever reduction the given one has by default.

    PyTorch's own losses, functions and modules, are called with ``reduction="none"``. Any other function must return
    one value per record: an average over the batch depends on how many records are in it, which is private. Positions
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


def captured(model: nn.Module, loss: Loss, example: Batch, **options: Any) -> engine.Program:
    """The program of a model; an :class:`UnsupportedModelError` says what to change if it cannot be captured."""
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
        raise not_callable(cause, model, *example) from cause


def not_callable(
    error: Exception, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor | None = None
) -> UnsupportedModelError:
    """The error for a model, or a loss, that raises on a batch of records of the right shape."""
    fields = getattr(model, "fields", None)
    shapes = {"": inputs.shape[1:]} if fields is None else fields.shapes
    kinds = {"": inputs.dtype} if fields is None else fields.kinds
    each = (
        f"{name and f'{name!r} '}of shape {tuple(shape)} and type {str(kinds[name]).removeprefix('torch.')}"
        for name, shape in shapes.items()
    )
    remedy = _remedy(f"{type(error).__name__}: {error}", inputs, targets)
    return UnsupportedModelError(
        f"model fails on made-up records like those of data, each {', '.join(each)} "
        f"({type(error).__name__}: {error}{place_of(error)}). {remedy}"
    )


def _remedy(message: str, inputs: torch.Tensor, targets: torch.Tensor | None) -> str:
    """What to change, from the types, the shapes and the text of the error."""
    shape, whole = inputs.shape[1:], not inputs.is_floating_point()
    if inputs.dtype == torch.uint8:
        return "Convert pictures to fractions: x.astype('float32') / 255, or x.float() / 255 of a tensor"
    if message.startswith("IndexError") and "out of bounds" in message:
        return "The model has fewer outputs than there are classes: give it one output per class"
    if "dtype" in message and shape and (whole or inputs.dtype.itemsize < 4):
        return "Give the inputs in single precision: x.astype('float32'), or x.float() of a tensor"
    if "dtype" in message and any(name in message for name in ("Double", "Half", "BFloat16")):
        return "Let the model stay in single precision, without .double(), .half() or .bfloat16()"
    if targets is not None and targets.dtype == torch.bool:
        return "Targets are booleans: give y.astype('int64') for classes, or y.astype('float32') for BCEWithLogitsLoss"
    if targets is not None and targets.shape[1:] == () and "target size" in message.lower():
        return "The model has one output for a record: give targets of the same shape, y[:, None]"
    if "channels" in message and len(shape) == 3 and shape[-1] in (1, 3, 4):
        return "Pictures have their channels last: put them first, np.moveaxis(x, -1, 1), or x.movedim(-1, 1)"
    if "channels" in message and len(shape) == 2:
        return "Pictures have no channels: add one, x[:, None]"
    remedy = (
        "Change the model, or reshape the records: model(inputs) and loss(model(inputs), targets) must work for a "
        "batch of any size, with the batch in the first dimension"
    )
    if targets is not None and targets.shape[1:] == (1,):
        remedy += ". Targets are a column: where the loss takes one number a record, give y[:, 0]"
    elif targets is not None and targets.is_floating_point() and targets.dim() == 1:
        remedy += (
            ". Targets are fractions: where they are labels, give y.astype('int64'); for a regression, y[:, None] and "
            "loss=torch.nn.MSELoss()"
        )
    elif inputs.dim() == 1 and whole:
        remedy += ". If inputs and targets were swapped, give data=(inputs, targets)"
    return remedy


_CHUNK = 1024
_TRIED, _DRAWS = 5, 3  # made-up records; random weights at which places are compared


@torch.no_grad()
def outputs_of(model: nn.Module, records: TorchRecords) -> Any:
    """What the model returns for two made-up records."""
    example = records.example[0]
    made_up = torch.zeros((2, *example.shape[1:]), dtype=example.dtype, device=device_of(model))
    return called(model, records.fields)(made_up)


def classes_of(model: nn.Module, records: TorchRecords) -> int | None:
    """How many classes the model distinguishes; None if its output is not one tensor."""
    outputs = outputs_of(model, records)
    if not isinstance(outputs, torch.Tensor):
        return None
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

    With ``beside``, the value is a function of the inputs too. Records with the label ``ignored`` are left out.
    ``rows`` are the numbers of the requested records, by default all.
    """
    model = called(model, records.fields)
    device = device_of(model)
    read = records.reader(Domain.of(model, records.example, loss, labelled=loss is None, ignored=ignored))
    rows = np.arange(len(records)) if rows is None else rows
    inputs, targets = (part.to(device) for part in records.example)
    captured = _captured(model, loss, (inputs, targets), min(_CHUNK, MULTIPLE * math.ceil(declared / MULTIPLE)))
    size, given, found = captured.size, captured.given(model), np.full(len(rows), np.nan)
    for start in range(0, len(rows), size):
        inputs, targets, usable = read(rows[start : start + size])
        places = start + np.flatnonzero(usable.cpu().numpy())
        batch = inputs[usable].to(device), targets[usable].to(device)
        if not len(places):  # none of them could be read
            continue
        outputs, inside = captured(given, *batch)
        if loss is None:
            outputs = value(outputs, batch[1], *([batch[0]] if beside else []))
        else:  # NaN counts as the worst loss
            outputs = outputs.double().nan_to_num(nan=math.inf, posinf=math.inf, neginf=-math.inf)
        found[places] = torch.where(inside.to(outputs.device), outputs.double(), torch.nan).cpu().numpy()
    return found


_KEPT: ContextVar[tuple[dict[Any, Any], nn.Module | None] | None] = ContextVar("kept", default=None)


@contextlib.contextmanager
def keeping(graphs: dict[Any, Any], code: nn.Module | None = None) -> Iterator[None]:
    """A block in which captured graphs are kept, for models of one architecture that differ only in their tensors.

    ``code`` is the model that is captured, by default the first one.
    """
    token = _KEPT.set((graphs, code))
    try:
        yield
    finally:
        _KEPT.reset(token)


def _captured(model: nn.Module, loss: Loss | None, example: Batch, size: int) -> _Captured:
    kept, code = _KEPT.get() or ({}, None)
    key = (loss, size, *precision(), *((part.shape, part.dtype, part.device) for part in example))
    if key not in kept:
        kept[key] = _Captured(model if code is None else code, loss, example, size)
    found: _Captured = kept[key]
    check_kernels(found.graph)
    return found


class _Captured:
    """The outputs of a model, or the loss, as a graph over batches of one size."""

    @torch.no_grad()
    def __init__(self, model: nn.Module, loss: Loss | None, example: Batch, size: int) -> None:
        code = code_of(model).eval()
        self._record, self._example = RecordGraph.of_value(code, loss, example), example
        # The same numbers for all records: a value is a function of its record.
        key = torch.zeros((1, 1), dtype=torch.int64, device=example[0].device)
        self._random = [
            batch_rows.uniforms(key, call, math.prod(shape)).reshape(1, 1, *shape)
            for call, shape in enumerate(self._record.uniforms, 1)
        ]
        given = self.given(code)
        if loss is not None:
            self._refuse_mixing(code, loss, given)
        self.size, self._graph = size, self._of(size, given)
        if not all(self._same_places(some) for some in self._tried(code)):
            self.size, self._graph = 1, self._of(1, given)

    @property
    def graph(self) -> fx.GraphModule:
        """The operators that are applied to a batch."""
        return self._graph.graph

    def given(self, model: nn.Module) -> list[torch.Tensor]:
        """The tensors of a model that the graph uses."""
        return given_by(model, self._record)

    def _tried(self, code: nn.Module) -> Iterator[list[torch.Tensor]]:
        """The same tensors with random weights: initial ones may be zeros, for which nothing is rounded."""
        if not trained(code):
            yield self.given(code)
            return
        layout, probe = Layout.of(code), copy.deepcopy(code)
        like = torch.empty((1, layout.width), device=self._example[0].device)
        for seed in range(_DRAWS):
            layout.write(random_weights(layout, like, seed)[0], probe)
            yield self.given(probe)

    def _of(self, size: int, given: list[torch.Tensor]) -> FlatGraph:
        one = [*(part[0] for part in self._example), *(part[0, 0] for part in self._random)]
        return flatten(self._record.graph, [], given, one, 1, size)

    @torch.no_grad()
    def __call__(
        self, given: list[torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The outputs of at most ``size`` records, and which of them are in the domain of the graph."""
        count = len(inputs)
        filled = torch.arange(self.size, device=inputs.device).clamp(max=count - 1)  # the last record is repeated
        rows = [part[filled][None] for part in (inputs, targets)]
        rows += [part.expand(1, self.size, *part.shape[2:]) for part in self._random]
        outputs, outside = self._graph.bind(*given)(*rows)
        return outputs[0, :count], ~outside[0, :count]

    def _refuse_mixing(self, model: nn.Module, loss: Loss, given: list[torch.Tensor]) -> None:
        """Compare the graph of one record with the model on several at once: a difference is an error."""
        if self._random:
            return
        inputs, targets = synthetic_records(self._example, _TRIED)
        try:
            wanted = loss(model(inputs.clone()), targets.clone())
            readable = not isinstance(wanted, FakeTensor)
        except Exception:
            readable = False
        if not readable:
            raise UnsupportedModelError(
                f"the loss fails on {_TRIED} made-up records at once, after it was captured for one: keep no state "
                "between passes, and let it work for a batch of any size, with the batch in the first dimension"
            )
        self.size, self._graph = _TRIED, self._of(_TRIED, given)
        found, usable = self(given, inputs, targets)
        if wanted.shape != (_TRIED,) or not torch.allclose(
            found[usable].nan_to_num(), wanted[usable].nan_to_num(), rtol=1e-3, atol=1e-5
        ):
            raise UnsupportedModelError(
                "a record's loss depends on its place in the batch, or on how many records are in it, and so on the "
                "other records: do not divide by the batch size, and use the first dimension for the records alone"
            )

    def _same_places(self, given: list[torch.Tensor]) -> bool:
        """Whether a record's value depends on that record alone, bit by bit."""
        return same_everywhere(
            lambda batch, _: [whole(self(given, *batch)[0])[None]], self._example, Shape(1, self.size)
        )


_REGRESSION = (
    *(functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss, functional.huber_loss),
    *(nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.GaussianNLLLoss, nn.PoissonNLLLoss),
)


def is_regression(loss: object) -> bool:
    """Whether a loss is one of PyTorch's for regression."""
    return loss in _REGRESSION or type(loss) in _REGRESSION


class TorchModel(TrainedModel):
    """A PyTorch model as scores use it; ``loss`` is that of its training, if known."""

    def __init__(self, model: nn.Module, loss: Any = None) -> None:
        self._called, self.model, self._loss = model, plain(model), loss

    @classmethod
    def records(cls, data: Any, example: Any = None, *, public: bool = False, person: Any = None) -> TorchRecords:
        return as_records(data, example, public=public, person=person)

    @classmethod
    def reads_once(cls, records: Any) -> bool:
        """Whether they are a data set, whose records are read twice."""
        return isinstance(records, DatasetRecords)

    def classes(self, records: TorchRecords) -> int | None:
        return classes_of(self._called, records)

    def labelled(self, records: TorchRecords, value: Value, asked: Asked) -> Floats:
        fields = self._called.fields if isinstance(self._called, Called) else records.fields

        def group_of(row: torch.Tensor) -> float:
            assert asked.group is not None
            found = torch.as_tensor(asked.group(row if fields is None else fields.unpack(row)))
            return float(found.reshape(()).double())

        def of_batch(outputs: torch.Tensor, targets: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
            groups = None
            for some in inputs:  # each record by itself: its group must not depend on the others
                read = [or_none(functools.partial(group_of, row)) for row in some.unsqueeze(1)]
                groups = np.array([-1.0 if one is None else one for one in read])
            numbers, labels = (part.double().cpu().numpy() for part in (outputs, targets))
            return torch.from_numpy(value(numbers, labels, groups))

        more: dict[str, Any] = {"beside": asked.group is not None, "ignored": asked.ignored, "rows": asked.rows}
        return values(self._called, records, of_batch, asked.declared or _CHUNK, **more)

    def losses(self, records: TorchRecords, loss: Callable[..., Any] | None, asked: Asked) -> Floats:
        each = per_record(functional.cross_entropy if loss is None else loss)
        return values(self._called, records, each, asked.declared or _CHUNK, each, rows=asked.rows)

    def refuse_loss(self, loss: Callable[..., Any] | None, records: TorchRecords) -> None:
        entropy = loss in (None, functional.cross_entropy) or isinstance(loss, nn.CrossEntropyLoss)
        targets = records.example[1]
        if entropy and targets.is_floating_point() and targets.shape[1:] == (1,):
            remedy = "of a single output it is always 0: for a regression give loss=torch.nn.MSELoss()"
            raise _validate.fail("loss", "cross_entropy", remedy)

    def targets(self, measure: str, records: TorchRecords) -> Targets:
        inputs, targets = records.example
        try:
            outputs = outputs_of(self._called, records)
        except Exception as error:
            raise not_callable(error, called(self._called, records.fields), inputs) from error
        if not isinstance(outputs, torch.Tensor):
            raise UnsupportedModelError(
                f"the model returns a {type(outputs).__name__}: let it return one tensor, which the loss compares "
                "with the targets"
            )
        kind = str(targets.dtype).removeprefix("torch.")
        regression = is_regression(self._loss)
        return Targets(tuple(targets.shape[1:]), kind, tuple(outputs.shape[1:]), regression, is_single(outputs))


@as_trained.register
def _(model: nn.Module) -> TorchModel:
    return TorchModel(model)
