"""The values a parameter may take: plain Python values that every process and every journal spells the same way."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from typing import Any, TypeAlias

import numpy as np

from dphypo import _validate

Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | None"


def plain(where: str, value: object) -> Value:
    """The value as a plain Python one: numpy scalars are unwrapped, lists (what JSON makes of tuples) become tuples."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (tuple, list)):
        return tuple(plain(where, part) for part in value)
    if type(value) is float and math.isnan(value):
        raise _validate.fail(where, value, "NaN equals nothing, itself included; use None for a missing value")
    if value is None or type(value) in (bool, int, float, str):
        return value  # type: ignore[return-value]
    raise _validate.fail(
        where, value, "values are None, bool, int, float, str or tuples of these; give it a name and look that up"
    )


def is_number(value: object) -> bool:
    """Whether a plain value is an int or a float; a bool is not a number here."""
    return type(value) in (int, float)


def key(value: Value) -> Hashable:
    """What tells values apart: type and value, so that True, 1 and 1.0 are three values."""
    return tuple(key(part) for part in value) if isinstance(value, tuple) else (type(value), value)


def texts(value: Value) -> Iterator[str]:
    """The texts in a value."""
    if isinstance(value, tuple):
        for part in value:
            yield from texts(part)
    elif isinstance(value, str):
        yield value


def describe(value: Value) -> Any:
    """The value as strict JSON from which it can be read back: tuples and infinities are marked."""
    if isinstance(value, tuple):
        return {"tuple": [describe(part) for part in value]}
    if isinstance(value, float) and math.isinf(value):
        return {"float": repr(value)}
    return value
