"""Whether all that an object holds comes from this library, from Optuna, or is plain data."""

from __future__ import annotations

import inspect
import random
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable
from enum import Enum
from types import NoneType

import numpy as np

_PACKAGES = ("dphypo", "optuna")
_PLAIN = (NoneType, bool, int, float, complex, str, bytes, random.Random, type(threading.Lock()))
_COLLECTIONS = (list, tuple, set, frozenset, deque)
_MAPPINGS = (dict, OrderedDict)
_BITS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")  # numpy's own sources of bits


def all_known(value: object, seen: dict[int, object] | None = None) -> bool:
    """Whether a value and everything in it is plain data or an object of this library or of Optuna.

    Types are compared exactly: a subclass of ``float`` can compute what it likes, and so can an array of objects,
    ``np.vectorize`` or a function that somebody else wrote.

    >>> all_known({"gamma": [0.25, np.arange(3)]}), all_known(np.vectorize(lambda runs: 3)), all_known(np.array([len]))
    (True, False, False)
    """
    seen = {} if seen is None else seen
    if id(value) in seen:
        return True
    seen[id(value)] = value  # kept, so that no other object gets its id
    held = _held(value)
    return held is not None and all(all_known(one, seen) for one in held)


def _held(value: object) -> Iterable[object] | None:
    """What a value holds that could compute something; None if the value itself is unknown."""
    kind = type(value)
    found: Iterable[object] | None = None
    if kind in _PLAIN:
        found = ()
    elif isinstance(value, (np.ndarray, np.generic)):
        exact = kind is np.ndarray or kind.__module__ == "numpy"
        found = () if exact and not value.dtype.hasobject else None
    elif isinstance(value, (np.random.RandomState, np.random.Generator)):
        found = () if kind.__module__.startswith("numpy.random.") and _bits(value) in _BITS else None
    elif kind in _MAPPINGS:
        found = [part for item in value.items() for part in item]  # type: ignore[attr-defined]
    elif kind in _COLLECTIONS:
        found = list(value)  # type: ignore[call-overload]
    elif isinstance(value, type) or inspect.isfunction(value):
        found = () if is_from(value, *_PACKAGES) else None
    elif inspect.ismethod(value):
        found = (value.__func__, value.__self__)
    elif is_from(kind, *_PACKAGES):
        found = () if isinstance(value, Enum) else _attributes(value)
    return found


def _bits(value: np.random.RandomState | np.random.Generator) -> object:
    state = value.bit_generator.state if isinstance(value, np.random.Generator) else value.get_state(legacy=False)
    return state["bit_generator"]


def _attributes(value: object) -> list[object]:
    slots = [name for kind in type(value).__mro__ for name in vars(kind).get("__slots__", ())]
    held = [getattr(value, name) for name in slots if hasattr(value, name)]
    return [*getattr(value, "__dict__", {}).values(), *held, *(value if isinstance(value, _COLLECTIONS) else ())]


def is_from(thing: object, *packages: str) -> bool:
    """Whether a class or function is the one of its name in one of these packages."""
    module = str(getattr(thing, "__module__", ""))
    if module.partition(".")[0] not in packages:
        return False
    found: object = sys.modules.get(module)
    for name in str(getattr(thing, "__qualname__", "")).split("."):
        found = getattr(found, name, None)
    return found is thing
