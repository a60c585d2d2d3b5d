"""What a model keeps between forward passes: it must not change while records go through.

DP-SGD adds noise to gradients and to nothing else. Whatever a forward pass writes (running statistics in a buffer, in a
parameter without a gradient or in a list; rows that ``nn.Embedding(max_norm=...)`` renormalises) is learnt from records
without noise. So everything the model reaches is compared before and after, and in training every write to a parameter
inside a forward pass is noticed. What it reaches includes the attributes of its classes, the defaults and closures of
its methods, and the global variables that they name.
"""

from __future__ import annotations

import array
import collections
import contextlib
import functools
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from dphypo.errors import UnfitModelError

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_BUFFERS = (bytearray, array.array)
_KEPT = (torch.Tensor, np.ndarray, *_PLAIN, *_BUFFERS, list, tuple, set, frozenset, dict, collections.deque)
# Libraries, whose classes and functions keep nothing of a batch, and are large.
_LIBRARIES = ("torch", "opacus", "numpy", "builtins", "math", "functools", "collections", "typing", "dphypo")
_TORCH_DICTS = ("_parameters.", "_buffers.", "_modules.")
# What Opacus's own recurrent layers note about the batch, and takes away again when training ends.
_OPACUS_NOTES = {"max_batch_len", "max_batch_length", "activations"}
# PyTorch's own bookkeeping. Of the hooks, those of the user are looked into; Opacus takes its own away again.
_READ = {"_parameters", "_buffers", "_modules", "training", "_forward_pre_hooks", "_forward_hooks", "_backward_hooks"}
_HOOKS = vars(nn.Module()).keys() - _READ


@dataclass(frozen=True, repr=False)
class Snapshot:
    """Copies of all tensors, arrays and plain values that a model and its loss reach, by their names.

    >>> model = nn.Linear(2, 2); before = Snapshot.of(model)
    >>> model.seen = 3
    >>> before.changed(model)
    'seen'
    """

    values: Mapping[str, Any]
    trained: bool

    @classmethod
    def of(cls, *roots: Any, trained: bool = True) -> Snapshot:
        """A snapshot; ``trained=False`` leaves out the parameters that a step of the optimiser changes."""
        return cls({name: _copy(value) for name, value in _leaves(roots, trained)}, trained)

    def changed(self, *roots: Any) -> str | None:
        """The name of something that is no longer what it was; None if all is."""
        now = dict(_leaves(roots, self.trained))
        for name in sorted(self.values.keys() | now.keys()):
            if name not in self.values or name not in now or not _same(self.values[name], now[name]):
                return name
        return None

    def refuse_changes(self, *roots: Any) -> None:
        """:class:`UnfitModelError` if something changed."""
        if (name := self.changed(*roots)) is not None:
            raise UnfitModelError(
                f"{name!r} of the model changes when records go through it: what it learns from them would be used or "
                f"released without noise. Use layers without running statistics (GroupNorm, LayerNorm) and without "
                f"max_norm, create what the forward pass needs in __init__, and keep nothing of a batch"
            )


@contextlib.contextmanager
def no_writes_in_forward(model: nn.Module) -> Iterator[None]:
    """Notice a forward pass that writes to a parameter or a buffer in place, on whatever records it does so."""
    before: list[int] = []

    def versions() -> list[int]:
        return [tensor._version for tensor in (*model.parameters(), *model.buffers())]

    def enter(module: nn.Module, inputs: Any) -> None:
        before[:] = versions()

    def leave(module: nn.Module, inputs: Any, outputs: Any) -> None:
        if before != versions():
            raise UnfitModelError(
                "the model's forward pass writes to its own parameters or buffers: what it learns there from records "
                "gets no noise. Make the forward pass a function of the parameters and one batch"
            )

    hooks = model.register_forward_pre_hook(enter), model.register_forward_hook(leave)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _leaves(roots: tuple[Any, ...], trained: bool) -> Iterator[tuple[str, Any]]:
    """Every tensor, array and plain value reached through attributes, containers and closures, once."""
    seen: dict[int, Any] = {}  # by identity; kept, so that no identity is given twice
    waiting: list[tuple[str, Any]] = [("", root) for root in reversed(roots)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, torch.Tensor | np.ndarray):
            if trained or not (isinstance(value, nn.Parameter) and value.requires_grad):
                yield _readable(name), value
        elif isinstance(value, _PLAIN):
            yield _readable(name), value
        elif isinstance(value, _BUFFERS):
            yield _readable(name), bytes(value)
        elif id(value) not in seen:
            seen[id(value)] = value
            waiting += [(f"{name}.{key}", part) for key, part in _parts(value)]


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset | collections.deque):
        yield from ((str(place), part) for place, part in enumerate(value))
    elif isinstance(value, types.FunctionType):
        yield from _parts_of_function(value)
    elif isinstance(value, types.MethodType):
        yield "self", value.__self__
        yield "function", value.__func__
    elif isinstance(value, functools.partial):
        yield "function", value.func
        yield "arguments", (value.args, value.keywords)
    elif not isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
        yield from _parts_of_object(value)


def _parts_of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function closes over, its defaults and attributes, and the variables of its module that it names."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    yield from ((name, cell.cell_contents) for name, cell in cells if cell != types.CellType())
    yield "defaults", (function.__defaults__, function.__kwdefaults__)
    yield "attributes", vars(function)
    if _of_library(function):
        return
    for name in function.__code__.co_names:
        part = function.__globals__.get(name)
        if isinstance(part, (*_KEPT, types.FunctionType)):
            yield name, part


def _parts_of_object(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an object, and those of its classes: a list that stands in a class is one for all runs."""
    if hasattr(value, "__dict__"):
        skipped = _HOOKS if isinstance(value, nn.Module) else set()
        if _of_library(type(value)):
            skipped = skipped | _OPACUS_NOTES
        yield from ((key, part) for key, part in vars(value).items() if key not in skipped)
    if not isinstance(value, nn.Module):
        return
    for kind in type(value).__mro__:
        if not _of_library(kind):
            yield from ((key, _plain_method(part)) for key, part in vars(kind).items() if not key.startswith("__"))


def _plain_method(part: Any) -> Any:
    """The function behind a class method, a static method or a property."""
    return getattr(part, "__func__", None) or getattr(part, "fget", None) or part


def _of_library(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "").partition(".")[0] in _LIBRARIES


def _readable(name: str) -> str:
    for extra in _TORCH_DICTS:
        name = name.replace(extra, "")
    return name.removeprefix(".")


def _copy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return value.copy() if isinstance(value, np.ndarray) else value


def _same(this: Any, that: Any) -> bool:
    """Whether two values have the same type, shape and bits."""
    if isinstance(this, torch.Tensor) and isinstance(that, torch.Tensor):
        return this.dtype == that.dtype and this.shape == that.shape and torch.equal(_bits(this), _bits(that))
    if isinstance(this, np.ndarray) and isinstance(that, np.ndarray):
        return this.dtype == that.dtype and this.shape == that.shape and this.tobytes() == that.tobytes()
    return type(this) is type(that) and (this == that or this != this)


def _bits(value: torch.Tensor) -> torch.Tensor:
    plain = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
    return plain.cpu().contiguous().flatten().view(torch.uint8)
