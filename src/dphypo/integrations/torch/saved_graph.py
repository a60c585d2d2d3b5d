"""A model's forward pass as text, so that a release loads without the code that built the model.

The text lists the operators of the captured graph of one record, in evaluation mode, and nothing else: no example, no
source path, no Python. Loading accepts operators of the engine's closed list alone, so that a file runs no code.
(``torch.export.save`` stores the example and source paths, and loading its files evaluates text and pickles in them.)
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import safetensors.torch
import torch
from torch import fx, nn
from torch.func import vmap

from dphypo.dpsgd.operators import ALLOWED, constants, name_of
from dphypo.dpsgd.record_graph import RecordGraph
from dphypo.errors import FileError, UnsupportedModelError
from dphypo.integrations.torch.fields import Fields, plain
from dphypo.integrations.torch.saver import CONSTANT, GRAPH, metadata

_OPERATORS: dict[str, Any] = {name_of(one): one for one in ALLOWED} | {"getitem": operator.getitem}
_LEFT_OUT = ("layout", "pin_memory")  # how new tensors are stored
_TYPES: dict[str, Any] = {
    str(one): one for one in vars(torch).values() if isinstance(one, torch.dtype | torch.memory_format)
}


def remember(model: nn.Module, record: RecordGraph) -> None:
    """Note on a model its forward pass as text, and the tensors of it that are not in the model's state dict.

    A model that draws at random in evaluation mode is saved without a graph.
    """
    if record.uniforms:
        return
    inner, fields = plain(model), getattr(model, "fields", None)
    state, names = inner.state_dict(), dict[fx.Node, int]()
    held = {CONSTANT + name: value for name, value in constants(record.graph).items()}
    given = [name if inner is model else name.removeprefix("module.") for name in record.given]
    held |= {CONSTANT + name: value for name, value in inner.named_buffers() if name in given and name not in state}
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

    def forward(self, *inputs: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        if self._fields is None:
            (rows,) = inputs
        else:
            given = dict(zip(self._fields.shapes, inputs, strict=False)) | named
            first = next(iter(given.values()))
            rows, _ = self._fields.pack({**given, self._fields.target: first.new_zeros(len(first))})
        if rows.device not in self._graphs:
            self._graphs[rows.device] = self._graph(rows.device)
        tensors = list(self.buffers())
        with torch.no_grad():
            outputs, outside = vmap(self._graphs[rows.device], in_dims=(0, *[None] * len(tensors)))(rows, *tensors)
        if bool(outside.any()):
            raise IndexError(f"record {int(outside.int().argmax())} holds an index that the model does not know")
        return outputs  # type: ignore[no-any-return]

    def _graph(self, device: torch.device) -> Callable[..., Any]:
        """A function of a record and of the tensors that makes new tensors on a device."""
        graph, nodes = fx.Graph(), list[Any]()
        row = graph.placeholder("row")
        tensors = iter([graph.placeholder(f"tensor_{place}") for place in range(len(self._names))])
        for kind, *rest in self._steps:
            if kind == "call":
                target, args = _OPERATORS[rest[0]], tuple(_read(rest[1], nodes, device))
                named = {name: _read(one, nodes, device) for name, one in rest[2].items()}
                known = [] if target is operator.getitem else [one.name for one in target._schema.arguments]
                if unknown := [name for name in named if name not in known]:
                    raise ValueError(f"{rest[0]} has no argument {unknown[0]!r:.50}")
                nodes.append(graph.call_function(target, args, named))
            elif kind == "output":
                nodes.append(graph.output(tuple(_read(rest[0], nodes, device))))
            else:
                nodes.append({"record": row, "target": None}[kind] if kind != "tensor" else next(tensors))
        graph.lint()
        return fx.Interpreter(nn.Module(), graph=graph).run  # operator by operator: no program text is made of it


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
