"""Which models can be trained: what is refused, and what is tested on made-up records before private ones are read.

A model is refused if a layer is known to mix records, or if the graph of one record has another gradient than the
model. :func:`same_places` tests whether a record contributes the same bits in any place and next to any other records.
The tensors that a model holds and does not train are shared by all runs.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.batchnorm import _BatchNorm

from dphypo.errors import UnsupportedModelError
from dphypo.torch.engine import batch_rows, factors, layers
from dphypo.torch.engine.batch_rows import Batch, Loss
from dphypo.torch.engine.capture import RecordGraph, refuse_average, without_checkpoints
from dphypo.torch.engine.clipped_sum import Layout, Shape, Sums, trained
from dphypo.torch.engine.device import products

if TYPE_CHECKING:
    from dphypo.torch.engine.program import Pass, Program

_TOLERANCE = 1e-3  # relative; rounding gives about 1e-6, a wrong gradient about 1
_WEIGHTS = (1.0, -0.6, 0.8, 1.3, -1.1)  # of made-up records: if a model mixes them, a weighted sum shows it
_TRIED = len(_WEIGHTS)
_MIXES = (
    "a record's gradient depends on the other records of its batch, or on its position: a layer or the loss mixes "
    "records (batch statistics, attention or a softmax across the batch dimension, outputs and targets of different "
    "shapes). Make each record's output and loss a function of that record only"
)


def refuse_layers(model: nn.Module) -> None:
    """Refuse layers and parameters that are known not to work."""
    wanted = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if not wanted:
        raise UnsupportedModelError("the model has no trainable parameter, so there is nothing to train")
    device, dtype = next((value.device.type, value.dtype) for value in wanted.values())
    if device not in ("cpu", "cuda"):
        remedy = 'which norms and sums need: train on device="cpu" or a CUDA device'
        raise UnsupportedModelError(f"the model is on {device!r}, which may lack double precision, {remedy}")
    for name, value in wanted.items():
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
        if getattr(layer, "max_norm", None) is not None:
            raise UnsupportedModelError(
                f"{called} is {type(layer).__name__} with max_norm: its forward pass renormalises the rows that occur "
                f"in the batch, without noise. Remove max_norm"
            )


def _is_batch_norm(layer: nn.Module) -> bool:
    return isinstance(layer, _BatchNorm) and not isinstance(layer, nn.modules.instancenorm._InstanceNorm)


def in_training(model: nn.Module) -> nn.Module:
    """Set a model to training mode, except for frozen batch normalisations in evaluation mode."""
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


def code_of(model: nn.Module) -> nn.Module:
    """A copy in training mode in which every tensor is a parameter or a buffer, because runs may differ in them."""
    code = in_training(copy.deepcopy(model))
    for layer, _, name in _attributes(code):
        value = vars(layer).pop(name)
        layer.register_buffer(name, value, persistent=False)
    return code


def tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters and buffers of :func:`code_of` a model, by their names there."""
    plain = {name: vars(layer)[attribute] for layer, name, attribute in _attributes(model)}
    return {**dict(model.named_parameters()), **dict(model.named_buffers()), **plain}


def frozen_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """The frozen parameters and the buffers of :func:`code_of` a model, by their names there."""
    wanted = {id(value) for value in trained(model)}
    return {name: value for name, value in tensors_of(model).items() if id(value) not in wanted}


def copied(model: nn.Module, *others: nn.Module) -> nn.Module:
    """A copy of a model that shares untrained tensors with other models, if name, type and bits are equal.

    So runs hold frozen weights once. Training does not write to them; other users of the copy may.
    """
    memo: dict[int, Any] = {}
    for value, one in _equal(model, others):
        parameter = isinstance(value, nn.Parameter)
        memo[id(value)] = nn.Parameter(one, requires_grad=False) if parameter else one
    return copy.deepcopy(model, memo)


def share_frozen(model: nn.Module, *others: nn.Module) -> None:
    """Replace a model's untrained tensors by equal ones of other models, as in :func:`copied`."""
    for value, one in _equal(model, others):
        value.data = one


def _equal(model: nn.Module, others: Sequence[nn.Module]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    known = [frozen_of(other) for other in others]
    for name, value in frozen_of(model).items():
        same = (some[name].detach() for some in known if name in some and _same_bits(value, some[name]))
        yield from ((value, one) for one in itertools.islice(same, 1))


def _same_bits(this: torch.Tensor, that: torch.Tensor) -> bool:
    def about(one: torch.Tensor) -> tuple[Any, ...]:
        return type(one), one.dtype, one.device, one.layout, one.shape, one.stride()

    if this.layout is not torch.strided or about(this) != about(that) or nn.parameter.is_lazy(this):
        return False
    if this.data_ptr() == that.data_ptr():
        return True
    one, other = (value.detach().contiguous().flatten().view(torch.uint8) for value in (this, that))
    return torch.equal(one, other)


def given_by(model: nn.Module, record: RecordGraph) -> list[torch.Tensor]:
    """The untrained tensors of a model that a graph uses: plain tensors, with the captured shapes and types.

    A subclass may run its own Python code, which would see whole batches. Indices were clamped to the captured sizes.
    """
    held = tensors_of(model)
    nodes = record.graph.graph.find_nodes(op="placeholder")[len(record.trained) :]
    with torch._C.DisableTorchFunctionSubclass():
        found = [held[name].detach().as_subclass(torch.Tensor) for name in record.given if name in held]
    shown = [(node.meta["val"].shape, node.meta["val"].dtype) for node in nodes[: len(record.given)]]
    if [(one.shape, one.dtype) for one in found] != shown:
        raise UnsupportedModelError(
            "the model has buffers or frozen weights of other names, shapes or types than the one that was captured: "
            "let its factory build one architecture from its arguments"
        )
    return found


def _attributes(model: nn.Module) -> list[tuple[nn.Module, str, str]]:
    """Tensors that are neither parameters nor buffers: their layers, their names as buffers, and as attributes."""
    return [
        (layer, f"{inside}.{name}" if inside else name, name)
        for inside, layer in model.named_modules()
        for name, value in vars(layer).items()
        if isinstance(value, torch.Tensor)
    ]


def refuse_other_gradients(
    model: nn.Module,
    loss: Loss,
    example: Batch,
    record: RecordGraph,
    parts: Sequence[factors.Part],
    *,
    changed: bool = False,
) -> None:
    """Refuse a model whose captured gradients differ from automatic differentiation, on a few made-up records.

    The captured gradients are added up as in training, and are private whatever the model does. A difference shows that
    they are not what the model's code means (it mixes records, is another function for larger batches, or draws random
    numbers that are not PyTorch's), or that their parts were found wrongly. Models that draw random numbers are
    compared in evaluation mode; augmentation and half precision (``changed``) are left out of the comparison.
    """
    probe = copy.deepcopy(model)
    layout = Layout.of(probe)
    if changed:
        record, parts = captured(probe, loss, example)
    if record.uniforms:
        record, parts = captured(probe.eval(), loss, example)
        if record.uniforms:
            return
    inputs, targets = synthetic_records(example, _TRIED)
    before = {name: value.clone() for name, value in probe.named_buffers()}
    with warnings.catch_warnings(action="ignore"), _in_full_precision(), torch.random.fork_rng():
        try:
            with without_checkpoints():
                wanted = _reference(probe, loss, inputs.clone(), targets.clone())
        except UnsupportedModelError:
            raise
        except Exception as error:  # it works for one record
            raise UnsupportedModelError(
                f"the model fails on {_TRIED} made-up records at once, after it was captured for one "
                f"({type(error).__name__}: {error}): keep nothing of a pass, and let model(inputs) and "
                f"loss(model(inputs), targets) work for a batch of any size, with the batch in the first dimension"
            ) from error
        changed_state = [
            name
            for name, value in probe.named_buffers()
            if not torch.equal(value.nan_to_num(), before[name].nan_to_num())
        ]
        if changed_state:
            raise UnsupportedModelError(
                f"{changed_state[0]!r} of the model changes when records go through it, which no noise covers, and "
                f"training would leave it as it is. Use layers without running statistics (GroupNorm, LayerNorm), and "
                f"keep nothing of a batch"
            )
        values = {**dict(probe.named_parameters()), **before}
        given = [values[name].detach() for name in (*record.trained, *record.given)]
        each = [record.graph(*given, *one)[:-1] for one in zip(inputs, targets, strict=True)]
        outputs = [torch.stack(some)[None] for some in zip(*each, strict=True)]
        sums = Sums(torch.empty(1, layout.width, device=inputs.device))
        for part in factors.Gradients(layout, parts)(outputs, Shape(1, _TRIED)):
            part.add(sums.rows.new_tensor([_WEIGHTS]), sums)
        found = _as_row(layout.each(sums.rows[0]))
        if not (found - wanted).norm() <= _TOLERANCE * wanted.norm() + 1e-12:
            raise UnsupportedModelError(_shapes_differ(probe, inputs, targets) or _MIXES)


@torch.no_grad()
def _shapes_differ(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> str:
    """The error if a loss such as the squared error compares every output with every target; empty if it does not."""
    found = model(inputs)
    if not isinstance(found, torch.Tensor):
        return ""
    output, target = tuple(found.shape[1:]), tuple(targets.shape[1:])
    if output == target or not targets.is_floating_point() or math.prod(output) != math.prod(target):
        return ""
    remedy = "y[:, None]" if output == (1,) else "the targets in the shape of the outputs"
    return (
        f"the model's output for a record has shape {output} and its target has shape {target}, so the loss mixes "
        f"records, every output with every target of a batch: give {remedy}"
    )


def captured(
    model: nn.Module, loss: Loss, example: Batch, **options: Any
) -> tuple[RecordGraph, tuple[factors.Part, ...]]:
    """The graph of one record, and the parts of the gradient that its outputs make."""
    record = RecordGraph.of(model, loss, example, **options)
    parts = factors.split(record.graph, Layout.of(model))
    layers.lower(record.graph)
    return record, parts


@torch.enable_grad()
def _reference(model: nn.Module, loss: Loss, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The gradient of a weighted sum of losses, by automatic differentiation of a whole batch."""
    losses = loss(model(inputs), targets)
    refuse_average(losses, len(inputs))
    found = _as_row(torch.autograd.grad(losses, trained(model), losses.new_tensor(_WEIGHTS)))
    if isinstance(found, FakeTensor):
        raise TypeError("a tensor that an earlier pass left behind")
    return found


def _as_row(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.flatten().double() for part in parts])


@contextlib.contextmanager
def _in_full_precision() -> Iterator[None]:
    """A block with products in float32, without cuDNN: TF32 and half precision would look like another gradient."""
    before, enabled = [one.fp32_precision for one in products()], torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        for one in products():
            one.fp32_precision = "ieee"
        yield
    finally:
        torch.backends.cudnn.enabled = enabled
        for one, precision in zip(products(), before, strict=True):
            one.fp32_precision = precision


def random_weights(layout: Layout, like: torch.Tensor, seed: int) -> torch.Tensor:
    """Random weights for as many runs as ``like`` has rows. Vectors are in [½, 1½), as scales are."""
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
    """Whether records contribute the same bits in other places and next to other records, however strange."""
    return same_everywhere(partial(_bits, program.bound(rows, shape)), program.example, shape)


def same_everywhere(
    bits: Callable[[Sequence[torch.Tensor], torch.Tensor], Sequence[torch.Tensor]], example: Batch, shape: Shape
) -> bool:
    """Whether ``bits(batch, numbers)``, [runs, records, ...], depend neither on a record's place nor on other records.

    A few records fill all places, each several of them. Then they are in other places, next to strange records.
    """
    few, places = shape.records // 4 | 1, torch.arange(shape.records, device=example[0].device)
    here, there, kept = places % few, (places + 1) % few, (places - shape.records) % 2 == 1  # few is odd
    by_run = [part.reshape(shape.runs, few, *part.shape[1:]) for part in synthetic_records(example, shape.runs * few)]
    repeated, moved = ([part[:, order] for part in by_run] for order in (here, there))
    for part, strange in zip(moved, _beside(example, shape), strict=True):
        part[:, ~kept] = strange.reshape(part.shape)[:, ~kept]
    wanted, found = (
        bits([part.flatten(0, 1) for part in batch], numbers) for batch, numbers in ((repeated, here), (moved, there))
    )
    return all(
        torch.equal(one, one[:, here]) and torch.equal(one[:, there][:, kept], two[:, kept])
        for one, two in zip(wanted, found, strict=True)
    )


def _beside(example: Batch, shape: Shape) -> list[torch.Tensor]:
    """Records of a piece: two huge ones, two of NaN, and so on; integers, and targets of huge records, stay."""
    inputs, targets = synthetic_records(example, shape.runs * shape.records)
    huge = torch.arange(len(inputs), device=inputs.device) % 4 < 2
    chosen = ((inputs, extreme(inputs, large=True)), (targets, targets))
    return [
        torch.where(huge.view(-1, *[1] * (part.dim() - 1)), large, extreme(part, large=False)) for part, large in chosen
    ]


def extreme(values: torch.Tensor, *, large: bool) -> torch.Tensor:
    """NaN in place of all numbers, or numbers scaled by 10 to 1e30; integers stay."""
    if not values.is_floating_point():
        return values
    sizes = torch.logspace(1, 30, values[0].numel()).to(values).view_as(values[0])
    return values * (sizes if large else torch.nan)


@torch.no_grad()
def same_alone(program: Program, rows: torch.Tensor, shape: Shape) -> bool:
    """Whether each run of a group contributes the same bits as alone."""
    numbers, one = torch.arange(shape.records, device=rows.device), dataclasses.replace(shape, runs=1)
    batch = synthetic_records(program.example, shape.runs * shape.records)
    for part, strange in zip(batch, _beside(program.example, shape), strict=True):
        part[::2] = strange[::2]
    among = _bits(program.bound(rows, shape), batch, numbers)
    for run, (row, *own) in enumerate(zip(*(part.chunk(shape.runs) for part in (rows, *batch)), strict=True)):
        alone = _bits(program.bound(row, one), own, numbers, run)
        if not all(torch.equal(this[run], that[0]) for this, that in zip(among, alone, strict=True)):
            return False
    return True


def _bits(bound: Pass, batch: Sequence[torch.Tensor], numbers: torch.Tensor, run: int = 0) -> list[torch.Tensor]:
    """Everything that contributions are computed from, as integers; ``run`` is the number of the first run."""
    shape = bound.shape
    runs = torch.arange(run, run + shape.runs, device=numbers.device)[:, None]
    keys = batch_rows.keys_of_rows(runs, 1, numbers.expand(shape.runs, -1), shape.views)
    inputs, targets = (part.clone() for part in batch)  # a run alone begins at an allocation
    parts, _ = bound.parts(inputs, targets, keys)
    found = [value for part in parts for value in (part.square, part.spread, *part.factors) if value is not None]
    # Copies, because the next call may overwrite them.
    return [whole(value.clone(memory_format=torch.contiguous_format)) for value in found]


def whole(values: torch.Tensor) -> torch.Tensor:
    """The bits of numbers as integers, where NaN equals itself."""
    words = {8: torch.int64, 4: torch.int32, 2: torch.int16}
    return values.contiguous().view(words[values.element_size()]) if values.is_floating_point() else values
