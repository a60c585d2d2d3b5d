"""Which models can be trained, and how they are tried out: on made-up records, before any private one is looked at."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from dphypo.dpsgd import watch
from dphypo.dpsgd.batches import Batch
from dphypo.dpsgd.book import Book, Masks, UnknownUse
from dphypo.dpsgd.layers import HANDLERS
from dphypo.dpsgd.stack import Layout, Shape, Sums
from dphypo.dpsgd.step import combined
from dphypo.errors import UnsupportedModelError

if TYPE_CHECKING:
    from dphypo.dpsgd.program import Program

Found = TypeVar("Found")
_TOLERANCE = 1e-3  # relative; rounding gives about 1e-6, a wrong gradient about 1
_TRIED = 4
_MIXES = (
    "a record's gradient depends on the other records of its batch, or on its position: a layer or the loss mixes "
    "records (batch statistics, attention or a softmax across the batch dimension, outputs and targets of different "
    "shapes). Make each record's output and loss a function of that record only"
)


def refuse_layers(model: nn.Module) -> None:
    """Refuse layers and parameters that are known not to work, by name."""
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if not trained:
        raise UnsupportedModelError("the model has no trainable parameter, so there is nothing to train")
    device, dtype = next((value.device.type, value.dtype) for value in trained.values())
    if device not in ("cpu", "cuda"):
        remedy = 'which norms and sums need: train on device="cpu" or a CUDA device'
        raise UnsupportedModelError(f"the model is on {device!r}, which may lack double precision, {remedy}")
    for name, value in trained.items():
        if nn.parameter.is_lazy(value):
            raise UnsupportedModelError(f"parameter {name!r} has no shape yet: give every layer its sizes")
        if value.dtype not in (torch.float32, torch.float64):
            remedy = 'Keep the parameters in float32 (model.float()), and use autocast="bfloat16" for the passes'
            raise UnsupportedModelError(f"parameter {name!r} is {value.dtype}, too imprecise for sums. {remedy}")
        if value.dtype != dtype:
            raise UnsupportedModelError(f"parameter {name!r} is {value.dtype}, others are {dtype}: use one dtype")
    for name, layer in model.named_modules():
        called = f"layer {name or 'the model itself'!r}"
        if type(layer).__name__ == "OptimizedModule" or getattr(layer, "_compiled_call_impl", None) is not None:
            remedy = "which hides how its parameters are used: give the module before compilation"
            raise UnsupportedModelError(f"{called} was compiled with torch.compile, {remedy}")
        frozen = not any(value.requires_grad for value in layer.parameters(recurse=False))
        if _is_batch_norm(layer) and (layer.training or not frozen or layer.running_mean is None):
            raise UnsupportedModelError(
                f"{called} is {type(layer).__name__}: batch normalisation makes each record's output depend on the "
                f"others in its batch, so noise on the gradient does not make it private. Replace it with GroupNorm or "
                f"LayerNorm; or, in a part that is not trained, freeze it and call eval() on it"
            )
        if isinstance(layer, nn.RNNBase) and not frozen:
            name = f"opacus.layers.DP{type(layer).__name__}"
            raise UnsupportedModelError(
                f"{called} is {type(layer).__name__}, which does not compute records separately: use {name}"
            )
        if getattr(layer, "max_norm", None) is not None:
            raise UnsupportedModelError(
                f"{called} is {type(layer).__name__} with max_norm: its forward pass renormalises the rows that occur "
                f"in the batch, without noise. Remove max_norm"
            )


def _is_batch_norm(layer: nn.Module) -> bool:
    return isinstance(layer, _BatchNorm) and not isinstance(layer, nn.modules.instancenorm._InstanceNorm)


def in_training(model: nn.Module) -> nn.Module:
    """Set a model to training, but for batch normalisations, which were found frozen and in evaluation."""
    fixed = [layer for layer in model.modules() if _is_batch_norm(layer) and not layer.training]
    model.train()
    for layer in fixed:
        layer.eval()
    return model


def synthetic_records(example: Batch, count: int) -> Batch:
    """Random records with the shape and type of an example: numbers for numbers, 0 and 1 for tokens and classes.

    Targets that are numbers lie in [0, 1), where every loss takes them. NaN in an example marks a whole number.
    """
    generator = torch.Generator().manual_seed(count)

    def like(part: torch.Tensor, draw: Callable[..., torch.Tensor]) -> torch.Tensor:
        shape = (count, *part.shape[1:])
        drawn = draw(shape, generator=generator, dtype=part.dtype) if part.dtype.is_floating_point else None
        if drawn is not None and not bool(part.isnan().any()):
            return drawn.to(part.device)
        whole = torch.randint(0, 2, shape, generator=generator).to(part.device, part.dtype)
        return whole if drawn is None else torch.where(part.isnan(), whole, drawn.to(part.device))

    return like(example[0], torch.randn), like(example[1], torch.rand)


@torch.no_grad()
def refuse_wrong(program: Program, batch: Batch) -> None:
    """Compare the gradients of a few records with plain automatic differentiation, and beside other records."""
    program = dataclasses.replace(program, autocast=None, views=1)
    count, device = len(batch[0]), batch[0].device
    rows, keys = program.layout.stacked([program.model], device), torch.arange(count, device=device)
    order = keys.roll(_TRIED)
    other = [part.clone() for part in synthetic_records(program.example, count)]
    for part, old in zip(other, batch, strict=True):
        part.copy_(part.flip(0))
        part[_TRIED] = old[0]  # the first record, at another place
    with warnings.catch_warnings(action="ignore"), _without_cudnn():
        wanted = _tried(program, lambda: _reference(program, batch, Masks(keys), range(_TRIED)))
        beside = _tried(program, lambda: _reference(program, (other[0], other[1]), Masks(order), [_TRIED]))
        if not _close(beside[0], wanted[0]):
            raise UnsupportedModelError(_MIXES)
        for record, right in enumerate(wanted):
            norm, found = _tried(program, partial(_alone, program, rows, batch, Masks(keys), record))
            if not _close(found, right) or not bool(norm >= right.norm() * (1 - _TOLERANCE)):
                if program.axes is not None:
                    raise UnknownUse("the formulas give another gradient")
                raise UnsupportedModelError(_MIXES)


@contextlib.contextmanager
def _without_cudnn() -> Iterator[None]:
    """Plain kernels: cuDNN's convolutions round to TF32, which would look like another gradient."""
    before, torch.backends.cudnn.enabled = torch.backends.cudnn.enabled, False
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before


def _close(this: torch.Tensor, that: torch.Tensor) -> bool:
    return bool((this - that).norm() <= _TOLERANCE * that.norm() + 1e-12)


def _alone(
    program: Program, rows: torch.Tensor, batch: Batch, masks: Masks, record: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm's bound and the gradient of one record, as the engine finds them."""
    parts, _ = program.parts(rows, program.book(rows, Shape(1, len(batch[0]))), *batch, masks)
    norms, sums = combined(parts)[0], Sums(rows)
    weights = torch.zeros_like(norms)
    weights[0, record] = 1
    for part in parts:
        part.add(weights, sums)
    return norms[0, record], sums.rows


def random_weights(layout: Layout, like: torch.Tensor, seed: int) -> torch.Tensor:
    """Weights for as many runs as some rows hold. Vectors lie in [½, 1½), where a scale may be."""
    generator, rows = torch.Generator().manual_seed(seed), torch.zeros(like.shape, dtype=layout.dtype)
    for place, shape in enumerate(layout.shapes):
        sizes = (len(like), *shape)
        if len(shape) > 1:
            drawn = torch.randn(sizes, generator=generator) / math.sqrt(math.prod(shape[1:]))
        else:
            drawn = torch.rand(sizes, generator=generator) + 0.5
        layout.values(rows, place).copy_(drawn)
    return rows.to(like.device)


@torch.no_grad()
def same_places(program: Program, rows: torch.Tensor, shape: Shape) -> bool:
    """Whether records contribute the same, bit by bit, in other places and beside other records, however strange."""
    program = dataclasses.replace(program, model=copy.deepcopy(program.model))  # strange records leave nothing in it
    records, book = torch.arange(shape.records, device=rows.device), program.book(rows, shape)
    first = synthetic_records(program.example, shape.runs * shape.records)
    other = synthetic_records(program.example, shape.runs * shape.records + 1)
    wanted = _bits(program, rows, book, first, records)
    for distance, large in ((shape.records // 3 + 1, False), (1, False), (1, True)):  # far, and by an odd number
        moved = records.roll(distance)
        kept = (records % 2 == 0)[moved]

        def beside(*changes: Callable[[torch.Tensor], torch.Tensor], moved: torch.Tensor = moved) -> list[torch.Tensor]:
            second = []
            for part, strange, change in zip(first, other, changes, strict=True):
                turned = part.reshape(shape.runs, -1, *part.shape[1:])[:, moved].clone()
                turned[:, ~kept] = change(strange[:-1].reshape(turned.shape))[:, ~kept]  # noqa: B023
                second.append(turned.flatten(0, 1))
            return _bits(program, rows, book, second, moved)

        strange = partial(extreme, large=large)
        try:
            found = beside(strange, _ordinary if large else strange)
        except Exception:
            if large:  # a model may refuse large numbers: then the records go one by one
                return program.alone
            found = beside(_ordinary, _ordinary)  # records that raise are left out of a batch
        pairs = zip(wanted, found, strict=True)
        if not all(torch.equal(one[:, moved][:, kept], two[:, kept]) for one, two in pairs):
            return False
    return True


def _ordinary(values: torch.Tensor) -> torch.Tensor:
    return values


def extreme(values: torch.Tensor, *, large: bool) -> torch.Tensor:
    """Numbers as NaN, or with sizes from 10 to 1e30: what decides by them shows. Whole numbers stay."""
    if not values.is_floating_point():
        return values
    sizes = torch.logspace(1, 30, values[0].numel()).to(values).view_as(values[0])
    return values * (sizes if large else torch.nan)


@torch.no_grad()
def same_alone(program: Program, rows: torch.Tensor, shape: Shape) -> bool:
    """Whether each run of a group contributes the same, bit by bit, as if it were alone."""
    batch = synthetic_records(program.example, shape.runs * shape.records)
    numbers, one = torch.arange(shape.records, device=rows.device), dataclasses.replace(shape, runs=1)
    among = _bits(program, rows, program.book(rows, shape), batch, numbers)
    for run, (row, *own) in enumerate(zip(*(part.chunk(shape.runs) for part in (rows, *batch)), strict=True)):
        alone = _bits(program, row, program.book(row, one), own, numbers, run)
        if not all(torch.equal(this[run], that[0]) for this, that in zip(among, alone, strict=True)):
            return False
    return True


def _bits(
    program: Program, rows: torch.Tensor, book: Book, batch: Sequence[torch.Tensor], numbers: torch.Tensor, run: int = 0
) -> list[torch.Tensor]:
    """All that contributions are made of, as whole numbers (NaN equals itself), of runs from a first one on."""
    keys = torch.arange(run, run + len(rows), device=rows.device)[:, None]
    masks = Masks.of(keys, 1, numbers.expand(len(rows), -1), book.shape.views)
    inputs, targets = (part.clone() for part in batch)  # a pass may write to them; alone, they begin at an allocation
    parts, _ = program.parts(rows, book, inputs, targets, masks)
    words = {torch.float64: torch.int64, torch.float32: torch.int32}
    found = [value for part in parts for value in (part.square, part.spread, *part.factors) if value is not None]
    values = [value.clone(memory_format=torch.contiguous_format) for value in found]  # a pass may use buffers again
    return [value.view(words[value.dtype]) if value.is_floating_point() else value for value in values]


def _tried(program: Program, use: Callable[[], Found]) -> Found:
    """What a trial gives; an error that says what was tried if it raises."""
    try:
        return use()
    except UnsupportedModelError:
        raise
    except UnknownUse as error:
        if program.axes is not None:
            raise
        raise UnsupportedModelError(
            f"the model cannot be differentiated record by record: {error}. Dropout masks must be drawn for each "
            f"record, with the batch in the first dimension, not for a table that all records share"
        ) from error
    except Exception as error:
        if program.axes is not None:
            raise UnknownUse("the formulas fail") from error
        raise UnsupportedModelError(
            f"the model cannot be differentiated record by record on made-up records with the shape and type of the "
            f"data ({type(error).__name__}: {error}): check that model(inputs) and loss(model(inputs), targets) work "
            f"for a batch of any size, with the batch in the first dimension, and that no layer writes to its own "
            f"state; use opacus.layers.DPLSTM, DPGRU and DPRNN as recurrent layers"
        ) from error


@torch.enable_grad()
def _reference(program: Program, batch: Batch, masks: Masks, records: Iterable[int]) -> list[torch.Tensor]:
    """The gradient of some records' losses by plain automatic differentiation, each as a row."""
    inputs, targets = batch
    layout, model = program.layout, program.model
    rows = layout.stacked([model], inputs.device)
    values = [value.clone().requires_grad_() for value in layout.each(rows[0])]
    inputs = program.augmented(inputs, masks)
    book = Book(layout, rows, Shape(1, len(inputs)), (), HANDLERS, None)
    book.begin(masks)
    with book:
        losses = program.loss(functional_call(model, dict(zip(layout.names, values, strict=True)), (inputs,)), targets)
    refuse_average(losses, len(inputs))
    found = []
    for record in records:
        parts = torch.autograd.grad(losses[record], values, retain_graph=True, allow_unused=True)
        found.append(torch.zeros_like(rows, dtype=torch.float64))
        for name, into, part in zip(layout.names, layout.each(found[-1][0]), parts, strict=True):
            if part is None:
                raise UnsupportedModelError(
                    f"the trainable parameter {name!r} does not affect the output: remove it, or freeze "
                    f"it with requires_grad_(False)"
                )
            into.copy_(part)
    return found


def refuse_average(losses: torch.Tensor, count: int) -> None:
    """Refuse a loss that does not return one value per record."""
    if losses.shape != (count,):
        raise UnsupportedModelError(
            f"the loss returns values of shape {tuple(losses.shape)} for {count} records: return one value per record, "
            f"not an average over them"
        )


def looks_across(use: Callable[..., torch.Tensor], example: Batch, model: nn.Module, *, backward: bool = True) -> bool:
    """Whether a function of inputs and targets may look across the records of a batch.

    It is watched on as many made-up records as divide no size of the model or the example: a dimension that long holds
    the records.
    """
    tensors = (*example, *model.parameters(), *model.buffers())
    sizes = {size for tensor in tensors for size in tensor.shape if size}
    free = (count for count in itertools.count(31, 6) if all(size % count for size in sizes))
    kept = torch.random.fork_rng([example[0].device] if example[0].is_cuda else [])
    with kept, warnings.catch_warnings(action="ignore"):
        batches = (synthetic_records(example, count) for count in itertools.islice(free, 2))
        return any(watch.looks_across(use, *batch, backward=backward) for batch in batches)
