"""A fingerprint of the records that a search uses: a resumed search must have the records it began with.

The digest of a record covers its position, its values with their shapes and types, and its use (training or scoring),
under a secret key of the journal. The fingerprint is the sum of these digests modulo 2²⁵⁶, so the sums over parts of
the records add up. Without the key nobody can test a guess of a record.

A record of a data set is read twice. One that cannot be read, or reads differently the second time (augmentation in
``__getitem__``), does not count: it has no digest, and training and scoring leave it out.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from dphypo.mechanisms.mechanism import Mechanism, or_none, same_twice

SIZE = 32
"""Bytes of a digest, and of a fingerprint."""
_ROWS = 4096  # of arrays, hashed at a time
Digests = Sequence[bytes | None]


def fingerprint(mechanisms: Iterable[Mechanism], key: bytes) -> bytes:
    """The fingerprints of the mechanisms of a search, one after the other; zeros for one that holds no records."""
    known: dict[Any, int] = {}  # mechanisms share records: each is hashed once

    def of_use(use: str, records: Any) -> int:
        same = use, *(map(id, records.values()) if isinstance(records, Mapping) else [id(records)])
        if same not in known:
            known[same] = sum_of(key, use, records)
        return known[same]

    found, alive = b"", []  # objects that are alive have distinct ids
    for mechanism in mechanisms:
        alive.append(mechanism.held_records())
        found += (sum(of_use(use, records) for use, records in alive[-1].items()) % 2 ** (8 * SIZE)).to_bytes(
            SIZE, "little"
        )
    return found


def sum_of(key: bytes, use: str, records: Any) -> int:
    """The sum over records in the form of ``held_records``."""
    if isinstance(records, Mapping):
        return sum_of_rows(key, use, records)
    return sum_of_digests(key, use, records.digests())


def sum_of_digests(key: bytes, use: str, digests: Digests) -> int:
    """The sum over records of a data set."""
    return _sum(key, [use, "data set"], ((b"" if one is None else one) for one in digests), 0)


def sum_of_rows(key: bytes, use: str, columns: Mapping[str, Any], start: int = 0) -> int:
    """The sum over the rows of columns, the first of which is record number ``start``.

    >>> table = {"inputs": np.eye(3), "targets": np.arange(3)}
    >>> whole = sum_of_rows(b"key", "train", table)
    >>> shares = [{name: part[place : place + 1] for name, part in table.items()} for place in range(3)]
    >>> whole == sum(sum_of_rows(b"key", "train", one, place) for place, one in enumerate(shares)) % 2**256
    True
    """
    tables = {str(name): _table(values) for name, values in columns.items()}
    kinds = [f"{name}: {kind}" for name, (kind, _, _) in tables.items()]
    counts = {count for _, count, _ in tables.values()}

    def rows() -> Iterator[bytes]:
        for low in range(0, max(counts, default=0), _ROWS):
            yield from map(b"".join, zip(*(part(low) for _, _, part in tables.values()), strict=True))

    return _sum(key, [use, *kinds], rows(), start)


def _sum(key: bytes, said: Sequence[str], records: Iterable[bytes], start: int) -> int:
    """Add up in columns of 32 bits, which do not overflow 64 bits for fewer than 2³² records."""
    person = hashlib.blake2b("\n".join(said).encode(), digest_size=16).digest()
    total, few = np.zeros(SIZE // 4, dtype=np.uint64), list[bytes]()

    def added() -> None:
        total[:] += np.frombuffer(b"".join(few), dtype="<u4").reshape(-1, SIZE // 4).sum(0, dtype=np.uint64)
        few.clear()

    for place, record in enumerate(records, start):
        salt = place.to_bytes(16, "little")
        few.append(hashlib.blake2b(record, digest_size=SIZE, key=key, salt=salt, person=person).digest())
        if len(few) == _ROWS:
            added()
    added()
    whole = sum(part << (32 * place) for place, part in enumerate(map(int, total)))
    return whole % int(2 ** (8 * SIZE))


def _table(values: Any) -> tuple[str, int, Callable[[int], Iterable[bytes]]]:
    """What a column holds, how many rows it has, and the bytes of some of its rows."""
    if hasattr(values, "detach"):  # a tensor
        kind, flat = f"{values.dtype} {tuple(values.shape[1:])}", values.detach()

        def tensor_rows(low: int) -> Iterable[bytes]:
            return _bytes_of_rows(_array(flat[low : low + _ROWS]))

        return kind, len(values), tensor_rows
    if hasattr(values, "iloc"):
        names = [str(name) for name in getattr(values, "columns", [])]
        kinds = list(map(str, values.dtypes)) if names else [str(values.dtype)]

        def frame_rows(low: int) -> Iterable[bytes]:
            part = values.iloc[low : low + _ROWS]
            columns = [part.iloc[:, place] for place in range(len(names))] if names else [part]
            return map(b"".join, zip(*(_column(one) for one in columns), strict=True))

        return f"{names} {kinds}", len(values), frame_rows
    rows = values if isinstance(values, np.ndarray) else _listed(values)
    return f"{rows.dtype} {rows.shape[1:]}", len(rows), lambda low: _bytes_of_rows(rows[low : low + _ROWS])


def _listed(values: Any) -> npt.NDArray[Any]:
    found = or_none(lambda: np.asarray(values))
    if found is not None and found.ndim and found.dtype.kind in "biufc":
        return found
    listed = list(values)
    rows = np.empty(len(listed), dtype=object)
    for place, row in enumerate(listed):
        rows[place] = row
    return rows


def _column(values: Any) -> Iterable[bytes]:
    array = values.to_numpy()
    return _bytes_of_rows(array) if array.dtype.kind in "biufc" else map(encoded, array)


def _bytes_of_rows(rows: npt.NDArray[Any]) -> Iterable[bytes]:
    if rows.dtype.kind == "O":
        return map(encoded, rows)
    width = rows.dtype.itemsize * int(np.prod(rows.shape[1:], dtype=np.int64))
    if not width:
        return [b""] * len(rows)
    whole = np.ascontiguousarray(rows).tobytes()  # some rows of a table, and one copy of them
    return (whole[low : low + width] for low in range(0, len(rows) * width, width))


def encoded(value: Any) -> bytes:
    """A value of any structure as bytes, with the shapes and types in it: one record of a data set.

    >>> encoded((np.zeros(2), 1)) == encoded((np.zeros(2), 1.0)), encoded({"a": 1, "b": 2}) == encoded({"b": 2, "a": 1})
    (False, True)
    """
    if hasattr(value, "detach"):
        return _parts(b"tensor", str(value.dtype).encode(), str(tuple(value.shape)).encode(), _array(value).tobytes())
    if isinstance(value, np.generic) or hasattr(value, "__array_interface__"):  # also pictures
        value = np.asarray(value)
        if value.dtype.kind == "O":
            return _parts(b"objects", str(value.shape).encode(), *map(encoded, value.ravel()))
        return _parts(
            b"array", value.dtype.str.encode(), str(value.shape).encode(), np.ascontiguousarray(value).tobytes()
        )
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return _parts(b"fields", *sorted(_parts(encoded(name), encoded(one)) for name, one in value.items()))
    if isinstance(value, Set):
        return _parts(b"set", *sorted(map(encoded, value)))
    if isinstance(value, bytes | bytearray):
        return _parts(b"bytes", bytes(value))
    if isinstance(value, str):
        return _parts(b"text", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, list | tuple):
        return _parts(b"list", *map(encoded, value))
    said = re.sub(" at 0x[0-9a-fA-F]+", "", repr(value))
    return _parts(type(value).__name__.encode(), said.encode("utf-8", "surrogatepass"))


def _array(values: Any) -> npt.NDArray[Any]:
    """The numbers of a tensor; those of a type that numpy lacks (bfloat16) in single precision, which holds them."""
    plain = values.detach().cpu()
    found = or_none(plain.numpy)
    return np.asarray(plain.float().numpy() if found is None else found)


def _parts(*parts: bytes | memoryview) -> bytes:
    """The parts as bytes that also encode where each part ends."""
    return b"".join(b"%d:%s" % (len(part), part) for part in parts)


def read_twice(read: Callable[[int], Any], count: int, workers: int = 0, *, again: bool = True) -> list[bytes | None]:
    """The digest of each record that ``read`` returns; None if it cannot be read, or differs the second time."""

    steady = same_twice if again else or_none

    def digest(index: int) -> bytes | None:
        return steady(lambda: hashlib.blake2b(encoded(read(index)), digest_size=SIZE).digest())

    if workers < 1:
        return list(map(digest, range(count)))
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(digest, range(count)))


class DataSet:
    """Records of a data set, read one by one."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def digests(self) -> Digests:
        return read_twice(self._dataset.__getitem__, len(self._dataset))


def held(data: Any) -> Any:
    """Records in the form of ``held_records``; an error for data that are neither arrays nor a data set."""
    data = getattr(data, "tensors", data)  # of a TensorDataset
    if isinstance(data, Mapping):
        return dict(data)
    if isinstance(data, tuple):
        return {str(place): part for place, part in enumerate(data)}
    if hasattr(data, "shape") or hasattr(data, "iloc"):
        return {"records": data}
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return DataSet(data)
    raise TypeError(f"data is a {type(data).__name__}: give arrays, one row per record, or a data set read by index")
