"""Which search rules see only the history: they are accounted for by Theorem H, which costs less."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import random
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable
from enum import Enum
from types import NoneType
from typing import Any

import numpy as np

from dphypo._validate import class_promises, full_name
from dphypo.band.problem import Projection
from dphypo.samplers.proposals import OptunaSampler, Proposals
from dphypo.samplers.sampler import Sampler

FLAG = "history_only"


def basis(sampler: Sampler, projection: Projection | None = None) -> str | None:
    """Who vouches that a search rule and its projection see only the history; None if one of them may see more.

    The library's own do, and Optuna's samplers inside ours, if they hold nothing but plain data. Any other class does
    if ``history_only = True`` stands in the class that defines ``weights`` (of a projection: ``ratios``). With it
    its author promises that the weights are a function of the candidates, the history and independent randomness: not
    of the data, the clock, the number of runs, memory, or state that the history does not determine. A subclass does
    not inherit it. A function that proposes has the flag as an attribute of its own.
    """
    found = _of_sampler(sampler)
    if found is None or projection is None or (is_from(type(projection), "dphypo") and all_known(projection)):
        return found
    return f"{found}; {_word(projection)}" if class_promises(projection, FLAG, "ratios") else None


def _of_sampler(sampler: Sampler) -> str | None:
    kind = type(sampler)
    if kind in (OptunaSampler, Proposals):
        settings = [value for name, value in vars(sampler).items() if name not in ("sampler", "propose")]
        return _of_inner(sampler) if all_known(settings) else None
    if not class_promises(sampler, FLAG, "weights"):
        return None
    if not is_from(kind, "dphypo"):
        return _word(sampler)
    return _given(kind) if all_known(sampler) else None


def _of_inner(sampler: Sampler) -> str | None:
    """Who vouches that a rule inside one of our samplers sees only the history."""
    if isinstance(sampler, OptunaSampler):
        inner = sampler.sampler
        if is_from(type(inner), "optuna") and all_known(inner):
            return _given(type(inner))
        return _word(inner) if class_promises(inner, FLAG, "sample_relative", "sample_independent") else None
    assert isinstance(sampler, Proposals)
    propose = sampler.propose
    function = propose.__func__ if inspect.ismethod(propose) else propose
    if not inspect.isfunction(function):
        return _word(propose) if class_promises(propose, FLAG, "__call__") else None
    # functools.wraps copies the attributes of a function to another one, which may do anything.
    own = vars(function)
    return _word(function) if own.get(FLAG) is True and "__wrapped__" not in own else None


def _given(kind: type) -> str:
    return f"{full_name(kind)}, which is given the history and nothing else"


def _word(thing: object) -> str:
    return f"the word of the author of {full_name(thing)}, who declared {FLAG} = True there"


def description(sampler: Sampler) -> dict[str, Any]:
    """A rule's class and settings as JSON, to see whether a study is resumed with the rule it was begun with."""
    kind = type(sampler)
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    if fields:
        shown = {field.name: getattr(sampler, field.name) for field in fields if field.repr}
    else:  # a class of the user's: what it shows of itself
        shown = {name: value for name, value in getattr(sampler, "__dict__", {}).items() if not name.startswith("_")}
    return {"rule": full_name(kind), "settings": {name: _setting(value) for name, value in shown.items()}}


def _setting(value: object) -> str:
    """Plain values as they are written; of other objects their class or name, since ``repr`` may show an address."""
    plain = isinstance(value, (bool, int, float, str, tuple, enum.Enum)) or value is None
    if plain or dataclasses.is_dataclass(value):
        return repr(value)
    if inspect.isroutine(value) or not is_from(type(value), "optuna"):
        return full_name(value)
    kept = [
        (key, _setting(one))
        for key, one in vars(value).items()
        if "seed" not in key  # it may be drawn
        and (isinstance(one, (bool, int, float, str)) or type(one).__name__.endswith("Sampler"))
    ]
    return full_name(value) + repr(sorted(kept))


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
