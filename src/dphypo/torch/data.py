"""The private records in any form: arrays, tensors, fields, or a data set that is read by index.

The shape and type of a record are public: those of the array, or of an example that the user makes up. What the records
of a data set that is read by index look like is private.

Of these records, those in the domain of the model and its loss count (``domain.py``); the others are left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, default_collate

from dphypo import _validate
from dphypo.errors import UnsupportedModelError
from dphypo.mechanisms.fingerprint import read_twice
from dphypo.mechanisms.mechanism import or_none
from dphypo.torch.columns import only, rehearse
from dphypo.torch.domain import Domain
from dphypo.torch.engine import Tensors, distributed
from dphypo.torch.engine.batch_rows import Batch
from dphypo.torch.engine.device import with_settings_kept
from dphypo.torch.fields import TARGET, Fields, by_name
from dphypo.training.persons import PersonKeys, Persons, known_keys
from dphypo.training.poisson_draws import shard_of
from dphypo.training.split import Origin, SideDataset, fields_of

Indices = npt.NDArray[np.int64]
Collate = Callable[[list[Any]], Any]
_PAIR = (
    "give a pair (inputs, targets) of arrays or tensors, a mapping of fields with 'labels' among them, a "
    "TensorDataset, or a data set that is read by index, with an example"
)


@dataclass(frozen=True, repr=False)
class TensorRecords(Tensors):
    """Inputs and targets in two tensors; ``example`` is a batch of one made-up record.

    ``person`` identifies the person of each row, if a record is all rows of a person.
    """

    example: Batch
    origin: Origin = Origin()  # noqa: RUF009 - a frozen value
    fields: Fields | None = None
    person: PersonKeys | None = None

    @property
    def size(self) -> int:
        """How many records there are: rows, or persons."""
        return len(self) if self.person is None else self.person.count

    def to(self, device: torch.device) -> TensorRecords:
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device))

    def within(self, domain: Domain) -> TensorRecords:
        """The records that are in the domain."""
        inputs, targets, inside = domain.chosen(self.inputs, self.targets)
        if self.person is not None:
            inside = inside & torch.from_numpy(self.person.known).to(inside.device)
        if bool(inside.all()):
            return replace(self, inputs=inputs, targets=targets)
        person = None if self.person is None else self.person[inside.cpu().numpy()]
        return replace(self, inputs=inputs[inside], targets=targets[inside], person=person)

    def reader(self, domain: Domain) -> Callable[[Indices], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Returns inputs and targets for record numbers, and which of them are in the domain."""
        parts = domain.chosen(self.inputs, self.targets)
        return lambda numbers: tuple(part[torch.from_numpy(numbers).to(part.device)] for part in parts)  # type: ignore[return-value]

    def counts(self, domain: Domain) -> int:
        """How many of the records are in a domain. **Secret.**"""
        return self.within(domain).size

    def held(self) -> dict[str, Any]:
        """The records as columns, for a fingerprint."""
        keys = {} if self.person is None else {"person": self.person.rows}
        return {"inputs": self.inputs, "targets": self.targets, **keys}


@dataclass(frozen=True, repr=False)
class DatasetRecords:
    """A data set that returns one record for an index: an (input, target) pair, or several fields.

    With a domain, a batch leaves out records that are outside it, that cannot be read, or that differ when they are
    read twice. ``example`` is a batch of one made-up record. ``shards`` is the number of parts into which the records
    are divided; None if every process may read all. The other fields are as for :func:`as_records`.
    """

    dataset: Any
    example: Batch
    domain: Domain | None = None
    origin: Origin = Origin()  # noqa: RUF009 - a frozen value
    fields: Fields | None = None
    collate: Collate | None = None
    workers: int = 0
    columns: frozenset[str] | None = None
    person: PersonKeys | None = None
    shards: int | None = None
    _digests: _Digests = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_digests", _Digests(self))

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def read_from(self) -> Any:
        """The data set itself, by which copies are recognised."""
        return self.dataset

    @property
    def size(self) -> int:
        """How many records there are: rows, or persons."""
        return len(self) if self.person is None else self.person.count

    def held(self) -> _Digests:
        """The digests of the records, for a fingerprint."""
        return self._digests

    def to(self, device: torch.device) -> DatasetRecords:
        return self

    def within(self, domain: Domain) -> DatasetRecords:
        """The records, of which a batch contains only those in the domain."""
        inside = replace(self, domain=domain)
        object.__setattr__(inside, "_digests", self._digests)  # each record is read for its digest once
        return inside

    def reader(self, domain: Domain) -> Callable[[Indices], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Returns inputs and targets for record numbers, and which of them are in the domain."""
        inside = self.within(domain)
        return lambda numbers: inside.rows(torch.from_numpy(numbers), torch.ones(len(numbers), dtype=torch.bool))

    def counts(self, domain: Domain) -> int:
        """How many of the records are in a domain. **Secret.** All of them are read."""
        fits = np.array([record is not None for record in self.within(domain)._each(range(len(self)))], dtype=np.bool_)
        return int(fits.sum()) if self.person is None else self.person[fits].count

    def rows(self, numbers: torch.Tensor, valid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """One row for each number, and which of them count: what :class:`dphypo.torch.engine.Records` asks for."""
        read = iter(self._each(numbers[valid].tolist()))
        found = [next(read) if counts else None for counts in valid.tolist()]
        blank = tuple(torch.zeros_like(part) for part in self.example)
        filled = [blank if record is None else record for record in found]
        inputs, targets = (torch.cat([pair[part] for pair in filled] or [blank[part][:0]]) for part in (0, 1))
        usable = torch.tensor([record is not None for record in found], dtype=torch.bool)
        return inputs.to(numbers.device), targets.to(numbers.device), usable.to(numbers.device)

    def _each(self, indices: Sequence[int]) -> list[Batch | None]:
        """The records of some indices, read in threads if that was requested."""
        if self.workers < 1:
            return list(map(self._record, indices))

        def in_threads() -> list[Batch | None]:
            with ThreadPoolExecutor(self.workers) as pool:
                return list(pool.map(self._record, indices))

        return with_settings_kept(in_threads)  # a thread may put back what another one has changed

    def _record(self, index: int) -> Batch | None:
        if (domain := self.domain) is None:
            return self._read(index)
        if self._digests.of(index) is None:
            return None
        return or_none(lambda: domain.read(*self._read(index)))

    def _read(self, index: int) -> Batch:
        inputs, targets = self.reading()(index)
        if (inputs.shape[:1], targets.shape[:1]) != ((1,), (1,)):
            raise ValueError("a record is not one record")
        return inputs, targets

    def reading(self) -> Callable[[int], Batch]:
        """A function that reads the record of an index as a batch of one."""
        return partial(_record, self.dataset, self.collate, self.fields, self.columns)


class _Digests:
    """The digest of each record of a data set, computed when first needed; None for a record that does not count.

    If records are in shards, each launched process reads only its own.
    """

    def __init__(self, records: DatasetRecords) -> None:
        self._dataset, self._record, self._workers = records.dataset, records.reading(), records.workers
        self._collated, self._person, self._shards = records.collate is not None, records.person, records.shards
        self._known: dict[int, bytes | None] = {}
        self._complete = False  # whether those of other processes are known

    def of(self, index: int) -> bytes | None:
        """The digest of one record; an error if another process has it."""
        if index >= len(self._own):  # the data set was longer, or is now
            return None
        if not self._own[index]:
            raise UnsupportedModelError(
                "records are in shards, and another process reads this one: ask for it in a program of one process"
            )
        if index not in self._known:
            self._read_some([index])
        return self._known[index]

    def digests(self) -> list[bytes | None]:
        """The digests of all records. In a launched process, which then leads, the other processes send theirs."""
        team = None if self._shards is None or self._complete else distributed.world()
        count = len(self._dataset)
        if team is not None:
            team.leaders(DigestRequest(count))
            self.answer(team)
            self._complete = True
        self._read_some([index for index in range(count) if index not in self._known])
        return [self._known[index] for index in range(count)]

    def answer(self, team: distributed.Team) -> None:
        """Read the records of this process, and send their digests to the leader."""
        self._read_some([int(index) for index in np.flatnonzero(self._own) if int(index) not in self._known])
        for known in team.gathered(self._known):
            self._known.update(known)

    def _read_some(self, indices: Sequence[int]) -> None:
        split = isinstance(self._dataset, SideDataset) and self._dataset.person is None
        again = not split or self._collated  # a split of records reads them twice itself, before collation
        read, count = (lambda place: self._read(indices[place])), len(indices)
        workers = self._workers if count > 1 else 0
        found = with_settings_kept(lambda: read_twice(read, count, workers, again=again))
        self._known.update(zip(indices, found, strict=True))

    @cached_property
    def _own(self) -> npt.NDArray[np.bool_]:
        """Which records this process reads: those of its shards; for persons, the rows of the persons in its shards."""
        count, team = len(self._dataset), distributed.world()
        if self._shards is None or team is None:
            return np.ones(count, dtype=np.bool_)
        numbers, size = np.arange(count), count
        if self._person is not None:
            numbers, size = self._person.numbers(), self._person.count
        mine: npt.NDArray[np.bool_] = shard_of(numbers, size, self._shards) % team.size == team.rank
        return mine | (numbers < 0)  # a row of nobody is not read

    def _read(self, index: int) -> Any:
        key = None if self._person is None else self._person.rows[index]
        assert self._person is None or key is not None  # else the row counts for nothing
        read = self._record(index)
        return read if key is None else (*read, key)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_own"}  # another process has others


@dataclass(frozen=True)
class DigestRequest:
    """The leader's request to every process: send the digests of your share of this many records."""

    records: int


def _record(dataset: Any, collate: Any, fields: Fields | None, taken: frozenset[str] | None, index: int) -> Batch:
    """The record of an index as a batch of one."""
    return with_settings_kept(lambda: _batch(dataset[index], collate, fields, taken))


def _batch(record: Any, collate: Collate | None, fields: Fields | None, taken: frozenset[str] | None = None) -> Batch:
    """One record as a batch of one."""
    record = only(record, taken)
    if fields is not None:
        return fields.pack(_one(record, collate, fields))
    collated = (collate or default_collate)([record])
    if not (isinstance(collated, list | tuple) and len(collated) == 2):
        raise TypeError(f"the data set does not give an (input, target) pair for an index: {_PAIR}")
    inputs, targets = (_single_precision(torch.as_tensor(part)) for part in collated)
    return inputs, targets


TorchRecords = TensorRecords | DatasetRecords


def as_records(
    data: Any,
    example: Any = None,
    *,
    target: str | None = None,
    collate: Collate | None = None,
    workers: int = 0,
    public: bool = False,
    taken: frozenset[str] | None = None,
    person: Any = None,
) -> TorchRecords:
    """Convert data in any form to the records that :class:`DPSGD` and every score take as ``data``.

    Args:
        data: a pair of arrays or tensors; several fields (a mapping, a dataclass, a tuple of three and more); a
            ``TensorDataset``; or a data set that returns one record for an index: an (input, target) pair, or fields.
        example: one made-up record with the shape and type of all. A data set that is read by index needs an example;
            arrays have a shape and a type already.
        target: the name of the target field; by default "labels", or the last field of a tuple.
        collate: turns a list of one record into a batch, such as a collator that pads to a public length.
        workers: how many threads read records. What is read must be a function of the record alone.
        public: whether the records are public; if so, the first of them is the example.
        taken: the names of columns that the model takes; others are left out. By default all are read.
        person: the person of each row, as for :class:`DPSGD`. Parts of a split by person know it.

    >>> records = as_records((np.zeros((5, 3), dtype=np.float32), np.arange(5)))
    >>> len(records), [tuple(part.shape) for part in records.example]
    (5, [(1, 3), (1,)])
    """
    if isinstance(data, TensorRecords | DatasetRecords):
        if example is None or data.fields is not None:
            return data
        keys = data.person
    else:
        keys = known_keys(data, person)
    origin = Origin.of(data)
    if keys is None and person is not None:
        data, example, keys = with_settings_kept(partial(_keyed, data, example, person, target, taken))
    found = _rows(data, example, target, collate, workers, public, taken)
    return replace(found, origin=origin, person=None if keys is None else PersonKeys.of(keys, len(found)))


def _rows(
    data: Any, example: Any, target: str | None, collate: Any, workers: int, public: bool, taken: frozenset[str] | None
) -> TorchRecords:
    """The records, without their origin and their persons."""
    if isinstance(data, TensorRecords | DatasetRecords):
        data = data.dataset if isinstance(data, DatasetRecords) else (data.inputs, data.targets)
    if isinstance(data, IterableDataset):
        raise TypeError(
            "data is an IterableDataset: Poisson sampling needs a data set that can be read by index. Collect its "
            "records in a list, or give a data set with __getitem__ and __len__, and an example"
        )
    if isinstance(data, DataLoader):
        raise TypeError(
            f"data is a DataLoader: give its records, data=loader.dataset, with batch_size={data.batch_size}. Batches "
            "are Poisson samples, drawn from the seed of a run; pass your own collator as collate="
        )
    data = _unwrapped(data)
    arrays = not isinstance(data, list) or len(data) == 2  # else it is a list of records
    given = by_name(only(data, taken), target) if arrays and not isinstance(data, Dataset) else None
    fields = None
    if given is not None and collate is None:
        tensors = {name: _tensor(part, f"the field {name!r}") for name, part in given.items()}
        fields = Fields.of(tensors if example is None else _one(example), target)
        data = fields.pack(tensors)
    if isinstance(data, Dataset) or not isinstance(data, Sequence) or not arrays or collate is not None:
        read = _indexed(data, example, target, collate, public, taken)
        read = replace(read, workers=_validate.integer(at_least=0, workers=workers))
        rehearse(read, lambda record: _one(only(record, taken), collate, read.fields))
        return read
    if len(data) != 2:
        raise ValueError(f"data holds {len(data)} parts: {_PAIR}")
    if fields is None:
        data = [_tensor(part, f"the {name}") for name, part in zip(("inputs", "targets"), data, strict=True)]
    inputs, targets = data
    sizes = [len(part) if part.dim() else 0 for part in (inputs, targets)]
    if inputs.dim() == 0 or targets.dim() == 0 or sizes[0] != sizes[1]:
        raise ValueError(
            f"data holds inputs and targets of different lengths, {sizes[0]} and {sizes[1]}: give one target for every "
            "input"
        )
    zeros = [part.new_zeros((1, *part.shape[1:])) for part in (inputs, targets)]
    like = zeros[0] if fields is None else fields.example(), zeros[1]
    like = like if example is None else _example(example, None, fields)
    for name, part, shown in zip(("inputs", "targets"), (inputs, targets), like, strict=True):
        if part.shape[1:] != shown.shape[1:] or part.is_complex() != shown.is_complex():
            kinds = [f"{tuple(one.shape[1:])} of {one.dtype}" for one in (part, shown)]
            raise ValueError(f"the {name} of data are {kinds[0]}, and those of example are {kinds[1]}: they must agree")
    return TensorRecords(inputs, targets, like, fields=fields)


def _keyed(
    data: Any, example: Any, person: Any, target: str | None, taken: frozenset[str] | None
) -> tuple[Any, Any, PersonKeys]:
    """Records and their example without the column that identifies persons, and the keys of that column."""
    held = _unwrapped(data)
    named = fields_of(held)
    arrays = list(named.values()) if named is not None else held if isinstance(held, tuple) else None
    count = len(held if arrays is None else arrays[0])
    if not isinstance(person, str):
        read: Callable[[int], Any] = lambda at: held[at]  # noqa: E731
        if named is not None:
            read = lambda at: {name: part[at] for name, part in named.items()}  # noqa: E731
        elif arrays is not None:
            read = lambda at: tuple(part[at] for part in arrays)  # noqa: E731
        return data, example, PersonKeys.of(person, count, read)
    if person == (target or TARGET) or person in (taken or ()):
        why = "it is the target" if person == (target or TARGET) else "the model takes it as an input"
        raise _validate.fail("person", person, f"{why}, and a key may not be a feature: name another column")
    columns_of = named if named is not None else getattr(held, "column_names", None)
    if columns_of is not None and person not in columns_of:
        raise _validate.fail("person", person, f"the records have the columns {', '.join(map(str, columns_of))}")
    if named is not None:
        keys = PersonKeys.of(named.pop(person), count)
        data = named
    elif columns_of is not None:
        keys = PersonKeys.of(list(held[person]), count)
    elif arrays is not None:
        remedy = "data is a pair of arrays, of which every column is a feature: give the keys as an array, one per row"
        raise _validate.fail("person", person, remedy)
    else:
        keys = PersonKeys.of(lambda record: (fields_of(record) or {})[person], count, lambda at: held[at])
    if isinstance(example, Mapping):
        example = {name: value for name, value in example.items() if name != person}
    return data, example, keys


def _unwrapped(data: Any) -> Any:
    """The tensors of a ``TensorDataset``, or of a part of one (``Subset``): they show the shape of their records."""
    if isinstance(data, TensorDataset):
        return data.tensors
    if type(data) is not Subset:
        return data
    whole = _unwrapped(data.dataset)
    return tuple(part[list(data.indices)] for part in whole) if isinstance(whole, list | tuple) else data


def _indexed(
    data: Any, example: Any, target: str | None, collate: Collate | None, public: bool, taken: frozenset[str] | None
) -> DatasetRecords:
    indexed = hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, Mapping)
    if not indexed or isinstance(data, str | torch.Tensor | np.ndarray) or hasattr(data, "iloc"):
        shown = "(X, y)"
        if hasattr(data, "columns"):
            shown = "(frame.drop(columns='y').to_numpy(), frame['y'].to_numpy())"
        raise TypeError(f"data is a {type(data).__name__}: {_PAIR}, for example data={shown}")
    if example is None and not public:
        raise ValueError(
            f"data is a {type(data).__name__}, which is read by index: what its records look like is private. Give one "
            "made-up record, such as example=(torch.zeros(3, 32, 32), 0); those of another shape or type are left out"
        )
    shown = only(data[0] if example is None else example, taken)
    several = by_name(shown if collate is None else collate([shown]), target) is not None
    fields = Fields.of(_one(shown, collate), target) if several else None
    return DatasetRecords(data, _example(shown, collate, fields), fields=fields, collate=collate, columns=taken)


def _one(record: Any, collate: Collate | None = None, fields: Fields | None = None) -> dict[str, torch.Tensor]:
    """One record of several fields as a batch of one; if the fields are known, only those are read."""
    given = by_name(record if collate is None else collate([record]), "" if fields is None else fields.target) or {}
    names = given if fields is None else fields.names
    read = {name: _single_precision(torch.as_tensor(given[name])) for name in names}
    return read if collate is not None else {name: value.unsqueeze(0) for name, value in read.items()}


def _example(example: Any, collate: Collate | None, fields: Fields | None) -> Batch:
    """The shape and type of one made-up record, as a batch of one."""
    with contextlib.suppress(TypeError, ValueError, RuntimeError, KeyError):
        inputs, targets = _batch(example, collate, fields)
        return torch.zeros_like(inputs) if fields is None else fields.example(), torch.zeros_like(targets)
    raise TypeError(
        f"example is a {type(example).__name__} that is not a record: give a pair (input, target) of tensors, arrays "
        "or numbers with made-up values, such as example=(torch.zeros(3, 32, 32), 0)"
    )


def _tensor(part: Any, name: str) -> torch.Tensor:
    if hasattr(part, "iloc") or (isinstance(part, np.ndarray) and not part.flags.writeable):
        part = np.array(part)
    try:
        return _single_precision(torch.as_tensor(part))
    except (TypeError, ValueError, RuntimeError):
        kind = type(part).__name__
    rows = part if isinstance(part, list | tuple | np.ndarray) else []
    if isinstance(part, np.ndarray) and part.ndim == 2:
        remedy = "some columns are not numbers: encode text as numbers, such as with dphypo.sklearn.Schema"
    elif len(rows) and all(isinstance(row, list | tuple | np.ndarray | torch.Tensor) for row in rows):
        remedy = (
            "rows differ in length: pad them to one public length, such as tokenizer(texts, padding='max_length', "
            "truncation=True, max_length=128)"
        )
    else:
        remedy = (
            "encode text as numbers. For labels, list the classes from public knowledge: classes = ['no', 'yes'], "
            "y = np.array([classes.index(one) if one in classes else -1 for one in y])"
        )
    raise TypeError(f"data holds {name} as an object of type {kind} that is not a table of numbers: {remedy}")


def _single_precision(values: torch.Tensor) -> torch.Tensor:
    """A plain tensor; numpy's double precision becomes the default precision of PyTorch's layers.

    A subclass may run its own Python code, which would see whole batches.
    """
    with torch._C.DisableTorchFunctionSubclass():
        plain = values.as_subclass(torch.Tensor)
        return plain.float() if plain.dtype == torch.float64 else plain


@dataclass(frozen=True, eq=False, repr=False)
class PersonRows:
    """Records that are persons, as the engine reads them: rows of a person are views of a record."""

    rows: Tensors | DatasetRecords
    persons: Persons

    def __len__(self) -> int:
        return len(self.persons)

    def views(
        self, numbers: torch.Tensor, valid: torch.Tensor, words: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        drawn = self.persons.drawn(numbers.cpu().numpy(), words.cpu().numpy())
        rows, held = (torch.from_numpy(part).to(numbers.device) for part in drawn)
        inputs, targets, counts = self.rows.rows(rows.reshape(-1), (held & valid[:, None]).reshape(-1))
        return inputs, targets, counts.view(held.shape)
