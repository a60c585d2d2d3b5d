"""Persons with several rows: the person of each row, and which rows of a person a step or a score uses.

Keys are read one by one and compared exactly, so that one person's key cannot change the persons of other rows. A row
whose key is missing, or is neither a whole number nor a text, counts for nothing. Whole numbers are below 2⁵³: one
missing key turns a column of integers into doubles, which hold these exactly and no larger ones. No error, file or log
shows a key.

A step, or a score, uses at most ``rows_per_person`` rows of a person. Which ones are drawn depends on a word that is
keyed by run, step and person; they keep the order of the table.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.mechanisms.mechanism import same_twice
from dphypo.noise import Words

GRID = 2**12
"""Counts are in units of a person over this number, if a person is in several cells."""
I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_EXACT = 2**53  # doubles hold whole numbers below it, each its own
_MISSING = frozenset({"", "nan", "NaN", "None", "<NA>", "NaT"})  # as libraries write a missing value
_GOLDEN = 0x9E3779B97F4A7C15
_REMEDY = "give whole numbers or texts, one per row, that identify the person"


class PersonKeys:
    """The person of each row: the bytes of a key, after its kind; None for a row that counts for nothing."""

    def __init__(self, rows: npt.NDArray[np.object_]) -> None:
        self.rows = rows
        self._grouped: dict[int, Persons] = {}

    @classmethod
    def of(cls, person: Any, count: int, record: Callable[[int], Any] | None = None) -> PersonKeys:
        """The keys of ``count`` rows.

        Args:
            person: an array, a column or a list of keys; or a function of a record.
            count: how many rows there are.
            record: gives the record of a number, for a function.
        """
        if isinstance(person, PersonKeys):
            values: Any = person.rows
        elif callable(person):
            if record is None:
                raise _validate.fail("person", "a function", f"these records are not read one by one: {_REMEDY}")
            values = [_twice(person, record, at) for at in range(count)]
        else:
            values = list(map(_key, _column(person)))
        if len(values) != count:
            raise ValueError(f"person has {len(values)} keys for {count} rows: give one key per row")
        rows = np.empty(count, dtype=object)
        rows[:] = values
        return cls(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: Any) -> PersonKeys:
        return PersonKeys(self.rows[chosen])

    @property
    def known(self) -> Flags:
        """Which rows count."""
        return np.array([key is not None for key in self.rows], dtype=np.bool_)

    def numbers(self) -> I64:
        """The number of each row's person, in the order of first rows; −1 for a row that counts for nothing."""
        seen: dict[bytes, int] = {}
        found = [-1 if key is None else seen.setdefault(key, len(seen)) for key in self.rows]
        return np.array(found, dtype=np.int64)

    def means(self, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """The mean of each person's values, one value per row; those that are not finite are left out."""
        given, numbers = np.asarray(values, dtype=np.float64), self.numbers()
        counts = (numbers >= 0) & np.isfinite(given)
        return person_means(given[counts], numbers[counts])

    def mean_vectors(self, tables: Iterable[npt.NDArray[np.float64]]) -> Iterator[npt.NDArray[np.float64]]:
        """The mean of each person's vectors, one per row of the tables; those that are not finite are left out.

        Vectors are added in the order of the rows, so a mean is a function of this person's rows alone.
        """
        numbers, done = self.numbers(), 0
        counts, sums = np.zeros(len(numbers)), np.zeros((0, 0))
        for table in tables:
            if not sums.size:
                sums = np.zeros((numbers.max() + 1, table.shape[1]))
            own = numbers[done : done + len(table)]
            use = (own >= 0) & np.isfinite(table).all(axis=1)
            np.add.at(sums, own[use], table[use])
            np.add.at(counts, own[use], 1)
            done += len(table)
        some = np.flatnonzero(counts[: len(sums)])
        if len(some):
            yield sums[some] / counts[some, None]

    @property
    def count(self) -> int:
        """How many persons there are. **Secret**, unless it is declared public."""
        return len({key for key in self.rows if key is not None})

    def grouped(self, most: int) -> Persons:
        """The rows of each person, of which at most ``most`` are used at a time."""
        if most not in self._grouped:
            self._grouped[most] = Persons.of(self, most)
        return self._grouped[most]

    def __repr__(self) -> str:
        return "<keys of persons>"


def known_keys(data: object, person: Any) -> PersonKeys | None:
    """The keys that records know since they were split by them, which no others may replace; None if they know none."""
    known: PersonKeys | None = getattr(data, "person", None)
    if known is None or person is None or isinstance(person, str) or callable(person):
        return known
    if PersonKeys.of(person, len(known)).rows.tolist() != known.rows.tolist():
        remedy = "the records were split by other keys, and a person may be on both sides: split by these keys, or "
        raise _validate.fail("person", "other keys", f"{remedy}leave person out, since the parts know their persons")
    return known


def _twice(person: Callable[[Any], Any], record: Callable[[int], Any], at: int) -> bytes | None:
    """The key of a record that is read; None if it reads differently the second time."""
    return same_twice(lambda: _key(person(record(at))))


def _column(person: Any) -> Any:
    """The values of a column, refused by its type alone."""
    kind = getattr(person, "dtype", None)
    said = str(kind).removeprefix("torch.")
    if isinstance(person, str | bytes | Mapping) or not hasattr(person, "__len__"):
        shown = repr(person) if isinstance(person, str) else f"a {type(person).__name__}"
        raise _validate.fail("person", shown, f"the records have no columns by name: {_REMEDY}")
    if getattr(person, "ndim", 1) != 1:
        raise _validate.fail("person", f"an array of shape (rows, {person.shape[1:]})", _REMEDY)
    whole = said.lower().startswith(("int", "uint", "float64", "object", "str", "<u", "|s", "category", "large_string"))
    if kind is not None and not whole:
        raise _validate.fail("person", f"a column of {said}", f"such values cannot identify persons: {_REMEDY}")
    if hasattr(person, "detach"):
        return person.detach().cpu().tolist()
    if hasattr(person, "iloc"):
        return person.to_numpy(dtype=object)
    return person.tolist() if isinstance(person, np.ndarray) and person.dtype.kind != "O" else person


def _key(value: Any) -> bytes | None:
    """One key as bytes, by itself; None if it is missing or of another type."""
    if getattr(value, "shape", None) == ():
        kind = str(value.dtype).removeprefix("torch.")
        if not kind.startswith(("int", "uint", "float64", "<U", "|S")):
            return None
        value = value.item()
    if isinstance(value, uuid.UUID):
        value = str(value)
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return None if value.decode("utf-8", "replace").strip() in _MISSING else b"t" + value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not value.is_integer():  # nor NaN, nor infinite
        return None
    return b"n%d" % int(value) if abs(value) < _EXACT else None


@dataclass(frozen=True, eq=False, repr=False)
class Persons:
    """The rows of each person, in the order of the table, of which at most ``most`` are used at a time."""

    order: I64  # numbers of rows, those of a person together
    starts: I64  # [persons + 1]
    most: int

    @classmethod
    def of(cls, keys: PersonKeys, most: int) -> Persons:
        numbers = keys.numbers()
        counts = np.bincount(numbers[numbers >= 0], minlength=0)
        order = np.argsort(numbers, kind="stable")[int((numbers < 0).sum()) :]
        return cls(order.astype(np.int64), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), most)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def drawn(self, persons: I64, words: I64) -> tuple[I64, Flags]:
        """The rows of some persons, [persons, most], and which places hold one; others repeat the person's first.

        A person with more rows gets ``most`` different ones, by Floyd's algorithm, from the word of this draw.
        """
        first, most = self.starts[persons] if len(self) else 0 * persons, self.most
        counts = self.starts[persons + 1] - first if len(self) else 0 * persons
        places = np.broadcast_to(np.arange(most), (len(persons), most)).copy()
        held = places < counts[:, None]
        many = np.flatnonzero(counts > most)
        if len(many):
            taken = np.empty((len(many), most), dtype=np.int64)
            for at in range(most):
                last = counts[many] - most + at  # one of 0, …, last that is not among the chosen; else last itself
                word = _mixed(words[many].view(np.uint64) + np.uint64((at + 1) * _GOLDEN % 2**64))
                tried = ((word >> np.uint64(32)) * (last + 1).astype(np.uint64) >> np.uint64(32)).astype(np.int64)
                again = (taken[:, :at] == tried[:, None]).any(1)
                taken[:, at] = np.where(again, last, tried)
            places[many] = np.sort(taken, axis=1)
        chosen = first[:, None] + np.where(held, places, 0)
        return self.order[chosen] if len(self) else chosen, held

    def drawn_of_all(self, words: Words) -> tuple[I64, I64]:
        """The rows of everybody that a score uses, and the number of each row's person; in the order of persons."""
        numbers = np.arange(len(self))
        rows, held = self.drawn(numbers, words_of(words.draw(1).view(np.int64), 0, numbers)[0])
        return rows[held], np.nonzero(held)[0].astype(np.int64)


def person_means(values: npt.NDArray[np.float64], owners: I64) -> npt.NDArray[np.float64]:
    """The mean of each person's values, for persons that have some.

    >>> person_means(np.array([1.0, 0.0, 1.0]), np.array([3, 3, 5]))
    array([0.5, 1. ])
    """
    _, own, counts = np.unique(owners, return_inverse=True, return_counts=True)
    return np.bincount(own, values, len(counts)) / counts


def person_cells(cells: I64, owners: I64, size: int) -> I64:
    """How much of each cell persons fill, in units of 1/:data:`GRID`: a person's rows have equal weights.

    A person's share of each cell is rounded down, so that all of them together have a norm of at most one person.

    >>> person_cells(np.array([0, 0, 1, 2]), np.array([7, 7, 7, 9]), 3).tolist()
    [2730, 1365, 4096]
    """
    inside = (cells >= 0) & (cells < size)
    cells, owners = cells[inside], owners[inside]
    _, own, counts = np.unique(owners, return_inverse=True, return_counts=True)
    pairs, each = np.unique(own * size + cells, return_counts=True)
    total = np.zeros(size, dtype=np.int64)
    np.add.at(total, pairs % size, GRID * each // counts[pairs // size])
    return total


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's output function."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def words_of(runs: I64, step: int, persons: I64) -> I64:
    """The word of each person of each run, [runs, persons], at a step: from one word a run."""
    keys = _mixed(runs.view(np.uint64)[:, None] + np.uint64(step * _GOLDEN % 2**64))
    return _mixed(keys ^ (persons.astype(np.uint64) + np.uint64(1))).view(np.int64)
