"""Records of any structure: whole numbers beside fractions, dicts, tuples, dataclasses, data sets, collators."""

from __future__ import annotations

import collections
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from support.rows import rows_of
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from dphypo.torch import DPSGD, PrivateLoss, split_by_hash
from dphypo.torch.data import as_records
from dphypo.torch.domain import Domain
from dphypo.torch.fields import Fields, called
from dphypo.training.split import SideDataset, sides_of

COUNT, LENGTH, WORDS = 60, 4, 11
CPU = torch.device("cpu")


class Both(nn.Module):
    """Words and numbers about a person."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 3), nn.Linear(3 + 2, 2)

    def forward(self, ids: torch.Tensor, facts: torch.Tensor) -> torch.Tensor:
        if (ids.dtype, facts.dtype) != (torch.int64, torch.float32):
            raise TypeError("other types than the records have")
        return self.head(torch.cat([self.words(ids).mean(1), facts], 1))  # type: ignore[no-any-return]


def people() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, WORDS, (COUNT, LENGTH), generator=generator)
    labels = torch.randint(0, 2, (COUNT,), generator=generator)
    return {"ids": ids, "facts": torch.randn(COUNT, 2, generator=generator), "labels": labels}


@dataclass
class Person:
    ids: Any
    facts: Any
    labels: Any


Named = collections.namedtuple("Named", "ids facts labels")
EXAMPLE = {"ids": [0] * LENGTH, "facts": [0.0, 0.0], "labels": 0}


class Read(Dataset[Any]):
    """People read by index in some form; ``spoiled`` says what is wrong with which."""

    def __init__(self, form: Any = dict, **spoiled: Any) -> None:
        self.given, self.form, self.spoiled, self.threads = people(), form, spoiled, set[int]()

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        self.threads.add(threading.get_ident())
        record = {name: values[index] for name, values in self.given.items()}
        record |= {name: value for name, (place, value) in self.spoiled.items() if place == index}
        return self.form(**record)


def dpsgd(data: Any, **changes: Any) -> DPSGD:
    made: dict[str, Any] = {"noise_multiplier": 1.0, "epochs": 1, "batch_size": 20, "score": lambda model: 0.5}
    return DPSGD(**{"model": Both, "data": data, "device": "cpu", **made, **changes})


def weights(mechanism: DPSGD) -> torch.Tensor:
    return torch.cat([value.flatten() for value in mechanism({}, seed=1).model.parameters()])


def plain(**record: Any) -> Any:
    return tuple(record.values())


FORMS: dict[str, tuple[Any, Any]] = {
    "a mapping of arrays": ({name: values.numpy() for name, values in people().items()}, None),
    "a tuple of tensors": (tuple(people().values()), None),
    "a dataclass of tensors": (Person(**people()), None),
    "a TensorDataset": (TensorDataset(*people().values()), None),
    "dicts read by index": (Read(), EXAMPLE),
    "dataclasses read by index": (Read(Person), Person(**EXAMPLE)),
    "named tuples read by index": (Read(Named), Named(**EXAMPLE)),
    "tuples read by index": (Read(plain), tuple(EXAMPLE.values())),
    "a list of dicts": ([Read()[place] for place in range(COUNT)], EXAMPLE),
}


@pytest.fixture(scope="module")
def usual() -> torch.Tensor:
    return weights(dpsgd(people()))


@pytest.mark.parametrize("form", FORMS)
def test_the_same_records_in_any_form_train_the_same_model(form: str, usual: torch.Tensor) -> None:
    data, example = FORMS[form]
    assert torch.equal(weights(dpsgd(data, example=example)), usual)


class Nested(Both):
    """The same model, whose arguments have parts."""

    def forward(self, text: Any, facts: Any) -> torch.Tensor:  # type: ignore[override]
        left, right = facts["sides"]
        return super().forward(text["ids"], torch.stack([left[:, 0], right[:, 0]], 1))


def nested(ids: Any, facts: Any, labels: Any) -> Any:
    facts = torch.as_tensor(facts)
    return {"text": {"ids": ids}, "facts": {"sides": (facts[..., :1], facts[..., 1:])}}, labels


@pytest.mark.parametrize(("data", "example"), [(nested(**people()), None), (Read(nested), nested(**EXAMPLE))])
def test_fields_may_have_fields(data: Any, example: Any, usual: torch.Tensor) -> None:
    assert torch.equal(weights(dpsgd(data, model=Nested, example=example)), usual)
    short = [nested(**{name: values[place] for name, values in people().items()}) for place in range(COUNT)]
    short[3][0]["facts"] = {"sides": (torch.zeros(1),)}  # one side is missing: it is left out
    made = dpsgd(short, model=Nested, example=nested(**EXAMPLE))
    assert made.fitting_records() == {"train": (COUNT - 1, COUNT)}
    assert made({}, seed=1).ok


def test_gradients_of_mixed_fields_are_those_of_one_record_at_a_time() -> None:
    mechanism = dpsgd(people())
    inputs, targets = rows_of(mechanism.data, np.arange(3))
    model = called(Both(), mechanism.data.fields)
    unpacked = mechanism.data.fields.unpack(inputs)
    assert torch.equal(unpacked["ids"], people()["ids"][:3])
    assert torch.equal(unpacked["facts"], people()["facts"][:3])
    assert torch.equal(model(inputs), model.module(people()["ids"][:3], people()["facts"][:3]))  # type: ignore[operator]
    assert targets.tolist() == people()["labels"][:3].tolist()


@pytest.mark.parametrize(
    ("spoiled", "fits"),
    [
        ({}, COUNT),
        ({"ids": (3, torch.tensor([0, 0, 0, WORDS]))}, COUNT - 1),  # a word that the model does not have
        ({"ids": (3, torch.tensor([0, 0, -1, 0]))}, COUNT - 1),
        ({"ids": (3, torch.tensor([0.5, 0, 0, 0]))}, COUNT - 1),  # a fraction in place of a word
        ({"ids": (3, torch.zeros(5).long())}, COUNT - 1),  # another length
        ({"facts": (3, torch.tensor([0.0, torch.inf]))}, COUNT - 1),
        ({"facts": (3, torch.tensor([1, 2]))}, COUNT),  # a number is a number
        ({"labels": (3, 2)}, COUNT - 1),
        ({"labels": (3, "no label")}, COUNT - 1),
    ],
)
def test_records_of_mixed_fields_that_do_not_fit_are_left_out(spoiled: Any, fits: int) -> None:
    records = as_records(Read(**spoiled), EXAMPLE)
    loss = nn.CrossEntropyLoss(reduction="none")
    domain = Domain.of(called(Both(), records.fields), records.example, loss)
    assert records.counts(domain) == fits
    inputs, _ = rows_of(records.within(domain), np.arange(COUNT))
    assert len(inputs) == fits


def test_a_whole_number_that_no_table_bounds_may_be_negative() -> None:
    records = as_records({"ids": torch.zeros(2, LENGTH).long(), "facts": torch.tensor([[-3, 1]] * 2), "labels": [0, 1]})
    domain = Domain.of(called(_Whole(), records.fields), records.example)
    assert records.counts(domain) == 2


class _Whole(Both):
    def forward(self, ids: torch.Tensor, facts: torch.Tensor) -> torch.Tensor:
        return super().forward(ids, facts.float())


def test_the_target_is_the_field_that_is_named() -> None:
    given = people()
    other = {"label": given["labels"], "ids": given["ids"], "facts": given["facts"]}
    assert torch.equal(weights(dpsgd(other, target="label")), weights(dpsgd(given)))
    with pytest.raises(ValueError, match="target = 'labels' is not valid: records have the fields label, ids, facts"):
        dpsgd(other)
    with pytest.raises(ValueError, match="no field 'ids'"):
        Fields({"ids": (2,)}, {"ids": torch.int64}).pack({"labels": torch.zeros(1)})


def padded(records: list[Any]) -> dict[str, torch.Tensor]:
    """As collators do it, to a public length."""
    (record,) = records
    ids = [*record["ids"], *[0] * LENGTH][:LENGTH]
    rest = {name: torch.as_tensor(record[name])[None] for name in ("facts", "labels")}
    return {"ids": torch.as_tensor(ids)[None], **rest}


def test_a_collator_pads_records_to_a_public_length() -> None:
    short = Read(ids=(3, torch.tensor([1, 2])))
    records = as_records(short, EXAMPLE, collate=padded)
    domain = Domain.of(called(Both(), records.fields), records.example)
    assert records.counts(domain) == COUNT
    inputs, _ = rows_of(records, np.array([3]))
    assert inputs[0, :LENGTH].tolist() == [1, 2, 0, 0]
    assert dpsgd(short, example=EXAMPLE, collate=padded)({}, seed=1).ok


@pytest.mark.parametrize("rows", [0, 2])
def test_one_record_of_other_rows_is_left_out(rows: int) -> None:
    """Otherwise every run fails, and so tells of the record."""

    class Crops:
        def __len__(self) -> int:
            return COUNT

        def __getitem__(self, index: int) -> Any:
            return torch.full((rows if index == 7 else 1, 3), float(index)), index % 2

    def collate(records: list[Any]) -> Any:
        return records[0][0], torch.full((len(records[0][0]),), records[0][1])

    read = as_records(Crops(), (torch.zeros(1, 3), 0), collate=collate)
    inside = read.within(Domain.of(nn.Linear(3, 2), read.example, None))
    inputs, targets = rows_of(inside, np.arange(COUNT))
    assert (len(inputs), len(targets)) == (COUNT - 1, COUNT - 1)


def test_records_are_read_in_threads() -> None:
    slow = Read()
    read = as_records(slow, EXAMPLE, workers=3)
    inputs, targets = rows_of(read, np.arange(COUNT))
    assert threading.get_ident() not in slow.threads
    alone = rows_of(as_records(Read(), EXAMPLE), np.arange(COUNT))
    assert torch.equal(inputs, alone[0])
    assert torch.equal(targets, alone[1])
    together = threading.Barrier(3, timeout=30)  # nobody passes unless three records are read at once
    waits = Read(lambda **record: (together.wait(), record)[1])
    assert len(rows_of(as_records(waits, EXAMPLE, workers=3), np.arange(12))[0]) == 12
    with pytest.raises(ValueError, match="workers = -1"):
        as_records(slow, EXAMPLE, workers=-1)


def sides(dataset: Any, **options: Any) -> list[bool]:
    train, held_out = split_by_hash(dataset, **options)
    assert isinstance(train, SideDataset)
    assert train.side.apart_from(held_out.side)
    assert sorted([*train.indices, *held_out.indices]) == list(range(len(dataset)))
    return [place in held_out.indices for place in range(len(dataset))]


def test_a_data_set_is_split_by_its_records_whatever_their_structure() -> None:
    usual = sides(Read())
    assert any(usual)
    assert usual == sides(Read(Person)) == sides(Read(), workers=2)
    lists = [{name: values[place].tolist() for name, values in people().items()} for place in range(COUNT)]
    assert usual == sides(lists)
    assert usual[1:] == sides(lists[1:])  # a record moves no other
    broken = sides(Read(form=lambda **record: 1 / 0 if record["ids"][0] == 0 else record))
    readable = [place for place in range(COUNT) if people()["ids"][place, 0] != 0]
    assert [broken[place] for place in readable] == [usual[place] for place in readable]
    pairs = [(values, label) for values, label in zip(people()["facts"], people()["labels"], strict=True)]
    _, (_, labels) = split_by_hash(people()["facts"], people()["labels"])
    assert sum(sides(pairs)) == len(labels)


class Pictures:
    """Numbers as read through a transform."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> Any:
        if index >= 200:
            raise IndexError
        return self.transform(np.float32(index)), index % 2


class Hidden(Pictures):
    """The transform is called otherwise."""

    def __init__(self, way: Any) -> None:
        self.way = way

    def __getitem__(self, index: int) -> Any:
        return self.way(np.float32(index)), index % 2


def scaled(value: Any) -> Any:
    return (value - 0.5) / 0.5


def test_one_person_in_two_forms_may_be_on_both_sides() -> None:
    """A transform changes the hashes: parts of two data sets are not known to be apart."""
    train, _ = split_by_hash(Pictures(scaled))
    others, held_out = split_by_hash(Pictures(np.float32))
    assert set(train.indices) & set(held_out.indices)
    assert sides_of(train, held_out) is None
    assert sides_of(others, held_out) is not None
    assert not train.side.apart_from(held_out.side)
    train, held_out = split_by_hash(Hidden(scaled))[0], split_by_hash(Hidden(np.float32))[1]
    assert train.side.to_json()[0]["split"] == held_out.side.to_json()[0]["split"], "what changes them is not stated"
    assert not train.side.apart_from(held_out.side)
    assert sides_of(train, held_out) is None
    drawn = np.random.default_rng(0)
    parts = split_by_hash(Pictures(lambda value: value + (drawn.normal() if value < 50 else 0)))
    assert sorted([*parts[0].indices, *parts[1].indices]) == list(range(50, 200)), "they read differently each time"


def test_parts_of_a_data_set_train_and_score() -> None:
    train, held_out = split_by_hash(Read())
    score = PrivateLoss(as_records(held_out, EXAMPLE), noise_multiplier=0.5)
    mechanism = dpsgd(train, example=EXAMPLE, score=score)
    assert mechanism.split is not None
    assert mechanism({}, seed=1).ok
    assert PrivateLoss(as_records(train, EXAMPLE), noise_multiplier=0.5).data.origin.side == train.side


@pytest.mark.parametrize(("data", "example"), [(people(), None), (Read(), EXAMPLE)])
def test_a_named_score_sets_records_of_fields_apart(data: Any, example: Any) -> None:
    mechanism = dpsgd(data, example=example, score="loss").at(score_noise_multiplier=5.0)
    assert mechanism.split is not None
    assert len(mechanism.data) + len(mechanism.score.data) == COUNT  # type: ignore[union-attr]
    assert mechanism.rehearse({}, seed=1).ok
    assert mechanism({}, seed=1).ok


def test_a_data_set_of_hugging_face() -> None:
    datasets = pytest.importorskip("datasets")
    lists = {name: values.tolist() for name, values in people().items()}
    hugging = datasets.Dataset.from_dict({**lists, "text": ["words"] * COUNT})
    with pytest.warns(UserWarning, match="lengths of 'facts, ids' vary"):
        mechanism = dpsgd(hugging, example=EXAMPLE)
    assert torch.equal(weights(mechanism), weights(dpsgd(people())))
    assert sides(hugging.remove_columns("text")) == sides(Read())
