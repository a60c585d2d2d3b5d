"""A training as a text, so that a study resumes with the same one.

All runs of a study must be runs of one training (condition 2 of docs/theory/selection.md). If its first 20 runs train
in one way and the others in another, ε of one run may count 20 times: a later run wins only if each of the first 20
ranks below it, and nothing bounds how many those are.

The text holds what a program says: the compiled code of functions, and settings. It holds no array and nothing of a
closure, which may come from records. So it does not show a change in a helper that a function calls, or in a library.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Mapping, Set
from types import CodeType
from typing import Any

import numpy as np

from dphypo._validate import full_name

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), enum.Enum, np.generic)
_ELSEWHERE = frozenset({"data", "example", "person", "split", "noise_multiplier"})
"""Fields that a journal compares in another way, as records or in an event."""
_DEPTH = 8  # of settings inside settings


def code_of(function: Callable[..., Any]) -> Any:
    """The function itself without arguments that were given to it, or what is called of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if hasattr(function, "__code__") else type(function).__call__


def text_of(value: Any, depth: int = _DEPTH) -> str:
    """A function by its code, settings by their values, and anything else by its class.

    >>> text_of(lambda x: x + 1) == text_of(lambda x: x + 2), text_of(lambda x: x + 1) == text_of(lambda x: x + 1)
    (False, True)
    >>> text_of({"b": (1, 2.0), "a": None}), text_of(np.zeros(3))
    ("{'a': None, 'b': (1, 2.0)}", '<numpy.ndarray>')
    """
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, CodeType):  # without the names of files and the numbers of lines
        return f"<{value.co_code.hex()} {value.co_names} {text_of(value.co_consts, depth)}>"
    if isinstance(value, type) or depth == 0:
        return f"<{full_name(value)}>"
    inner = functools.partial(text_of, depth=depth - 1)
    if isinstance(value, functools.partial):
        return f"<{inner(value.func)} {inner(value.args)} {inner(value.keywords)}>"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(inner, value))})"
    if isinstance(value, Set):
        return f"{{{', '.join(sorted(map(inner, value)))}}}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{inner(name)}: {inner(one)}' for name, one in value.items()))}}}"
    if hasattr(value, "__code__"):
        return inner(value.__code__)
    if dataclasses.is_dataclass(value):
        return f"<{full_name(value)} {inner(settings_of(value))}>"
    own = {name: one for name, one in getattr(value, "__dict__", {}).items() if isinstance(one, _PLAIN)}
    return f"<{full_name(value)} {inner(own)}>" if own else f"<{full_name(value)}>"


def settings_of(value: Any, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The public fields of a dataclass, but for those that a journal compares in another way."""
    names = (one.name for one in dataclasses.fields(value) if not one.name.startswith("_"))
    return {name: getattr(value, name) for name in names if name not in _ELSEWHERE | without}
