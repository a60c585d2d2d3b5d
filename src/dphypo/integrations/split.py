"""Setting records apart for scoring, in a way that costs no more than either part.

A record's part is a function of that record alone. It must not depend on the other records even through the array that
holds them: one fractional number turns a column of integers into floats, one long string widens the others' type, one
missing value turns numbers into objects. So every value is read as a number or a text of its own, whatever holds it.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import math
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.accounting import Split
from dphypo.accounting.sides import EVERYONE, Part, Side, Sides

_MISSING = frozenset({"none", "nan", "nat", "<na>", ""})
_TRUTH = {"true": 1.0, "false": 0.0}


class SideRecords(tuple[Any, Any]):
    """Inputs and targets that know on which side of a split their records are: a pair like any other.

    The two arrays know it as well, so that it survives ``(inputs, targets), held_out = split_by_hash(...)``. What is
    made of them does not: say :meth:`like` of inputs that were transformed record by record.
    """

    split: Sides
    part: Part

    def __new__(cls, inputs: Any, targets: Any, split: Sides, part: Part) -> SideRecords:
        found = super().__new__(cls, (inputs, targets))
        found.split, found.part = split, part
        for values in found:
            _remember(values, found.side)
        return found

    def __getnewargs__(self) -> tuple[Any, Any, Sides, Part]:
        return (*self, self.split, self.part)

    @property
    def side(self) -> Side:
        """The side that these records are on."""
        return self.split.training if self.part is Part.TRAINING else self.split.scoring

    def like(self, inputs: Any, targets: Any | None = None) -> SideRecords:
        """The same records in another form, each made of that record alone: ``train.like(train[0] / 255)``."""
        return SideRecords(inputs, self[1] if targets is None else targets, self.split, self.part)


def split_by_hash(inputs: Any, targets: Any, *, share: float = 0.2, key: str = "") -> tuple[SideRecords, SideRecords]:
    """Set records apart for scoring by a hash of each record: ``(train, held_out)``, two pairs (inputs, targets).

    Where a record goes depends on the values of that record and on the key alone: not on its position, not on the other
    records, not on the type of the array. Adding or removing a record moves no other. That is what lets training and
    scoring cost the worse of the two, not the sum. Equal records go to the same part. The parts know which split they
    are of, and guarantees add up only what one record can meet.

    Numbers are compared in single precision, so that the same record goes to the same part from an array, a tensor or a
    frame, in single or double precision. A text that reads as a number counts as that number. The columns of a frame
    are taken in the order of their names.

    Args:
        inputs, targets: arrays, tensors, frames or lists, one row a record. Split the records as they come: a scaled
            copy of a record has another hash.
        share: about how much to set apart.
        key: another key gives another split.

    >>> train, held_out = split_by_hash(np.arange(1000.0).reshape(-1, 1), np.zeros(1000), share=0.2)
    >>> len(train[0]), len(held_out[0])
    (792, 208)
    >>> train.side.apart_from(held_out.side), side_of((train[0], train[1])) == train.side
    (True, True)
    """
    apart, split = hashed_apart(inputs, targets, share=share, key=key), hash_split(inputs, share=share, key=key)
    whole = side_of((inputs, targets))
    sides = Sides(whole.inside(split, Part.TRAINING), whole.inside(split, Part.SCORING))

    def part(chosen: npt.NDArray[np.bool_], part: Part) -> SideRecords:
        return SideRecords(_rows(inputs, chosen), _rows(targets, chosen), sides, part)

    return part(~apart, Part.TRAINING), part(apart, Part.SCORING)


def hashed_apart(inputs: Any, targets: Any, *, share: float, key: str = "") -> npt.NDArray[np.bool_]:
    """Which records :func:`split_by_hash` sets apart."""
    share = _validate.within(0.0, 1.0, share=share)
    if not isinstance(key, str):
        raise _validate.fail("key", key, "give a text")
    if (rows := _count("inputs", inputs)) != (others := _count("targets", targets)):
        raise ValueError(f"there are {rows} inputs and {others} targets: give as many of each")
    salt = hashlib.sha256(key.encode()).digest()
    values = [
        int.from_bytes(hashlib.sha256(salt + record + b"|" + target).digest()[:8], "big")
        for record, target in zip(record_bytes(inputs), record_bytes(targets), strict=True)
    ]
    return np.array(values, dtype=np.uint64) < np.uint64(share * 2.0**64)


def _count(name: str, values: Any) -> int:
    """How many records there are."""
    rows = hasattr(values, "__len__") and hasattr(values, "__getitem__") and getattr(values, "ndim", 1) > 0
    if not rows or isinstance(values, (str, bytes, Mapping, type)):
        raise _validate.fail(name, values, "give an array, a tensor, a frame or a list, one row a record")
    return len(values)


def hash_split(inputs: Any, *, share: float, key: str = "") -> Split:
    """What :func:`split_by_hash` states of a split: public values alone."""
    shape = getattr(inputs, "shape", ())[1:]
    hashed = f"{' x '.join(map(str, shape))} inputs and the target" if shape else "inputs and target"
    return Split(_RULE, hashed, share, hashlib.sha256(key.encode()).hexdigest())


@dataclass(frozen=True)
class Origin:
    """Where records come from: the side that they are known to be on, and the arrays that held them."""

    side: Side = EVERYONE
    arrays: tuple[weakref.ref[Any], ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def of(cls, data: Any) -> Origin:
        """What is known of records: an object that holds them may have an ``origin`` of its own."""
        known: object = getattr(data, "origin", None)
        if isinstance(known, Origin):
            return known
        held: Any = getattr(data, "tensors", data)  # of a TensorDataset
        held = tuple(held.values()) if isinstance(held, Mapping) else held
        parts = list(held) if isinstance(held, (tuple, list)) else [held]
        found = [_KNOWN.get(id(values)) for values in parts]
        sides = {EVERYONE if one is None else one[1] for one in found}
        side = data.side if isinstance(data, SideRecords) else sides.pop() if len(sides) == 1 else EVERYONE
        return cls(side, tuple(alive for values in parts if (alive := _weak(values)) is not None))

    def shares_memory(self, other: Origin) -> bool:
        """Whether arrays of both are one, or overlap. No value is looked at."""
        mine, theirs = ([_memory(one()) for one in origin.arrays if one() is not None] for origin in (self, other))
        return any(
            one is two
            or (isinstance(one, np.ndarray) and isinstance(two, np.ndarray) and np.may_share_memory(one, two))
            for one, two in itertools.product(mine, theirs)
        )

    def __reduce__(self) -> Any:
        return Origin, (self.side,)


def side_of(data: Any) -> Side:
    """On which side records are known to be; all records, if nothing is known."""
    return Origin.of(data).side


def sides_of(train: Any, held_out: Any, split: Sides | None = None) -> Sides | None:
    """The sides of records that train and records that score; None if one record may do both.

    Args:
        train, held_out: the records.
        split: the rule by which they were set apart, where the records do not know it.
    """
    training, scoring = Origin.of(train), Origin.of(held_out)
    if split is None and not training.side.apart_from(scoring.side):
        return None
    if training.shares_memory(scoring):
        raise _validate.fail(
            "split", split, "the same array trains and scores: the two parts of a split have no record in common"
        )
    return Sides(training.side, scoring.side) if split is None else split


_RULE = "dphypo hash 1"
_KNOWN: dict[int, tuple[weakref.ref[Any], Side]] = {}


def _remember(values: Any, side: Side) -> None:
    """Let an array know its side for as long as it lives."""
    key = id(values)
    alive = _weak(values, lambda _: _KNOWN.pop(key, None))
    if alive is not None:
        _KNOWN[key] = (alive, side)


def _weak(values: Any, dead: Callable[[weakref.ref[Any]], object] | None = None) -> weakref.ref[Any] | None:
    try:
        return weakref.ref(values, dead)
    except TypeError:  # a kind of container that cannot be watched
        return None


def _memory(values: Any) -> Any:
    """A tensor as the array that shares its memory, where there is one."""
    try:
        return values.detach().numpy() if hasattr(values, "detach") else values
    except (TypeError, RuntimeError):  # on a device, or of a type that numpy has not
        return values


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
            columns = [_column(values.iloc[:, place]) for place in range(len(order))]
            return [_record(row) for row in zip(*columns, strict=True)]
        values = values.to_numpy(dtype=np.float64)
    rows = _array(values)
    if rows.dtype.kind in "biuf":
        return [row.tobytes() for row in _single(rows.reshape(len(rows), -1 if rows.size else 0))]
    return [_record(_value(value) for value in _flat(row)) for row in rows]


def _record(values: Iterable[float | str]) -> bytes:
    read = list(values)
    numbers = _single(np.array([value if isinstance(value, float) else math.nan for value in read]))
    texts = ((place, value.encode("utf-8", "surrogatepass")) for place, value in enumerate(read) if type(value) is str)
    return numbers.tobytes() + b"".join(f"{place}:{len(text)}:".encode() + text for place, text in texts)


def _column(values: Any) -> list[float | str]:
    return [_value(value) for value in values.to_numpy(dtype=object)]


def _array(values: Any) -> npt.NDArray[Any]:
    """One row a record. A list becomes numbers, or objects: numpy would make texts of all where one is a text."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        # numpy has no bfloat16.
        values = (values.float() if values.is_floating_point() and values.element_size() < 4 else values).numpy()
    elif hasattr(values, "iloc"):
        values = values.to_numpy(dtype=object)
    if isinstance(values, np.ndarray):
        return values
    values = list(values)
    try:
        numbers = np.asarray(values)
    except (TypeError, ValueError, OverflowError):
        numbers = np.empty(0, dtype=object)
    if numbers.dtype.kind in "biuf":
        return numbers
    rows = np.empty(len(values), dtype=object)
    for place, row in enumerate(values):
        rows[place] = row
    return rows


def _flat(row: Any) -> Iterable[Any]:
    if isinstance(row, str | bytes) or getattr(row, "shape", None) == () or not hasattr(row, "__len__"):
        yield row
        return
    for value in (row[name] for name in sorted(row, key=str)) if isinstance(row, dict) else row:
        yield from _flat(value)


def _single(numbers: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Little-endian single precision, rounded once from double precision, with one zero and one NaN."""
    exact = numbers.dtype.itemsize <= (4 if numbers.dtype.kind == "f" else 2)
    with np.errstate(over="ignore"):
        single = (numbers if exact else numbers.astype(np.float64)).astype("<f4") + np.float32(0.0)
    single[np.isnan(single)] = np.nan
    return single


def _value(value: Any) -> float | str:
    """One value as a number if it can be read as one, else as a text; NaN if it is missing."""
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
        except Exception:
            # Its text, unless that holds an address in memory.
            kind: Any = type(value)
            silent = kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__
            value = kind.__name__ if silent else str(value)
    text = str(value)
    plain = text.strip().lower()
    if plain in _MISSING:
        return math.nan
    if plain in _TRUTH:
        return _TRUTH[plain]
    try:
        return float(text)
    except ValueError:
        return text


def _instant(value: Any) -> str:
    """A date, a time or a duration as a text that does not depend on its unit or its library."""
    value = getattr(value, "asm8", value)  # pandas
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    duration = isinstance(value, datetime.timedelta | np.timedelta64)
    found = np.timedelta64(value, "ns") if duration else np.datetime64(value, "ns")
    return "NaT" if np.isnat(found) else f"{'lasts' if duration else 'at'} {found.astype(np.int64)} ns"


def _rows(values: Any, chosen: npt.NDArray[np.bool_]) -> Any:
    """Some records in the container they came in; a list becomes an array."""
    if hasattr(values, "iloc"):
        return values.iloc[np.flatnonzero(chosen)]
    if hasattr(values, "detach"):
        return values[np.flatnonzero(chosen)]
    return np.asarray(values)[chosen]
