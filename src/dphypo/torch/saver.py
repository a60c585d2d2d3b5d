"""Models: built again for every run, and saved as safetensors, which run no code when they are loaded.

Factories often return, or build upon, a model that was loaded once. If it were trained in place, its weights would
carry what one run has learnt into the next, unaccounted for. So a run trains a copy that shares no tensor, and after
the run the factory must still return what it returned before.

A model's forward pass is saved as text, so that a release loads without the code that built the model. The text lists
the operators of the captured graph of one record, in evaluation mode, and nothing else: no example, no source path, no
Python. Loading accepts only operators of the engine's closed list, without derivatives, so a file runs no code.
(``torch.export.save`` stores the example and source paths, and loading its files evaluates text and pickles in them.)
"""

from __future__ import annotations

import copy
import hashlib
import json
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import safetensors.torch
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.func import vmap
from torch.nn import functional

from dphypo._validate import printable
from dphypo.errors import FileError, UnsupportedModelError
from dphypo.torch.engine.capture import RecordGraph
from dphypo.torch.engine.device import seeded
from dphypo.torch.engine.operators import ALLOWED, constants, name_of
from dphypo.torch.engine.trainable import tensors_of
from dphypo.torch.fields import Fields, plain

ARGUMENTS = "dphypo_arguments"
GRAPH = "dphypo_graph"
ABOUT = "about"  # the one entry of metadata that holds the others
CONSTANT = "graph constant "  # begins the names of a graph's constants among the saved tensors
_REMEDY = "Build the model from its arguments alone, and copy what was loaded: model=lambda: copy.deepcopy(backbone)"
_MOST_LINES = 12  # of what PyTorch says about a model that does not fit


@dataclass(frozen=True)
class Safetensors:
    """Saves a model's state dict with safetensors, and the factory's arguments and the graph in the file's metadata.

    Weights that are not trained and that the factory returns anyway, such as a pretrained backbone under an adapter,
    are left out. The file contains their hash, and :meth:`load` refuses a factory that returns other ones.

    Args:
        factory: builds the model from its arguments, or is a model of the same kind; without it, :meth:`load` returns
            the state dict.

    >>> saver = Safetensors(lambda width: nn.Linear(2, width))
    >>> model = nn.Linear(2, 3); remember(model, {"width": 3})
    >>> saver.load(saver.dump(model))
    Linear(in_features=2, out_features=3, bias=True)
    """

    factory: Callable[..., nn.Module] | nn.Module | None = None
    format: ClassVar[str] = "safetensors"

    def dump(self, model: Any) -> bytes:
        if not isinstance(model, nn.Module):
            raise UnsupportedModelError(f"a model of type {type(model).__name__!r} is not a torch.nn.Module")
        arguments = getattr(model, ARGUMENTS, {})
        given, frozen = self._given(model, arguments), hashlib.sha256()
        state = {}
        for name, value in model.state_dict().items():
            if name in given and torch.equal(_bits(value), _bits(given[name])):
                _hash(frozen, name, value)
            else:  # copies, because safetensors refuses tensors that share memory (tied weights)
                state[name] = value.detach().cpu().contiguous().clone()
        about = {"arguments": json.dumps(arguments, sort_keys=True)}
        if given:
            about["frozen"] = frozen.hexdigest()
        elif self.factory is not None and hasattr(model, GRAPH):  # a graph without its weights is of no use
            about[GRAPH], held = getattr(model, GRAPH)
            state |= held
        # One entry: safetensors writes several in any order, and equal models are equal bytes.
        return safetensors.torch.save(state, about if len(about) == 1 else {ABOUT: json.dumps(about, sort_keys=True)})

    def _given(self, model: nn.Module, arguments: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """The weights that are not trained, as the factory returns them."""
        trained = {name for name, one in model.named_parameters(remove_duplicate=False) if one.requires_grad}
        if self.factory is None or trained >= {name for name, _ in model.named_parameters()}:
            return {}
        with seeded(0, torch.device("cpu"), torch.get_num_threads(), "frozen weights"):
            state = self._untrained(arguments).state_dict()
        own = model.state_dict()
        return {
            name: value
            for name, value in state.items()
            if name not in trained and name in own and (value.shape, value.dtype) == (own[name].shape, own[name].dtype)
        }

    def _untrained(self, arguments: Mapping[str, Any]) -> nn.Module:
        shown = self.factory
        assert shown is not None
        return copy.deepcopy(shown) if isinstance(shown, nn.Module) else build(shown, arguments)

    def load(self, data: bytes) -> Any:
        state = safetensors.torch.load(data)
        held = {name: state.pop(name) for name in list(state) if name.startswith(CONSTANT)}
        if self.factory is None:
            return state
        about = metadata(data)
        arguments = json.loads(about["arguments"])
        name = getattr(self.factory, "__name__", type(self.factory).__name__)
        try:
            model = self._untrained(arguments)
            found = hashlib.sha256()
            for key, value in model.state_dict().items() if "frozen" in about else ():
                if key not in state:
                    _hash(found, key, value)
                    state[key] = value
            if found.hexdigest() != about.get("frozen", found.hexdigest()):
                raise RuntimeError("weights that were not trained, such as a pretrained backbone, are different")
            model.load_state_dict(state)
        except (TypeError, RuntimeError) as error:
            differs = [f"  {printable(line.strip())}" for line in str(error).splitlines()[:_MOST_LINES]]
            raise FileError(
                f"model = {name} does not build the model that was saved, with the arguments {printable(arguments)}: "
                "give the class or the function that the search was declared with\n" + "\n".join(differs)
            ) from None
        remember(model, arguments)
        if GRAPH in about:  # so that it is saved again with the model
            object.__setattr__(model, GRAPH, (about[GRAPH], held))
        return model.eval()


def metadata(data: bytes) -> dict[str, str]:
    """The metadata of a file: strings in its header, which follows the header's length in eight bytes."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    found = header.get("__metadata__", {})
    return dict(json.loads(found[ABOUT]) if ABOUT in found else found)


def build(factory: Callable[..., nn.Module], arguments: Mapping[str, Any]) -> nn.Module:
    """The model of a factory, with tensors that nothing else shares.

    >>> net = nn.Linear(2, 1)
    >>> model = build(lambda: net, {})
    >>> torch.equal(model.weight, net.weight), model.weight is net.weight
    (True, False)
    """
    given = factory(**arguments)
    if not isinstance(given, nn.Module):
        raise TypeError(f"the model's factory returns a {type(given).__name__}: it must return a torch.nn.Module")
    try:
        model = copy.deepcopy(given)
    except Exception as error:
        raise UnsupportedModelError(
            f"the model cannot be copied ({type(error).__name__}: {error}): keep in it only what copy.deepcopy can "
            "copy, and detach() tensors that were computed"
        ) from error
    theirs = {tensor.untyped_storage().data_ptr() for _, tensor in _tensors(given)}
    for name, tensor in _tensors(model):
        if tensor.untyped_storage().data_ptr() in theirs:
            raise UnsupportedModelError(
                f"{name!r} of the model is still shared after copy.deepcopy, so runs would continue from each other's "
                f"weights. {_REMEDY}, and do not share tensors in __deepcopy__"
            )
    remember(model, arguments)
    return model


def remember(model: nn.Module, arguments: Mapping[str, Any]) -> None:
    """Store on a model the arguments its factory was called with."""
    object.__setattr__(model, ARGUMENTS, dict(arguments))


def fingerprint(model: nn.Module) -> bytes:
    """A hash of all weights and buffers."""
    found = hashlib.sha256()
    for name, tensor in _tensors(model):
        _hash(found, name, tensor)
    return found.digest()


def _hash(found: Any, name: str, tensor: torch.Tensor) -> None:
    found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
    found.update(_bits(tensor).numpy().tobytes())


def refuse_other_weights(before: bytes, model: nn.Module) -> None:
    """Raise :class:`UnsupportedModelError` if a factory no longer returns the weights that it returned before a run."""
    if fingerprint(model) != before:
        raise UnsupportedModelError(
            f"the model's factory returns different weights after the run, for the same seed: the run or its "
            f"score wrote to what the factory reads, or the factory has its own random generator. {_REMEDY}"
        )


def start_from(model: nn.Module, start: nn.Module | None, kept: float = 1.0) -> None:
    """Move the weights of a model towards those of ``start``, if their names and shapes agree, which are public."""
    given, own = {} if start is None else start.state_dict(), model.state_dict()
    if [(name, value.shape) for name, value in given.items()] == [(name, value.shape) for name, value in own.items()]:
        if kept < 1:
            floating = {name: value for name, value in own.items() if value.is_floating_point()}
            given |= {name: value.lerp(given[name].to(value), kept) for name, value in floating.items()}
        model.load_state_dict(given)


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights and buffers that have memory of their own."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if not nn.parameter.is_lazy(tensor) and tensor.layout is torch.strided and tensor.numel():
            yield name, tensor


def _bits(value: torch.Tensor) -> torch.Tensor:
    plain = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
    return plain.cpu().contiguous().flatten().view(torch.uint8)


def _safe_softmax(values: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """PyTorch's own function does not check that the dimension exists."""
    masked = (values == -torch.inf).all(dim, keepdim=True)
    return torch.where(masked, 0.0, torch.softmax(values, dim, dtype=dtype))


_BY_INDEX = ("index.Tensor", "_unsafe_index.Tensor", "index_put", "_unsafe_index_put")


def _by_index(target: Callable[..., Any]) -> Callable[..., Any]:
    """For batches PyTorch's operator does not check its indices. A captured graph has no masks among them."""

    def called(values: torch.Tensor, indices: list[torch.Tensor | None], *rest: Any) -> Any:
        kinds = {one.dtype for one in indices if one is not None}
        if not kinds or len(indices) > values.dim() or not kinds.isdisjoint((torch.bool, torch.uint8)):
            raise IndexError("an operator looks up by indices, and has none, too many, or a mask")
        return target(values, indices, *rest)

    return called


def _convolution(*given: Any) -> torch.Tensor:
    """For batches PyTorch's operator divides by the number of groups before it looks at it."""
    if given[-1] < 1:
        raise ValueError(f"a convolution has {given[-1]} groups: it must have one or more")
    return torch.ops.aten.convolution.default(*given)  # type: ignore[no-any-return]


# No derivatives: some write to memory at unchecked indices.
_OPERATORS: dict[str, Any] = {name_of(one): one for one in ALLOWED if "backward" not in name_of(one)}
_OPERATORS |= {"getitem": operator.getitem}
_CHECKED: dict[Any, Any] = {torch.ops.aten._safe_softmax.default: _safe_softmax}
_CHECKED |= {torch.ops.aten.convolution.default: _convolution}
_CHECKED |= {_OPERATORS[name]: _by_index(_OPERATORS[name]) for name in _BY_INDEX}
_LEFT_OUT = ("layout", "pin_memory")  # how new tensors are stored
_NAMED = ("dtype", "memory_format")  # PyTorch takes any number for one of them, and looks it up in its memory
_TYPES: dict[str, Any] = {
    str(one): one for one in vars(torch).values() if isinstance(one, torch.dtype | torch.memory_format)
}


def remember_graph(model: nn.Module, record: RecordGraph) -> None:
    """Store on a model its forward pass as text, and the tensors in it that are not in the model's state dict.

    A model that draws at random in evaluation mode, or differentiates in it, is saved without a graph.
    """
    called = {node.target for node in record.graph.graph.nodes if node.op == "call_function"}
    if record.uniforms or not called <= set(_OPERATORS.values()):
        return
    inner, fields = plain(model), getattr(model, "fields", None)
    state, names = inner.state_dict(), dict[fx.Node, int]()
    held = {CONSTANT + name: value for name, value in constants(record.graph).items()}
    given = [name if inner is model else name.removeprefix("module.") for name in record.given]
    held |= {CONSTANT + name: value for name, value in tensors_of(inner).items() if name in given and name not in state}
    inputs = iter([*(["tensor", name if name in state else CONSTANT + name] for name in given), ["record"], ["target"]])
    steps: list[Any] = []
    for place, node in enumerate(record.graph.graph.nodes):
        names[node] = place
        if node.op == "placeholder":
            steps.append(next(inputs))
        elif node.op == "get_attr":
            steps.append(["tensor", CONSTANT + str(node.target)])
        elif node.op == "output":
            steps.append(["output", _written(node.args[0], names)])
        else:
            name = "getitem" if node.target is operator.getitem else name_of(node.target)
            named = {key: _written(one, names) for key, one in node.kwargs.items() if key not in _LEFT_OUT}
            steps.append(["call", name, _written(node.args, names), named])
    shapes = None if fields is None else {name: list(shape) for name, shape in fields.shapes.items()}
    kinds = None if fields is None else {name: str(kind) for name, kind in fields.kinds.items()}
    text = json.dumps({"steps": steps, "shapes": shapes, "kinds": kinds}, allow_nan=False)
    kept = {name: value.detach().cpu().contiguous().clone() for name, value in held.items()}
    object.__setattr__(inner, GRAPH, (text, kept))


class Loaded(nn.Module):
    """The forward pass of a saved model, for batches of records: one tensor, or the fields of records by name."""

    source: bytes

    def __init__(self, text: str, tensors: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        found = json.loads(text)
        self._steps, self._fields = found["steps"], None
        if found["shapes"] is not None:
            shapes = {name: tuple(shape) for name, shape in found["shapes"].items()}
            self._fields = Fields(shapes, {name: _TYPES[kind] for name, kind in found["kinds"].items()})
        self._names = [step[1] for step in self._steps if step[0] == "tensor"]
        for place, name in enumerate(self._names):
            self.register_buffer(f"tensor_{place}", tensors[name])
        self._graphs = {torch.device("cpu"): self._graph(torch.device("cpu"))}

    def forward(self, *inputs: Any, **named: torch.Tensor) -> torch.Tensor:
        if self._fields is None:
            (rows,) = inputs
            if not isinstance(rows, torch.Tensor):
                kind = type(rows).__name__
                raise TypeError(
                    f"the model was given a {kind}: give it a batch of records as a tensor, torch.tensor(x)"
                )
        else:
            given = dict(zip(self._fields.shapes, inputs, strict=False)) | named
            first = next(iter(given.values()))
            rows, _ = self._fields.pack({**given, self._fields.target: first.new_zeros(len(first))})
        if rows.device not in self._graphs:
            self._graphs[rows.device] = self._graph(rows.device)
        tensors = list(self.buffers())
        called = vmap(self._graphs[rows.device], in_dims=(0, *[None] * len(tensors)))
        try:
            with torch.no_grad():
                outputs, outside = called(rows, *tensors)
        except RuntimeError as error:
            if rows.dtype is torch.float64 and all(one.dtype is not torch.float64 for one in tensors):
                remedy = "it works in single precision: give x.float()"
                raise TypeError(f"the model was given a tensor of {rows.dtype}; {remedy}") from error
            raise
        if isinstance(outside, FakeTensor):  # captured for a score: an index beyond a table leaves a record out
            beyond = functional.embedding(outside.long(), outputs.new_zeros(1, 1))
            return outputs + beyond.view(-1, *[1] * (outputs.dim() - 1))  # type: ignore[no-any-return]
        if bool(outside.any()):
            raise IndexError(f"record {int(outside.int().argmax())} holds an index that the model does not know")
        return outputs  # type: ignore[no-any-return]

    def _graph(self, device: torch.device) -> Callable[..., Any]:
        """A function of a record and of the tensors, which creates new tensors on a device."""
        graph, nodes = fx.Graph(), list[Any]()
        row = graph.placeholder("row")
        tensors = iter([graph.placeholder(f"tensor_{place}") for place in range(len(self._names))])
        for kind, *rest in self._steps:
            if kind == "call":
                target, args = _OPERATORS[rest[0]], tuple(_read(rest[1], nodes, device))
                named = {name: _read(one, nodes, device) for name, one in rest[2].items()}
                takes = () if target is operator.getitem else target._schema.arguments
                known = [one.name for one in takes if one.name not in _LEFT_OUT]
                if unknown := [name for name in named if name not in known]:
                    raise ValueError(f"{rest[0]} has no argument {unknown[0]!r:.50}")
                if numbers := [name for name in _NAMED if isinstance(named.get(name), int)]:
                    raise ValueError(f"{rest[0]} takes a number for its {numbers[0]}, which must have a name")
                nodes.append(graph.call_function(_CHECKED.get(target, target), args, named))
            elif kind == "output":
                nodes.append(graph.output(tuple(_read(rest[0], nodes, device))))
            else:
                nodes.append({"record": row, "target": None}[kind] if kind != "tensor" else next(tensors))
        graph.lint()
        return partial(_interpret, graph)


def _interpret(graph: fx.Graph, *given: torch.Tensor) -> Any:
    """Execute a graph operator by operator, so that no code is generated. An interpreter would keep its arguments."""
    return fx.Interpreter(nn.Module(), graph=graph).run(*given)


@dataclass(frozen=True)
class SavedGraph:
    """Loads a model that was saved by :class:`Safetensors` from its graph, without the code that built it."""

    format: ClassVar[str] = "safetensors"

    def dump(self, model: Any) -> bytes:
        if not isinstance(model, Loaded):
            raise UnsupportedModelError(f"a model of type {type(model).__name__!r} was not loaded from a graph")
        return bytes(model.source)

    def load(self, data: bytes) -> Any:
        about = metadata(data)
        if GRAPH not in about:
            lacks = "no weights that were not trained, such as a backbone's" if "frozen" in about else "no graph"
            raise FileError(
                f"the model's file holds {lacks}: write dphypo.load_release(folder, model=MLP), where MLP builds the "
                "model, or is the estimator that was searched"
            )
        model = Loaded(about[GRAPH], safetensors.torch.load(data))
        model.source = data
        return model.eval()


def _written(value: Any, names: Mapping[fx.Node, int]) -> Any:
    """An argument as JSON."""
    if isinstance(value, fx.Node):
        return {"node": names[value]}
    if isinstance(value, list | tuple):
        return [_written(one, names) for one in value]
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, torch.dtype | torch.memory_format):
        return {"torch": str(value)}
    if isinstance(value, torch.device):
        return {"device": None}
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"an argument of type {type(value).__name__} cannot be written")


def _read(value: Any, nodes: list[Any], device: torch.device) -> Any:
    if isinstance(value, list):
        return [_read(one, nodes, device) for one in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "node":
        return nodes[inner]
    if kind == "float":
        return float.fromhex(inner)
    return _TYPES[inner] if kind == "torch" else device
