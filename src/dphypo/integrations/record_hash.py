"""Records as bytes to hash: each value is read as a number or a text of its own, whatever holds it.

What becomes of a record must not depend on the others even through the array that holds them: one fractional number
turns a column of integers into floats, one long string widens the others' type, one missing value turns numbers into
objects.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

import numpy as np
import numpy.typing as npt

from dphypo.mechanisms.outcome import is_signal, or_none

_WORDS = {"true": 1.0, "false": 0.0, **dict.fromkeys(("none", "nan", "nat", "<na>", ""), math.nan)}


def structure_bytes(record: Any) -> bytes:
    """One record of any structure as canonical bytes; a pair (input, target) has those that arrays of both give.

    >>> structure_bytes((np.array([1.0]), 2)) == record_bytes([[1]])[0] + b"|" + record_bytes([2])[0]
    True
    >>> structure_bytes({"b": [1, 2], "a": 3}) == structure_bytes({"a": np.array(3.0), "b": np.array([1, 2])})
    True
    """
    if (fields := fields_of(record)) is not None:
        parts = ((_shown(name).encode(), structure_bytes(fields[name])) for name in sorted(fields, key=_shown))
        return b"".join(b"%d:%s%d:%s" % (len(name), name, len(value), value) for name, value in parts)
    if isinstance(record, tuple):
        return b"|".join(map(structure_bytes, record))
    return record_bytes(record[None] if hasattr(record, "detach") or isinstance(record, np.ndarray) else [record])[0]


def fields_of(record: object) -> dict[Any, Any] | None:
    """The fields of a mapping or a dataclass, by name; None of anything else."""
    if isinstance(record, Mapping):
        return dict(record)
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {part.name: getattr(record, part.name) for part in dataclasses.fields(record)}
    return None


def record_bytes(values: Any) -> list[bytes]:
    """Each record as canonical bytes: its numbers in single precision, then its texts with their positions.

    >>> record_bytes(np.array([[1, 2]])) == record_bytes([[1.0, "2"]]) == record_bytes(np.array([["1", "2"]]))
    True
    """
    if hasattr(values, "columns") and hasattr(values, "iloc"):
        # A frame: its columns by name, in whatever order they come.
        order = sorted(range(len(values.columns)), key=lambda place: str(values.columns[place]))
        values = values.iloc[:, order]
        if not all(getattr(kind, "kind", "O") in "biuf" and isinstance(kind, np.dtype) for kind in values.dtypes):
            columns = [map(_value, values.iloc[:, place].to_numpy(dtype=object)) for place in range(len(order))]
            return [_record(row) for row in zip(*columns, strict=True)]
        values = values.to_numpy(dtype=np.float64)
    rows = _array(values)
    if rows.dtype.kind in "biuf":
        return [row.tobytes() for row in _single(rows.reshape(len(rows), -1 if rows.size else 0))]
    return [or_none(lambda row=row: _record(_value(value) for value in _flat(row))) or b"" for row in rows]  # type: ignore[misc]


def _record(values: Iterable[float | str]) -> bytes:
    read = list(values)
    numbers = _single(np.array([value if isinstance(value, float) else math.nan for value in read]))
    texts = ((place, value.encode("utf-8", "surrogatepass")) for place, value in enumerate(read) if type(value) is str)
    return numbers.tobytes() + b"".join(f"{place}:{len(text)}:".encode() + text for place, text in texts)


def _array(values: Any) -> npt.NDArray[Any]:
    """One row per record. A list becomes numbers, or objects: numpy would make texts of all where one is a text."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        # numpy has no bfloat16.
        values = (values.float() if values.is_floating_point() and values.element_size() < 4 else values).numpy()
    elif hasattr(values, "iloc"):
        values = values.to_numpy(dtype=object)
    if isinstance(values, np.ndarray):
        return values
    values = list(values)
    numbers = or_none(lambda: np.asarray(values))
    if numbers is not None and numbers.dtype.kind in "biuf":
        return numbers
    rows = np.empty(len(values), dtype=object)
    for place, row in enumerate(values):
        rows[place] = row
    return rows


def _flat(row: Any) -> Iterable[Any]:
    if (fields := fields_of(row)) is not None:
        row = [fields[name] for name in sorted(fields, key=_shown)]
    elif isinstance(row, Set):  # its own order differs between processes
        row = sorted(row, key=lambda value: _record(_value(one) for one in _flat(value)))
    elif isinstance(row, str | bytes) or getattr(row, "shape", None) == () or not hasattr(row, "__len__"):
        yield row
        return
    for value in row:
        yield from _flat(value)


def _single(numbers: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Little-endian single precision, rounded once from double precision, with one zero and one NaN."""
    exact = numbers.dtype.itemsize <= (4 if numbers.dtype.kind == "f" else 2)
    with np.errstate(over="ignore"):
        single = (numbers if exact else numbers.astype(np.float64)).astype("<f4") + np.float32(0.0)
    single[np.isnan(single)] = np.nan
    return single


def _value(value: Any) -> float | str:
    """One value as a number if it can be read as one, else as a text; NaN if missing; its class's name if it raises."""
    found = or_none(lambda: _read(value))
    return type(value).__name__ if found is None else found


def _read(value: Any) -> float | str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if isinstance(value, datetime.date | datetime.timedelta | np.datetime64 | np.timedelta64):
        value = _instant(value)
    elif isinstance(value, str):
        value = value.rstrip("\0")
    elif value is None or type(value).__name__ == "NAType":
        return math.nan
    else:
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
        except BaseException as error:
            if is_signal(error):
                raise
            # Its text, unless that holds an address in memory.
            kind: Any = type(value)
            silent = kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__
            value = kind.__name__ if silent else _shown(value)
    text = str(value)
    if (plain := text.strip().lower()) in _WORDS:
        return _WORDS[plain]
    try:
        return float(text)
    except ValueError:
        return text


def _shown(value: Any, write: Callable[[Any], str] = str) -> str:
    """``str(value)``, but what a set holds, at any depth, is in the order of its text and not of its hashes."""
    if dataclasses.is_dataclass(value):
        value = fields_of(value) or value
    kind = type(value)
    if kind is dict:
        return "{" + ", ".join(f"{_shown(key, repr)}: {_shown(one, repr)}" for key, one in value.items()) + "}"
    if kind not in (list, tuple, set, frozenset):
        return write(value)
    parts = [_shown(one, repr) for one in value]
    if kind is list:
        return f"[{', '.join(parts)}]"
    if kind is tuple:
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    return f"{kind.__name__}({', '.join(sorted(parts))})"


def _instant(value: Any) -> str:
    """A date, a time or a duration as a text that does not depend on its unit or its library."""
    value = getattr(value, "asm8", value)  # pandas
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    duration = isinstance(value, datetime.timedelta | np.timedelta64)
    found = np.timedelta64(value, "ns") if duration else np.datetime64(value, "ns")
    return "NaT" if np.isnat(found) else f"{'lasts' if duration else 'at'} {found.astype(np.int64)} ns"
