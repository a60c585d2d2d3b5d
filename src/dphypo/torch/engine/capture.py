"""Captures one record's gradient as a graph of PyTorch's operators, which is trained instead of the model's Python.

The model, the loss and the augmentation are traced once, for a batch of one record, on fake tensors: shapes and types
without values. Code that depends on values cannot be traced, and nothing else of the Python remains: no state, no hook,
no other record. Automatic differentiation is traced too, so custom derivatives and hooks become operators of the graph.
The graph is then made functional, and ``rewrites.py`` makes it total (no record can raise an exception) and
deterministic (random numbers are inputs).
"""

from __future__ import annotations

import contextlib
import copy
import linecache
import operator
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.utils.checkpoint
from torch import fx, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.func import functional_call, functionalize
from torch.fx._lazy_graph_module import _LazyGraphModule, _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from dphypo.errors import UnsupportedModelError
from dphypo.torch.engine import operators, rewrites
from dphypo.torch.engine.batch_rows import Batch, Loss
from dphypo.torch.engine.device import padded_attention
from dphypo.torch.engine.operators import CPU, insert

A = torch.ops.aten
Augment = Callable[[torch.Tensor, Callable[[int], torch.Tensor]], torch.Tensor]
_SAME = {A.detach.default, A.alias.default, A.clone.default, A.lift_fresh_copy.default}
_SAME |= {A.lift_fresh.default, A._to_copy.default}
_CONSTANT = 2**20  # at most this many numbers of a constant are computed ahead
_HERE = {str(Path(torch.__file__).parent), str(Path(__file__).parent.parent), contextlib.__file__}


@dataclass(frozen=True, eq=False, repr=False)
class RecordGraph:
    """The gradient of one record's loss.

    Args:
        graph: a function of the trained parameters, the model's other tensors, a record's inputs and target, and random
            numbers. It returns the gradients, and whether the record is outside the domain.
        trained, given: the names of the trained parameters; those of frozen parameters and buffers.
        uniforms: the shapes of the random numbers, which are in [0, 1).
        constants: tensors that the model's code uses and that are neither parameters nor buffers.
    """

    graph: fx.GraphModule
    trained: tuple[str, ...]
    given: tuple[str, ...]
    uniforms: tuple[tuple[int, ...], ...]
    constants: dict[str, torch.Tensor]

    @classmethod
    def of(
        cls,
        model: nn.Module,
        loss: Loss,
        example: Batch,
        *,
        autocast: torch.dtype | None = None,
        augment: Augment | None = None,
    ) -> RecordGraph:
        """Trace a model; an :class:`UnsupportedModelError` names the line that cannot be traced."""
        model = copy.deepcopy(model)  # a pass may leave fake tensors in it
        trained = [name for name, value in model.named_parameters() if value.requires_grad]
        given = [name for name, value in model.named_parameters() if not value.requires_grad]
        given += [name for name, _ in model.named_buffers()]

        def gradient(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            inputs, target = (part[None].clone() for part in tensors[-2:])  # a pass may write to them
            wanted = [value.detach().requires_grad_() for value in tensors[: len(trained)]]
            names = dict(zip((*trained, *given), (*wanted, *tensors[len(trained) : -2]), strict=True))
            with torch.enable_grad():
                if augment is not None:
                    inputs = augment(inputs, lambda each: torch.rand(1, each, device=inputs.device))
                with contextlib.nullcontext() if autocast is None else torch.autocast("cpu", autocast):
                    losses = loss(functional_call(model, names, (inputs,)), target)
                refuse_average(losses, 1)
                start = torch.ones(1, dtype=losses.dtype, device=losses.device)
                found = torch.autograd.grad(losses, wanted, start, allow_unused=True)
            if missing := [name for name, one in zip(trained, found, strict=True) if one is None]:
                raise UnsupportedModelError(
                    f"the trainable parameter {missing[0]!r} does not affect the output: remove it, or freeze it with "
                    f"requires_grad_(False)"
                )
            return tuple(found)

        return cls._traced(gradient, model, trained, given, example)

    @classmethod
    def of_value(cls, model: nn.Module, value: Callable[..., torch.Tensor] | None, example: Batch) -> RecordGraph:
        """The model's outputs for one record, or ``value(outputs, targets)``, without a gradient."""
        model = copy.deepcopy(model)
        names = [name for name, _ in (*model.named_parameters(), *model.named_buffers())]

        def forward(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            inputs, target = (part[None].clone() for part in tensors[-2:])
            with torch.no_grad():
                outputs = functional_call(model, dict(zip(names, tensors[:-2], strict=True)), (inputs,))
                if value is not None:
                    outputs = value(outputs, target)
                    refuse_average(outputs, 1)
            return (outputs[0],)

        return cls._traced(forward, model, [], names, example)

    @classmethod
    def _traced(
        cls, function: Callable[..., Any], model: nn.Module, trained: list[str], given: list[str], example: Batch
    ) -> RecordGraph:
        values = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        tensors = [values[name].detach() for name in (*trained, *given)]
        graph = trace(function, *tensors, *(part[0] for part in example))
        _own_constants(graph)
        rewrites.make_total(graph)
        uniforms = rewrites.key_randomness(graph)
        held = operators.constants(graph)  # before constants are computed from them
        _shorten_losses(graph)
        fold(graph)
        _shorten_attention(graph)
        operators.check_graph(graph)
        if (device := example[0].device).type != "cpu":
            put_on(graph, device)
        return cls(graph, tuple(trained), tuple(given), tuple(map(tuple, uniforms)), held)


def refuse_average(losses: Any, count: int) -> None:
    """Refuse a loss that does not return one value per record."""
    shape = tuple(losses.shape) if isinstance(losses, torch.Tensor) else type(losses).__name__
    if shape != (count,):
        raise UnsupportedModelError(
            f"the loss returns values of shape {shape} for {count} records: return one value per record, not an "
            f"average over them"
        )


def trace(function: Callable[..., Any], *tensors: torch.Tensor) -> fx.GraphModule:
    """Trace a function of tensors as a functional graph, from their shapes and types alone.

    The graph is always traced for a CPU: a GPU has separate operators for whole layers.
    """
    try:
        with tracing() as mode, _use_lazy_graph_module(True):  # its text is not needed
            graph = make_fx(function, record_stack_traces=True)(*(_on_cpu(mode, one.detach()) for one in tensors))
        graph.graph.eliminate_dead_code()
        operators.refuse_parts(graph)
        functional = partial(functionalize, remove="mutations")
        return retraced(graph, functional, [without_values(one) for one in tensors], _DECOMPOSED)
    except UnsupportedModelError:
        raise
    except Exception as error:
        raise _untraceable(error) from error


def _on_cpu(mode: FakeTensorMode, one: torch.Tensor) -> Any:
    if one.device.type == "cpu":
        return mode.from_tensor(one, static_shapes=True)
    with mode:
        return torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device="cpu")


def without_values(one: torch.Tensor, *lead: int) -> torch.Tensor:
    """A tensor of the same shape and type that has no memory, with further dimensions in front."""
    if lead:
        return torch.empty((*lead, *one.shape), dtype=one.dtype, device="meta")
    return torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device="meta")


Transform = Callable[[Callable[..., Any]], Callable[..., Any]]


def retraced(
    graph: fx.GraphModule,
    transform: Transform,
    tensors: Sequence[torch.Tensor],
    decomposed: Mapping[Any, Callable[..., Any]] | None = None,
) -> fx.GraphModule:
    """The operators that a graph calls under a transform such as ``vmap``, on tensors without values, on a CPU."""
    recorder, constants = _Recorder(decomposed or {}), operators.constants(graph)
    interpreter = _Interpreter(graph, recorder, {name: without_values(one) for name, one in constants.items()})
    for name, one in interpreter.constants.items():
        recorder.know(one, recorder.graph.get_attr(name))
    for number, one in enumerate(tensors):
        recorder.know(one, recorder.graph.placeholder(f"arg{number}"))
    with recorder:
        outputs = transform(interpreter.run)(*tensors)
    recorder.graph.output(recorder.nodes(outputs))
    return _LazyGraphModule(constants, recorder.graph)


# Memory that was never written may hold other records, so it becomes zeros. Strides change under vmap, so views become
# reshapes.
_UNWRITTEN = {A.empty.memory_format, A.empty_like.default, A.empty_strided.default, A.empty_permuted.default}
_UNWRITTEN |= {A.new_empty.default, A.new_empty_strided.default, A._efficientzerotensor.default}
_VIEWS = {A.view.default, A._unsafe_view.default}


class _Recorder(TorchDispatchMode):
    """Records in a graph the operators that are called, and the shapes and types of their results."""

    def __init__(self, decomposed: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph, self._decomposed = fx.Graph(), decomposed
        self.trace: str | None = None
        self._known: dict[int, tuple[torch.Tensor, fx.Node]] = {}  # with the tensor, so that its id is not reused

    def know(self, value: Any, node: fx.Node) -> None:
        """Record that a node has this value."""
        node.meta["val"] = value
        if self.trace is not None:
            node.meta["stack_trace"] = self.trace
        if isinstance(value, torch.Tensor):
            self._known[id(value)] = value, node
        elif isinstance(value, tuple | list):
            for place, one in enumerate(value):
                self.know(one, self.graph.call_function(operator.getitem, (node, place)))

    def nodes(self, values: Any) -> Any:
        """Arguments in which each tensor is replaced by its node."""
        if not all(id(one) in self._known for one in tree_leaves(values) if isinstance(one, torch.Tensor)):
            raise UnsupportedModelError(
                "an operator uses a tensor that is neither an argument nor a constant of a graph"
            )
        return tree_map(lambda one: self._known[id(one)][1] if isinstance(one, torch.Tensor) else one, values)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        ways = [self._decomposed[function]] if function in self._decomposed else []
        for decompose in ways if function in operators.ALLOWED else [*ways, function.decompose]:
            with self:
                made = decompose(*args, **(kwargs or {}))
            if made is not NotImplemented:
                return made
        named = {name: CPU if name == "device" else one for name, one in (kwargs or {}).items()}
        made = operators.shaped(function, args, named)
        if function in _UNWRITTEN:
            function, args, named = A.zeros.default, (list(made.shape),), {"dtype": made.dtype, "device": CPU}
        function = A.reshape.default if function in _VIEWS else function
        self.know(made, self.graph.call_function(function, *self.nodes((tuple(args), named))))
        return made


class _Interpreter(fx.Interpreter):
    """Calls the operators of a graph again, on constants without values."""

    def __init__(self, graph: fx.GraphModule, recorder: _Recorder, constants: dict[str, torch.Tensor]) -> None:
        super().__init__(graph)
        self.extra_traceback, self._recorder, self.constants = False, recorder, constants

    def run_node(self, n: fx.Node) -> Any:
        self._recorder.trace = n.meta.get("stack_trace")
        return super().run_node(n)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.constants[target]


def put_on(graph: fx.GraphModule, device: torch.device) -> None:
    """Change a CPU's graph so that it computes on another device."""
    graph.to(device)  # its constants
    for node in graph.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": device}
    graph.recompile()


def _in_one_precision(norm: Any, places: Sequence[int], weight: int) -> Callable[..., Any]:
    """A normalisation whose tensors all have the type of its weight: ``vmap`` would change that of its outputs."""

    def decomposed(*args: Any) -> Any:
        if args[weight] is None or args[weight].dtype == args[0].dtype:
            return NotImplemented
        cast = [one.to(args[weight].dtype) if place in places else one for place, one in enumerate(args)]
        first, *others = norm(*cast)
        return None if first is None else first.to(args[0].dtype), *others

    return decomposed


_DECOMPOSED = rewrites.DECOMPOSED | {
    norm: _in_one_precision(norm, places, weight)
    for norm, places, weight in (
        (A.native_layer_norm.default, (0,), 2),
        (A.native_group_norm.default, (0,), 1),
        (A.native_layer_norm_backward.default, (0, 1, 3, 4), 5),
        (A.native_group_norm_backward.default, (0, 1, 2, 3), 4),
    )
}


@contextlib.contextmanager
def without_checkpoints() -> Iterator[None]:
    """Call each part of a model once: a checkpoint calls it again, and a graph would draw other random numbers."""

    def called_once(*_: Any, **__: Any) -> Iterator[None]:
        yield

    class Called:
        @staticmethod
        def apply(function: Callable[..., Any], _: bool, *args: Any) -> Any:
            return function(*args)

    module = torch.utils.checkpoint
    instead = {"_checkpoint_without_reentrant_generator": called_once, "CheckpointFunction": Called}
    before = {name: vars(module)[name] for name in instead}
    vars(module).update(instead)
    try:
        yield
    finally:
        vars(module).update(before)


@contextlib.contextmanager
def tracing() -> Iterator[FakeTensorMode]:
    """A block with fake tensors, in which attention and recurrent layers are operators that ``vmap`` can batch."""
    mode, compiler = FakeTensorMode(allow_non_fake_inputs=True), torch.compiler
    flags = ("_is_compiling_flag", "_is_exporting_flag")  # models then choose code that can be traced
    with contextlib.ExitStack() as stack:
        for name in flags:
            stack.callback(setattr, compiler, name, getattr(compiler, name))
            setattr(compiler, name, True)
        stack.enter_context(padded_attention())
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        for backend in (torch.backends.mkldnn, torch.backends.cudnn):  # vmap cannot batch their recurrent layers
            stack.callback(backend.set_flags, *backend.set_flags(_enabled=False)[:1])
        for module in (torch, torch.utils.dlpack):
            stack.callback(setattr, module, "to_dlpack", vars(module)["to_dlpack"])
            vars(module)["to_dlpack"] = lambda _: rewrites.no_memory("to_dlpack")
        stack.enter_context(without_checkpoints())
        if "torch._dynamo" in sys.modules:  # compiled functions of the model are captured as they are written
            stack.enter_context(compiler.set_stance("force_eager"))
        stack.enter_context(rewrites.Capture())
        stack.enter_context(mode)
        yield mode


def _untraceable(error: Exception) -> UnsupportedModelError:
    """The error for code that cannot be traced: where it is, and what to write instead."""
    message = str(error).strip().split("\n")[0]
    if reads_values(error):
        remedy = (
            "it reads values of a record, or makes shapes of them. The model is captured once, as operators on a "
            "record's tensors: decide with torch.where, and keep shapes fixed"
        )
    else:
        remedy = (
            "model(inputs) and loss(model(inputs), targets) must work for made-up records like those of data, with the "
            "batch in the first dimension"
        )
    return UnsupportedModelError(
        f"the model cannot be captured{place_of(error)}: {type(error).__name__}: {message}. {remedy}"
    )


def reads_values(error: BaseException) -> bool:
    """Whether an error was raised because code asked for the values of a record."""
    decides = isinstance(error, DataDependentOutputException | DynamicOutputShapeException)
    return decides or any(word in str(error) for word in ("ata-dependent", "data pointer", "FakeTensor"))


def place_of(error: BaseException) -> str:
    """The user's file and line where an error was raised, if there is one."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not any(frame.filename.startswith(folder) for folder in _HERE)]
    for frame in reversed(own):
        if line := linecache.getline(frame.filename, frame.lineno or 0).strip():  # generated code has none
            return f" at {frame.filename}, line {frame.lineno} ({line})"
    return ""


def fold(graph: fx.GraphModule) -> None:
    """Drop copies, and compute ahead what depends on no record and no parameter."""
    for node in list(graph.graph.nodes):
        if node.target is A._to_copy.default and not isinstance(node.args[0], fx.Node):  # a number, under vmap
            node.target, node.args = A.full.default, ([], node.args[0])
        if node.op == "call_function" and node.target in _SAME and _is_copy(node):
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    _fold_constants(graph)
    graph.graph.eliminate_dead_code()
    graph.graph.lint()
    graph.recompile()


def _own_constants(graph: fx.GraphModule) -> None:
    """Copy the tensors that a model's code uses: code that reads records could change them during training."""
    for name, value in operators.constants(graph).items():
        if isinstance(value, FakeTensor):
            raise UnsupportedModelError(
                "the model's code uses a tensor that an earlier pass left behind, or that another thread computed: "
                "keep nothing of a pass, and compute in the thread that calls the model"
            )
        if isinstance(value, torch.Tensor):  # a Generator goes with the random operators
            delattr(graph, name)
            graph.register_buffer(name, value.detach().clone())


def _is_copy(node: Any) -> bool:
    """Whether an operator returns its argument with the same type and device."""
    (source, *rest), value = node.args, node.meta.get("val")
    before = source.meta.get("val")
    return not rest and before is not None and (before.dtype, before.device) == (value.dtype, value.device)


def _fold_constants(graph: fx.GraphModule) -> None:
    """Replace nodes that depend on constants alone by their values."""
    known: dict[fx.Node, Any] = {}
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            known[node] = getattr(graph, node.target)
        elif node.op == "call_function" and all(one in known for one in node.all_input_nodes):
            value = node.meta.get("val")
            random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
            if not isinstance(value, torch.Tensor) or random or value.numel() > _CONSTANT:
                continue
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*args, **kwargs)
    for node, value in known.items():
        if node.op == "get_attr" or all(user in known for user in node.users):
            continue
        with graph.graph.inserting_before(node):
            constant = graph.graph.get_attr(operators.held(graph, value.contiguous()))
        constant.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(constant)


def _shorten_losses(graph: fx.GraphModule) -> None:
    """Compute the gradient of −log p at a label by comparison instead of a look-up; an ignored label has no class."""
    for node in graph.graph.find_nodes(op="call_function", target=A.nll_loss_backward.default):
        slopes, logs, target, weight, reduction, ignored, _ = node.args
        value = logs.meta["val"]
        if weight is not None or reduction != 0 or value.dim() != 2 or 0 <= ignored < value.shape[1]:
            continue
        classes = insert(node, A.arange.default, value.shape[1], device=CPU)
        hit = insert(node, A.eq.Tensor, insert(node, A.unsqueeze.default, target, 1), classes)
        slope = insert(node, A.unsqueeze.default, insert(node, A.neg.default, slopes), 1)
        node.replace_all_uses_with(insert(node, A.mul.Tensor, hit, slope))


def _shorten_attention(graph: fx.GraphModule) -> None:
    """Drop masks that are zero everywhere, and the handling of fully masked rows of a softmax if there are none."""
    for node in graph.graph.find_nodes(op="call_function", target=A.add.Tensor):
        for mask, other in (node.args, node.args[::-1]):
            same = isinstance(other, fx.Node) and _kind(other) == _kind(node)
            numbers = _constant(graph, mask)
            if same and numbers is not None and not node.kwargs and not numbers.any():
                node.replace_all_uses_with(other)
                break
    for node in graph.graph.find_nodes(op="call_function", target=A._safe_softmax.default):
        source, dim = node.args[0], node.args[1] % node.meta["val"].dim()
        made = source.args[0] if source.target is A.reshape.default else source
        masks = [_constant(graph, one) for one in made.args] if made.target is A.add.Tensor else []
        whole = [
            (one == -torch.inf).expand(source.meta["val"].shape).all(dim).any() for one in masks if one is not None
        ]
        if not node.kwargs and (made.target in (A.bmm.default, A.mm.default) or (whole and not any(whole))):
            node.target, node.args = A._softmax.default, (source, dim, False)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _kind(node: Any) -> tuple[Any, ...]:
    return node.meta["val"].shape, node.meta["val"].dtype


def _constant(graph: fx.GraphModule, node: Any) -> torch.Tensor | None:
    """The value of a node that is a floating-point constant of the graph; None for other nodes."""
    found = getattr(graph, str(node.target)) if isinstance(node, fx.Node) and node.op == "get_attr" else None
    return found if isinstance(found, torch.Tensor) and found.is_floating_point() else None
