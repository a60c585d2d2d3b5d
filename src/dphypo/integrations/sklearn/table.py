"""Tables of numbers, read one value at a time: a value that is not a number must not affect the others."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt


def numbers(values: Any) -> Any:
    """A table in which every value that is not a number is NaN, each judged by itself; frames stay frames.

    >>> numbers([["1.5", 2], [None, "two"]])
    array([[1.5, 2. ],
           [nan, nan]])
    """
    if hasattr(values, "iloc"):
        if all(getattr(kind, "kind", "O") in "biufc" and isinstance(kind, np.dtype) for kind in _types(values)):
            return values
        found = _floats(values.to_numpy(dtype=object))
        return type(values)(found, index=values.index, **_named(values))
    array = values if hasattr(values, "dtype") or hasattr(values, "toarray") else np.asarray(values)
    if getattr(array.dtype, "kind", "f") in "OSU" and not hasattr(array, "toarray"):
        return _floats(np.asarray(array))
    return values


def _types(frame: Any) -> Any:
    return frame.dtypes if hasattr(frame, "columns") else [frame.dtype]


def _named(frame: Any) -> dict[str, Any]:
    return {"columns": frame.columns} if hasattr(frame, "columns") else {"name": frame.name}


def _floats(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    found = np.array([_float(value) for value in values.ravel()], dtype=np.float64).reshape(values.shape)
    if found.ndim == 2 and len(found) and np.isnan(found).all(0).any():
        column = int(np.flatnonzero(np.isnan(found).all(0))[0])
        warnings.warn(f"column {column} holds no number: all its values count as missing. Encode it", stacklevel=6)
    return found


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan
