"""Setting records apart for scoring, so that both parts together cost no more than the more expensive one.

A record's part is a function of that record alone; if records are persons, of the person's key alone
(``persons.py``), so that all rows of a person are in one part.

:func:`record_bytes` turns each value into a number or a text by itself, whatever container holds it. A record must not
affect the bytes of others even through their array: one fractional number turns a column of integers into floats, one
long string widens the others' type, and one missing value turns numbers into objects.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import itertools
import math
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.accounting import Split
from dphypo.accounting.composition import BY_PERSON, EVERYONE, Role, Side, Sides, read_sides
from dphypo.mechanisms.mechanism import is_signal, or_none, same_twice
from dphypo.training.persons import PersonKeys

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
    """One row per record. A list becomes numbers, or objects: numpy would make texts of all if one is a text."""
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
    """``str(value)``, with the elements of sets, at any depth, in the order of their texts and not of their hashes."""
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


class SideRecords(tuple[Any, Any]):
    """Inputs and targets that know on which side of a split their records are: a pair like any other.

    Pass the pair itself: its two arrays do not know their side, and count as records of every side. For inputs that
    were transformed record by record, use :meth:`like`.
    """

    split: Sides
    side: Side
    person: PersonKeys | None
    """The person of each row, if persons were split."""

    def __new__(
        cls, inputs: Any, targets: Any, split: Sides, side: Side, person: PersonKeys | None = None
    ) -> SideRecords:
        found = super().__new__(cls, (inputs, targets))
        found.split, found.side, found.person = split, side, person
        return found

    def __getnewargs__(self) -> tuple[Any, Any, Sides, Side, PersonKeys | None]:
        return (*self, self.split, self.side, self.person)

    def like(self, inputs: Any, targets: Any | None = None) -> SideRecords:
        """The same records in another form, each made of that record alone: ``train.like(train[0] / 255)``."""
        return SideRecords(inputs, self[1] if targets is None else targets, self.split, self.side, self.person)


class SideDataset:  # no dataclass, which is a record of several fields
    """Records of a data set that are on one side of a split: a data set like any other, which knows its side."""

    def __init__(
        self, dataset: Any, indices: Sequence[int], split: Sides, side: Side, person: PersonKeys | None = None
    ) -> None:
        self.dataset, self.indices, self.split, self.side, self.person = dataset, indices, split, side, person

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]


@overload
def split_by_hash(
    inputs: Any, targets: None = None, *, share: float = 0.2, key: str = "", workers: int = 0, person: Any = None
) -> tuple[SideDataset, SideDataset]: ...


@overload
def split_by_hash(
    inputs: Any, targets: Any, *, share: float = 0.2, key: str = "", workers: int = 0, person: Any = None
) -> tuple[SideRecords, SideRecords]: ...


def split_by_hash(
    inputs: Any, targets: Any = None, *, share: float = 0.2, key: str = "", workers: int = 0, person: Any = None
) -> tuple[SideRecords, SideRecords] | tuple[SideDataset, SideDataset]:
    """Set records apart for scoring by a hash of each record: ``(train, held_out)``, two pairs (inputs, targets).

    Of a data set that is read by index the parts are data sets; its records may have any structure, and all are read
    twice. One that reads differently the second time (augmentation in ``__getitem__``) is in neither part.

    Where a record goes depends on the values of that record and on the key alone: not on its position, not on the other
    records, not on the type of the array. Adding or removing a record moves no other, so that training and scoring cost
    the worse of the two, not the sum. The parts know which split they are of: pass them on as they are. To split a part
    again, give it alone, with another key.

    Numbers are compared in single precision, and a text that reads as a number counts as that number. The columns of a
    frame are taken in the order of their names.

    Args:
        inputs, targets: arrays, tensors, frames or lists, one row per record; or a data set, or a part of another
            split, alone. Split the records once, and pass the parts on: what a second call returns is another split,
            and the two compose. Use ``train.like(scaled)`` for another form of the inputs. Certificates take splits of
            the same shape, share and key for one, so a search may use only one of them.
        share: about how much to set apart.
        key: another key gives another split.
        workers: how many threads read a data set.
        person: which person each row belongs to: keys, the name of a field, or a function of a record. A
            hash of the person's key decides, and all rows of a person are in one part. Rows whose key is missing are in
            neither. Give a secret ``key``: anyone who knows it and a person's key knows that person's part.

    >>> train, held_out = split_by_hash(np.arange(1000.0).reshape(-1, 1), np.zeros(1000), share=0.2)
    >>> len(train[0]), len(held_out[0])
    (792, 208)
    >>> train.side.apart_from(held_out.side)
    True
    """
    whole = _side(inputs)
    if isinstance(inputs, SideRecords) and targets is None:
        person = inputs.person if person is None else person
        inputs, targets = inputs
    return split_within(whole, inputs, targets, share=share, key=key, workers=workers, person=person)


def split_within(
    whole: Side,
    inputs: Any,
    targets: Any = None,
    *,
    share: float,
    key: str = "",
    workers: int = 0,
    person: Any = None,
    form: tuple[Any, Any] | None = None,
) -> tuple[Any, Any]:
    """:func:`split_by_hash` of records that are known to be on a side; ``form`` is what is divided in their place."""
    keys = None if person is None else _keys(inputs, targets, person)
    if keys is not None:
        found: list[bytes | None] = list(map(_hashed, keys.rows))
    else:
        found = _records(inputs, workers) if targets is None else _pairs(inputs, targets)
    steady = np.array([one is not None for one in found], dtype=np.bool_)
    apart = _apart(found, share, key)
    split = _split(BY_PERSON if keys is not None else _name(inputs, targets), share, key)
    if any(split.key == one.key for one, _ in whole.conditions):
        remedy = "these records are a part of a split with this key: give another key, or all records"
        raise _validate.fail("key", key, remedy)
    sides = Sides(whole.inside(split, Role.TRAINING), whole.inside(split, Role.SCORING))

    def part(chosen: npt.NDArray[np.bool_], side: Side) -> Any:
        own = None if keys is None else keys[chosen]
        if targets is None:
            return SideDataset(inputs, np.flatnonzero(chosen).tolist(), sides, side, own)
        first, second = (inputs, targets) if form is None else form
        return SideRecords(_rows(first, chosen), _rows(second, chosen), sides, side, own)

    return part(~apart & steady, sides.training), part(apart & steady, sides.scoring)


def _records(dataset: Any, workers: int) -> list[bytes | None]:
    """The bytes of each record of a data set, read twice; None for one that reads differently the second time."""
    if isinstance(dataset, Mapping) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise _validate.fail("inputs", type(dataset).__name__, "give inputs and targets, or a data set read by index")

    def read(index: int) -> bytes | None:
        return same_twice(lambda: or_none(lambda: structure_bytes(dataset[index])) or b"")

    with ThreadPoolExecutor(max(1, workers)) as pool:
        return list(pool.map(read, range(len(dataset))))


def _keys(inputs: Any, targets: Any, person: Any) -> PersonKeys:
    """The person of each row."""
    count = len(inputs) if targets is None else _paired(inputs, targets)
    if not isinstance(person, str):
        rows = (lambda at: inputs[at]) if targets is None else lambda at: (inputs[at], targets[at])
        return PersonKeys.of(person, count, rows)
    names = getattr(inputs, "column_names", getattr(inputs, "columns", None))
    if names is not None and person not in names:
        raise _validate.fail("person", person, f"the records have the columns {', '.join(map(str, names))}")
    if names is not None:
        return PersonKeys.of(inputs[person] if hasattr(inputs, "iloc") else list(inputs[person]), count)
    if targets is not None:
        raise _validate.fail("person", person, "the inputs have no columns by name: give the keys as an array")
    return PersonKeys.of(lambda record: (fields_of(record) or {})[person], count, lambda at: inputs[at])


def _hashed(key: bytes | None) -> bytes | None:
    """The bytes that decide a person's part: of a number its digits, whatever the column's type; None for no person."""
    return None if key is None else b"person|" + key[1:]


def _pairs(inputs: Any, targets: Any) -> list[bytes | None]:
    """The bytes of each record and its target."""
    _paired(inputs, targets)
    pairs = zip(record_bytes(inputs), record_bytes(targets), strict=True)
    return [record + b"|" + target for record, target in pairs]


def _apart(records: Sequence[bytes | None], share: float, key: str) -> npt.NDArray[np.bool_]:
    """Which records are set apart by a hash of each."""
    if not isinstance(key, str):
        raise _validate.fail("key", key, "give a text")
    share = _validate.within(0.0, 1.0, share=share)
    salt = hashlib.sha256(key.encode()).digest()
    values = [int.from_bytes(hashlib.sha256(salt + (one or b"")).digest()[:8], "big") for one in records]
    return np.array(values, dtype=np.uint64) < np.uint64(share * 2.0**64)


def _paired(inputs: Any, targets: Any) -> int:
    """How many records there are, each with its target."""
    if (rows := _count("inputs", inputs)) != (others := _count("targets", targets)):
        raise ValueError(f"there are {rows} inputs and {others} targets: give as many of each")
    return rows


def _count(name: str, values: Any) -> int:
    """How many records there are."""
    rows = hasattr(values, "__len__") and hasattr(values, "__getitem__") and getattr(values, "ndim", 1) > 0
    if not rows or isinstance(values, (str, bytes, Mapping, type)):
        raise _validate.fail(name, values, "give an array, a tensor, a frame or a list, one row per record")
    return len(values)


def _split(hashed: str, share: float, key: str) -> Split:
    """What is stated of a split: public values alone."""
    # Each split has its own name: one computed from the values would tell whether two forms of the records are equal.
    return Split("dphypo hash 1", hashed, share, hashlib.sha256(key.encode()).hexdigest(), of=secrets.token_hex(16))


def _name(dataset: object, targets: object) -> str:
    """How a split names inputs and targets; or a data set: its class, its columns, and a hash of its transforms."""
    if targets is not None:
        shape = getattr(dataset, "shape", ())[1:]
        return f"{' x '.join(map(str, shape))} inputs and the target" if shape else "inputs and target"
    columns, ways, inner = getattr(dataset, "column_names", None), [], dataset
    while inner is not None:
        ways += [getattr(inner, name, None) for name in ("transform", "target_transform", "format")]
        inner = getattr(inner, "dataset", None)
    text = re.sub(" at 0x[0-9a-f]+", "", str([way for way in ways if way is not None]))
    read = f" as read by {hashlib.sha256(text.encode()).hexdigest()[:16]}" if text != "[]" else ""
    return f"records of {type(dataset).__name__}" + (f" with {', '.join(columns)}" if columns else "") + read


@dataclass(frozen=True)
class Origin:
    """Where records come from: the side that they are known to be on, and the arrays that were given."""

    side: Side = EVERYONE
    arrays: tuple[Any, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def of(cls, data: object) -> Origin:
        """What is known of records: an object that holds them may have an ``origin`` of its own, or be one."""
        known: object = data if isinstance(data, Origin) else getattr(data, "origin", None)
        if isinstance(known, Origin):
            return known
        held: Any = getattr(data, "tensors", data)  # of a TensorDataset
        held = tuple(held.values()) if isinstance(held, Mapping) else held
        several = held if isinstance(held, tuple | list) else (held,)
        return cls(_side(data), tuple(values for values in several if values is held or hasattr(values, "shape")))

    def shares_memory(self, other: Origin) -> bool:
        """Whether arrays of both are one, or overlap. No value is looked at."""
        pairs = list(itertools.product(map(_memory, self.arrays), map(_memory, other.arrays)))
        arrays = ((one, two) for one, two in pairs if isinstance(one, np.ndarray) and isinstance(two, np.ndarray))
        return any(one is two for one, two in pairs) or any(np.may_share_memory(*pair) for pair in arrays)

    def __reduce__(self) -> Any:
        return Origin, (self.side,)


def _side(records: object) -> Side:
    """The side that records know they are on. A frame may have a column of that name."""
    found = getattr(records, "side", None)
    return found if isinstance(found, Side) else EVERYONE


def sides_of(train: object, held_out: object, split: Sides | Split | str | None = None) -> Sides | None:
    """The sides of records that train and records that score; None if one record may do both.

    ``split`` is the rule by which they were set apart, if the records do not know it.
    """
    training, scoring, split = Origin.of(train), Origin.of(held_out), read_sides(split)
    if split is None and not training.side.apart_from(scoring.side):
        return None
    sides = Sides(training.side, scoring.side) if split is None else split
    if training.shares_memory(scoring):
        raise ValueError(
            f"the same array trains and scores, and is declared as two sides ({sides.training}; {sides.scoring}): give "
            'arrays that have no record in common, or say split="same"'
        )
    return sides


def _memory(values: Any) -> Any:
    """A tensor as the array that shares its memory, if there is one."""
    try:
        return values.detach().numpy() if hasattr(values, "detach") else values
    except (TypeError, RuntimeError):  # on a device, or of a type that numpy lacks
        return values


def _rows(values: Any, chosen: npt.NDArray[np.bool_]) -> Any:
    """Some records in the container they came in; a list becomes an array."""
    if hasattr(values, "iloc"):
        return values.iloc[np.flatnonzero(chosen)]
    if hasattr(values, "detach"):
        return values[np.flatnonzero(chosen)]
    return np.asarray(values)[chosen]
