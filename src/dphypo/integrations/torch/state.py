"""What a forward pass could write to, and read again: nothing of it may change, since noise is on gradients alone.

What a forward pass writes (running statistics; rows that ``nn.Embedding(max_norm=...)`` renormalises) is learnt from
records without noise. So everything that the model and its loss reach is compared before and after, to the bit, and in
training every write to a parameter inside a forward pass is noticed.

The walk follows attributes and ``__slots__``, containers, closures and defaults, methods and attributes of classes, and
the global variables that functions name. Tensors, arrays and plain values are its leaves. Code of the libraries named
below keeps nothing of a batch and is not looked into; what is stored in its objects is. An object that can hold
something the walk cannot see, such as an iterator, a file or a random generator, is refused by name.
"""

from __future__ import annotations

import array
import collections
import contextlib
import datetime
import decimal
import dis
import fractions
import functools
import itertools
import logging
import operator
import pathlib
import re
import struct
import sys
import sysconfig
import threading
import types
import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from dphypo.errors import UnsupportedModelError

_LIBRARIES = {"torch", "torchvision", "torchaudio", "transformers", "peft", "timm", "einops", "opacus"}
_LIBRARIES |= {"numpy", "scipy", "safetensors", "dphypo"}
_STANDARD = sysconfig.get_paths()["stdlib"]

_PLAIN = (
    *(bool, int, float, complex, str, bytes, range, types.NoneType, types.EllipsisType, types.NotImplementedType),
    *(np.generic, np.dtype, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo),
    *(fractions.Fraction, decimal.Decimal, uuid.UUID, pathlib.PurePath, re.Pattern),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
)
_COLLECTIONS = (list, tuple, torch.Size, set, frozenset, collections.deque)
_MAPPINGS = (dict, collections.OrderedDict, types.MappingProxyType)
_STATELESS = (
    *(types.CodeType, types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodDescriptorType),
    *(types.WrapperDescriptorType, types.ClassMethodDescriptorType, types.GenericAlias, types.UnionType),
    *(operator.itemgetter, operator.attrgetter, operator.methodcaller, np.ufunc, torch.jit.ScriptFunction),
    *(logging.Logger, type(threading.Lock()), type(threading.RLock())),
)
_CACHE = type(functools.lru_cache(lambda: None))
# Kinds whose contents are read in a way of their own.
_READ = (*_COLLECTIONS, *_MAPPINGS, *_PLAIN, torch.Tensor, np.ndarray, bytearray, array.array, threading.local)
# What PyTorch and Opacus note while hooks are attached.
_NOTES = {"_is_full_backward_hook", "_abc_impl"}
_OPACUS_NOTES = {"max_batch_len", "max_batch_length", "activations"}
_POINTER = struct.calcsize("P")


def leaves(roots: tuple[object, ...], trained: frozenset[int] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Every leaf by the path to it, each object once, but for tensors whose identities are ``trained``.

    >>> dict(leaves(([1, (2.0, None)],)))
    {'0': 1, '1.0': 2.0, '1.1': None}
    """
    seen: dict[int, object] = {}  # by identity; kept, so that no identity is given twice
    waiting: list[tuple[str, object]] = [("", root) for root in reversed(roots)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, _PLAIN) and _of_library(type(value).__module__):
            yield _readable(name), value
        elif id(value) not in seen:
            seen[id(value)] = value
            if (leaf := _leaf(value)) is not None and id(value) not in trained:
                yield _readable(name), leaf
            parts = [(f"{name}.{key}", part) for key, part in _parts(name, value) if id(part) not in seen]
            waiting += reversed(parts)


def _leaf(value: object) -> Any:
    """What an object is by itself, apart from its attributes: a tensor, an array, bytes or a plain value, or None."""
    if isinstance(value, bytearray | array.array):
        return bytes(value)
    if isinstance(value, np.ndarray):
        return None if value.dtype.hasobject else value
    return value if isinstance(value, (torch.Tensor, *_PLAIN)) else None


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds; an error if it may hold something else."""
    if isinstance(value, _STATELESS) or type(value).__module__ in ("typing", "torch._ops"):
        return
    if isinstance(value, types.ModuleType):
        return  # functions say which of its variables they use
    if isinstance(value, type):
        if not _of_library(value.__module__):
            yield from ((key, part) for key, part in vars(value).items() if key not in _NOTES)
            yield "bases", value.__bases__
    elif isinstance(value, types.FunctionType):
        yield from _parts_of_function(value)
    elif isinstance(value, types.MethodType | types.BuiltinFunctionType | types.MethodWrapperType):
        yield "function", getattr(value, "__func__", None)
        if not isinstance(value.__self__, types.ModuleType) and type(value.__self__).__name__ != "PyCapsule":
            yield "self", value.__self__
    elif isinstance(value, functools.partial):
        yield "function", value.func
        yield "arguments", (value.args, value.keywords)
    elif isinstance(value, property):
        yield "functions", (value.fget, value.fset, value.fdel)
    elif isinstance(value, classmethod | staticmethod):
        yield "function", value.__func__
    elif isinstance(value, _CACHE):
        yield "calls", tuple(value.cache_info())[1:]
        yield "function", value.__wrapped__
    elif isinstance(value, weakref.ref):
        yield "object", value()
    else:
        if (hidden := _hidden(type(value))) is not None:  # type: ignore[arg-type]
            raise UnsupportedModelError(
                f"{_readable(name)!r} of the model is a {hidden}, which cannot be looked into: it may keep something "
                "of the records without noise. Keep tensors, numbers and collections of them; draw random numbers from "
                "PyTorch's global generator"
            )
        yield from _items(value)
        yield from _attributes(value)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """What stands in a container."""
    if isinstance(value, _MAPPINGS):
        yield "keys", tuple(value)
        yield from ((str(key) if type(key) in _PLAIN else f"item {n}", value[key]) for n, key in enumerate(value))
    elif isinstance(value, _COLLECTIONS):
        yield from ((str(place), part) for place, part in enumerate(value))
    elif isinstance(value, np.ndarray) and value.dtype.hasobject:
        yield "items", list(value.flat)
    elif isinstance(value, torch.Tensor):
        for hooks in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            yield hooks, getattr(value, hooks, None)
        if not value.requires_grad and value.is_leaf and value.grad is not None:
            yield "grad", value.grad


def _attributes(value: object) -> Iterator[tuple[str, Any]]:
    """The attributes and slots of an object, and its class: a list that stands there is one for all runs."""
    kind = type(value)
    skipped = _NOTES | _OPACUS_NOTES if kind.__module__.startswith("opacus.") else _NOTES
    yield from ((key, part) for key, part in getattr(value, "__dict__", {}).items() if key not in skipped)
    for key, slot in _slots(kind):  # type: ignore[arg-type]
        with contextlib.suppress(AttributeError):  # an empty slot
            yield key, slot.__get__(value)
    yield "class", kind


@functools.cache
def _slots(kind: type) -> list[tuple[str, types.MemberDescriptorType]]:
    every = (item for base in kind.__mro__ for item in vars(base).items())
    return [(key, slot) for key, slot in every if isinstance(slot, types.MemberDescriptorType)]


def _parts_of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function closes over, its defaults and attributes, and the global variables that it names."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    yield from ((name, cell.cell_contents) for name, cell in cells if cell != types.CellType())
    yield "defaults", (function.__defaults__, function.__kwdefaults__)
    yield "attributes", vars(function)
    if not _of_library(function.__globals__.get("__name__")):
        own, names = _names(function.__code__)
        yield from _variables(function.__globals__, own, names, set())


def _variables(
    module: Mapping[str, Any], own: frozenset[str], names: frozenset[str], seen: set[int]
) -> Iterator[tuple[str, Any]]:
    """The variables of a module that code names, and those of the modules among them that it names at all."""
    for name in sorted(own & module.keys()):
        value = module[name]
        if not isinstance(value, types.ModuleType):
            if not (isinstance(value, type | types.FunctionType) and _of_library(value.__module__)):
                yield name, value
        elif id(value) not in seen:
            seen.add(id(value))
            found = _variables(vars(value), names, names, seen)
            # Variables of libraries that hold plain data: somebody else could have put them there.
            library = _of_library(value.__name__)
            yield from ((f"{name}.{key}", part) for key, part in found if not library or isinstance(part, _READ))


@functools.cache
def _names(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The global variables that a function names, and all names in its code; those of functions that it makes too."""
    inner = [_names(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    variables = {step.argval for step in dis.get_instructions(code) if step.opname.endswith(("_GLOBAL", "_NAME"))}
    own, every = ([part[place] for part in inner] for place in (0, 1))
    return frozenset(variables).union(*own), frozenset(code.co_names).union(*every)


@functools.cache
def _of_library(module: str | None) -> bool:
    """Whether a module belongs to the standard library or to a library whose code keeps nothing of a batch."""
    if not module or module.partition(".")[0] in _LIBRARIES:
        return bool(module)
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module.partition(".")[0] in sys.stdlib_module_names
    return file.startswith(_STANDARD) and "site-packages" not in file


@functools.cache
def _hidden(kind: type) -> str | None:
    """The name of a base whose objects have memory that no attribute shows; None if there is none."""
    while kind is not object and kind not in _READ:
        base = kind.__base__
        assert base is not None
        shown = sum(isinstance(part, types.MemberDescriptorType) for part in vars(kind).values())
        shown += sum(name in vars(kind) for name in ("__dict__", "__weakref__"))
        more = kind.__basicsize__ - base.__basicsize__
        if more > _POINTER * shown or kind.__itemsize__ > base.__itemsize__:
            return f"{kind.__module__}.{kind.__qualname__}"
        kind = base
    return None


def _readable(name: str) -> str:
    for extra in ("_parameters.", "_buffers.", "_modules."):
        name = name.replace(extra, "")
    return name.removeprefix(".")


@contextlib.contextmanager
def unchanged(*roots: object, trained: Iterable[torch.Tensor] = ()) -> Iterator[None]:
    """:class:`UnsupportedModelError` if what happens inside changes anything that is reached, to the bit.

    ``trained`` are parameters that a step of the optimiser changes, which are left out.
    """

    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().clone()
        return value.copy() if isinstance(value, np.ndarray) else value

    left_out = frozenset(map(id, trained))
    before = [(name, copied(value)) for name, value in leaves(roots, left_out)]
    yield
    known, found = {name for name, _ in before}, leaves(roots, left_out)
    for (name, value), (now, other) in itertools.zip_longest(before, found, fillvalue=("", None)):
        if name != now or not _same(value, other):
            changed = name if now in known or not now else now
            raise UnsupportedModelError(
                f"{changed!r} of the model changes when records go through it, without noise. Use layers without "
                "running statistics (GroupNorm, LayerNorm) and without max_norm, create what the forward pass needs in "
                "__init__, and keep nothing of a batch"
            )


class WrittenStateError(UnsupportedModelError):
    """The forward pass wrote to the model. Unlike what a record raises, dropping the batch would not undo it."""


@contextlib.contextmanager
def no_writes_in_forward(model: nn.Module) -> Iterator[None]:
    """Notice a forward pass that writes to a parameter or a buffer in place, on whatever records it does so."""
    before: list[tuple[int, torch.Tensor]] = []

    def held() -> Iterator[tuple[int, torch.Tensor]]:
        """Versions, and the bits too: a write to ``.data`` counts no version."""
        for tensor in (*model.parameters(), *model.buffers()):
            yield tensor._version, tensor.detach().to_dense().flatten().view(torch.uint8)

    def enter(module: nn.Module, inputs: object) -> None:
        before[:] = [(version, value.clone()) for version, value in held()]

    def leave(module: nn.Module, inputs: object, outputs: object) -> None:
        pairs = zip(before, held(), strict=True)
        if not all(this[0] == that[0] and torch.equal(this[1], that[1]) for this, that in pairs):
            raise WrittenStateError(
                "the model's forward pass writes to its own parameters or buffers: what it learns there from records "
                "gets no noise. Make the forward pass a function of the parameters and one batch"
            )

    hooks = model.register_forward_pre_hook(enter), model.register_forward_hook(leave)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _same(this: object, that: object) -> bool:
    """Whether two values have the same type, shape and bits."""
    if isinstance(this, torch.Tensor) and isinstance(that, torch.Tensor):
        return this.dtype == that.dtype and this.shape == that.shape and torch.equal(bits(this), bits(that))
    if isinstance(this, np.ndarray) and isinstance(that, np.ndarray):
        return this.dtype == that.dtype and this.shape == that.shape and this.tobytes() == that.tobytes()
    return type(this) is type(that) and (this == that or this != this)


def bits(value: torch.Tensor) -> torch.Tensor:
    plain = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
    return plain.cpu().contiguous().flatten().view(torch.uint8)
