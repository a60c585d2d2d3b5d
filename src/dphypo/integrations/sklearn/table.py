"""Tables, read one value at a time: a value that is not a number must not affect the others.

The names and the types of the columns are public. The values are not, and nothing here raises or warns because of one.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Holds(enum.Enum):
    """What a column holds, by its type alone."""

    NUMBERS = "numbers"
    TEXTS = "texts"
    TIMES = "times"
    ANYTHING = "anything"


def holds(values: Any) -> Holds:
    """What a column, an array or a series holds, by its type.

    >>> holds(np.array(["a"])), holds(np.array([1.5])), holds(np.array(["2024-01-01"], dtype="datetime64[D]"))
    (<Holds.TEXTS: 'texts'>, <Holds.NUMBERS: 'numbers'>, <Holds.TIMES: 'times'>)
    """
    kind = getattr(values, "dtype", None)
    kind = getattr(getattr(kind, "categories", None), "dtype", kind)  # of a categorical column, that of its categories
    letter, name = getattr(kind, "kind", "O"), str(kind)
    if letter in "biufc":
        return Holds.NUMBERS
    if letter in "Mm" or name.startswith("period"):
        return Holds.TIMES
    return Holds.TEXTS if letter in "US" or name.startswith("str") else Holds.ANYTHING


def columns_of(table: Any) -> Iterator[tuple[str, Holds]]:
    """The name of each column, and what it holds. An array has one type for all."""
    if hasattr(table, "columns"):
        for name in table.columns:
            yield repr(name), holds(table[name])
    else:
        yield "X", holds(table)


def refuse_times(table: Any) -> None:
    """TypeError for a column of dates, times or durations: as numbers they would all count as missing."""
    for name, kind in columns_of(table):
        if kind is Holds.TIMES:
            raise TypeError(
                f"column {name} holds times: give a number in its place, such as the days since a date that you choose"
            )


def warn_of_texts(table: Any, *, stacklevel: int) -> None:
    """Warn of columns that hold texts, by their type, where numbers are asked for."""
    found = [name for name, kind in columns_of(table) if kind in (Holds.TEXTS, Holds.ANYTHING)]
    if found and hasattr(table, "columns"):
        warnings.warn(
            f"column {found[0]} is not of a type of numbers: a value that is not a number counts as missing. Encode "
            f"categories, for example with dphypo.integrations.sklearn.Schema",
            stacklevel=stacklevel,
        )


def check_labels(y: Any, classes: Any) -> None:
    """Refuse labels whose type is not that of the declared classes: all records would be left out."""
    labels, kind = np.asarray(classes).tolist(), holds(y)
    words = any(isinstance(label, str) for label in labels)
    if kind is Holds.ANYTHING and not words:
        warnings.warn(
            f"y is of no type of numbers and classes = {classes!r} are numbers: a record whose label is none of the "
            f"classes is left out",
            stacklevel=5,
        )
    elif (kind is Holds.TEXTS and not words) or (kind is Holds.NUMBERS and np.isnan(numbers(labels)).any()):
        raise ValueError(
            f"classes = {classes!r} and y holds {kind.value}: such records would be left out. Give the labels that y "
            f"has, from public knowledge"
        )


def numbers(values: Any) -> Any:
    """A table in which every value that is not a number is NaN, each judged by itself; frames stay frames.

    >>> numbers([["1.5", 2], [None, "two"]])
    array([[1.5, 2. ],
           [nan, nan]])
    """
    if hasattr(values, "iloc"):
        types = values.dtypes if hasattr(values, "columns") else [values.dtype]
        if all(isinstance(kind, np.dtype) and kind.kind in "biufc" for kind in types):
            return values
        found = _each(values.to_numpy(dtype=object), _float, np.float64)
        return type(values)(found, index=values.index, **_named(values))
    array = values if hasattr(values, "dtype") or hasattr(values, "toarray") else np.asarray(values)
    if array.dtype.kind in "OSU" and not hasattr(array, "toarray"):
        return _each(np.asarray(array), _float, np.float64)
    return values


def plain_values(values: Any) -> Any:
    """A table of plain Python values, NaN for what is missing, each read by itself; frames stay frames.

    >>> plain_values([[np.int64(1), None]])
    array([[1, nan]], dtype=object)
    """
    if hasattr(values, "iloc"):
        found = _each(values.to_numpy(dtype=object), _plain, object)
        return type(values)(found, index=values.index, dtype=object, **_named(values))
    return _each(np.asarray(values, dtype=object), _plain, object)


def _named(frame: Any) -> dict[str, Any]:
    return {"columns": frame.columns} if hasattr(frame, "columns") else {"name": frame.name}


def _each(values: npt.NDArray[Any], read: Any, kind: Any) -> npt.NDArray[Any]:
    found = np.empty(values.size, dtype=kind)
    for place, value in enumerate(values.ravel()):
        found[place] = read(value)
    return found.reshape(values.shape)


def _float(value: Any) -> float:
    try:
        return float(value)
    except Exception:  # whatever a value's own class raises
        return np.nan


def _plain(value: Any) -> Any:
    if is_missing(value):
        return np.nan
    return value.item() if isinstance(value, np.generic) else value


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or pandas' NA."""
    try:
        return value is None or type(value).__name__ == "NAType" or bool(value != value)
    except Exception:  # an object that cannot be compared
        return False
