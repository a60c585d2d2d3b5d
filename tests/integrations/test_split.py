"""The split by hash: where a record goes depends on that record alone, however it is held."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import hypothesis
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import strategies as st
from support.splits import hashed_apart

from dphypo.training import split
from dphypo.training.split import record_bytes, sides_of, split_by_hash, structure_bytes

RNG = np.random.default_rng(0)
COUNT = 2000
INTEGERS = RNG.integers(0, 100, (COUNT, 3))
LABELS = RNG.integers(0, 2, COUNT)


def apart(inputs: Any, targets: Any = LABELS) -> list[bool]:
    return hashed_apart(inputs, targets[: len(inputs)], share=0.3).tolist()


@pytest.mark.parametrize("other", [[0.5, 1, 2], [2**63 + 1, 0, 0], [-1e300, np.inf, np.nan]])
def test_one_number_of_another_kind_moves_no_integer(other: list[Any]) -> None:
    """By the bytes of the array's type it moved a third of them."""
    mixed = np.vstack([INTEGERS, other])
    assert mixed.dtype != INTEGERS.dtype
    assert apart(mixed, np.append(LABELS, 0))[:COUNT] == apart(INTEGERS)


def test_one_longer_text_moves_no_other() -> None:
    words = np.array([f"word {value}" for value in INTEGERS[:, 0]])
    longer = np.append(words, "a text that is longer than all others")
    assert longer.dtype != words.dtype
    assert apart(longer, np.append(LABELS, 0))[:COUNT] == apart(words)


@pytest.mark.parametrize("other", ["a text", None, 0.5, float("nan"), 10**400, 1j, b"bytes", True, object(), [1, 2]])
def test_one_value_of_any_kind_moves_no_other_in_a_list(other: Any) -> None:
    rows = [[*map(int, row)] for row in INTEGERS[:200]]
    assert apart([*rows, [other, 1, 2]])[:200] == apart(rows)
    assert apart([*rows, [1, 2]])[:200] == apart(rows)  # nor does a record of another shape


@pytest.mark.parametrize("other", ["a text", None, 0.5, float("nan"), pd.NA, pd.Timestamp("2020-01-01")])
def test_one_value_of_any_kind_moves_no_other_in_a_frame(other: Any) -> None:
    frame = pd.DataFrame(
        {"age": INTEGERS[:200, 0], "born": pd.Timestamp("2000-01-01") + pd.to_timedelta(range(200), "D")}
    )
    for column in frame.columns:
        more = frame.astype({column: object})
        more.loc[len(more)] = frame.iloc[0].to_dict() | {column: other}
        assert apart(more)[:200] == apart(frame)


def test_the_container_does_not_matter() -> None:
    values = RNG.normal(size=(300, 3))
    expected = apart(values)
    for same in (
        values.astype(np.float32),
        torch.tensor(values),
        torch.tensor(values, dtype=torch.float32),
        pd.DataFrame(values, columns=["a", "b", "c"]),
        pd.DataFrame(values, columns=["a", "b", "c"])[["c", "a", "b"]],
        values.tolist(),
        values.astype(str),
        values.astype(object),
        values.reshape(300, 3, 1),
    ):
        assert apart(same) == expected
    whole = INTEGERS[:300]
    for same in (
        whole.astype(np.uint8),
        whole.astype(float),
        whole.astype(str),
        torch.tensor(whole),
        torch.tensor(whole, dtype=torch.bfloat16),
        pd.DataFrame(whole).astype("Int64"),
        pd.DataFrame(whole).astype("category"),
    ):
        assert apart(same) == apart(whole)


class Silent:
    """Says nothing of itself."""

    def __str__(self) -> str:
        raise ValueError("no text")


LAST = datetime.datetime.max.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-5)))


@pytest.mark.parametrize("value", [LAST, np.timedelta64(1, "M"), Silent()], ids=["time", "months", "object"])
def test_no_value_keeps_the_others_from_being_split(value: Any) -> None:
    """A time at the end of the calendar has no hour in another zone: reading it raised, and so showed the record."""
    rows = [[datetime.datetime(2020, 1, day, tzinfo=datetime.UTC)] for day in range(1, 29)]
    alone = hashed_apart(pd.DataFrame(rows, dtype=object), np.zeros(28), share=0.5)
    for form in (lambda given: pd.DataFrame(given, dtype=object), list, lambda given: np.array(given, dtype=object)):
        assert np.array_equal(hashed_apart(form([*rows, [value]]), np.zeros(29), share=0.5)[:-1], alone)


def test_times_are_the_same_in_every_unit() -> None:
    day = datetime.date(2020, 5, 17)
    same = [
        day,
        datetime.datetime(2020, 5, 17, tzinfo=datetime.UTC),
        np.datetime64("2020-05-17"),
        np.datetime64("2020-05-17", "ns"),
        pd.Timestamp(day),
    ]
    assert len(set(record_bytes(same))) == 1
    assert len(set(record_bytes([None, "", "NaN", np.nan, pd.NaT, pd.NA, np.datetime64("NaT")]))) == 1
    assert len(set(record_bytes([True, 1, 1.0, "1", " 1.0", "True", np.int8(1), np.True_, 1 + 1e-12]))) == 1
    assert len(set(record_bytes([[1, "a"], [1, "b"], ["a", 1], ["1a", 1], [1, "a", 1], [1, np.nan], [1]]))) == 7


@dataclasses.dataclass
class Tagged:
    tags: Any


def test_the_order_of_a_set_is_no_part_of_a_record() -> None:
    """Texts in a set have another order in each process: a resumed search would train on records that had scored."""
    one, other = {0, 8}, {8, 0}
    assert list(one) != list(other), "numbers have one by when they came, too, so that one process shows it"

    def forms(some: set[int]) -> list[bytes]:
        more = [(some,), {"a": frozenset(some)}, Tagged(some)]
        frame = pd.DataFrame({"tags": [some], "more": [more], "one": [Tagged(some)]}, dtype=object)
        named = {"tags": some, frozenset(some): 1}
        structures = [structure_bytes(form) for form in ((some, 1), named, {"pairs": [(some, "a")]}, {"more": more})]
        return [*structures, *record_bytes([[some, {"a": some}]]), *record_bytes(frame)]

    assert forms(one) == forms(other)
    assert len(set(record_bytes([[{"a", "b"}], [{"a", "c"}], [{"a"}], [{1, 2}]]))) == 4


@pytest.mark.parametrize("value", ["a", [1, "a"], (1,), (), ("a", [2.5, None]), {"a": 1, 2: ["b"]}, 1j, [[], {}]])
def test_what_holds_no_set_keeps_its_bytes(value: Any) -> None:
    assert split._shown(value) == str(value)


VALUES = st.one_of(
    st.integers(), st.floats(), st.text(max_size=8), st.booleans(), st.none(), st.binary(max_size=5), st.dates()
)
TABLES = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(VALUES, min_size=width, max_size=width), min_size=2, max_size=8)
)


def containers(rows: list[list[Any]]) -> list[Any]:
    return [rows, pd.DataFrame(rows), np.array([*rows, [None]], dtype=object)[:-1]]


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(TABLES)
def test_adding_any_record_moves_no_other(rows: list[list[Any]]) -> None:
    for fewer, more in zip(containers(rows[:-1]), containers(rows), strict=True):
        assert record_bytes(more)[: len(rows) - 1] == record_bytes(fewer)


def test_the_property_catches_a_hash_of_the_arrays_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant is how records were read before."""
    monkeypatch.setattr(split, "record_bytes", lambda values: [row.tobytes() for row in np.asarray(values)])
    mixed = np.vstack([INTEGERS, [0.5, 1, 2]])
    moved = np.array(apart(mixed, np.append(LABELS, 0))[:COUNT]) != np.array(apart(INTEGERS))
    assert moved.mean() > 0.3


def test_parts_stay_in_their_container() -> None:
    frame, labels = pd.DataFrame(INTEGERS, columns=["c", "a", "b"]), pd.Series(LABELS)
    (train, _), (held_out, targets) = split_by_hash(frame, labels)
    assert list(train.columns) == ["c", "a", "b"]
    assert len(train) + len(held_out) == COUNT
    assert held_out.index.equals(targets.index)
    assert isinstance(split_by_hash(torch.tensor(INTEGERS), LABELS)[0][0], torch.Tensor)
    assert 0.15 < len(held_out) / COUNT < 0.25


def test_another_split_of_the_same_array_is_not_taken_for_one() -> None:
    """Other targets, or other values in the same array, move records: most of those that score would train, too."""
    values, labels = RNG.normal(size=(400, 3)), LABELS[:400].copy()
    train, held_out = split_by_hash(values, labels)
    assert sides_of(train, split_by_hash(values, labels)[1]) is None, "equal up to one record, perhaps"
    trained = {row.tobytes() for row in train[0]}
    soft = np.eye(2)[labels] * 0.9 + 0.05
    _, by_soft = split_by_hash(values, soft)
    assert sum(row.tobytes() in trained for row in by_soft[0]) > 40
    assert sides_of(train, by_soft) is None
    values /= 255
    assert sides_of(train, split_by_hash(values, labels)[1]) is None
    assert sides_of(train, held_out) == train.split


def test_a_data_set_that_reads_its_records_otherwise_is_another_one() -> None:
    records = [(row, int(label)) for row, label in zip(INTEGERS[:100], LABELS, strict=False)]

    class Scaled:
        scale = 1.0

        def __len__(self) -> int:
            return len(records)

        def __getitem__(self, index: int) -> tuple[Any, int]:
            return records[index][0] * self.scale, records[index][1]

    data = Scaled()
    train, held_out = split_by_hash(data)
    assert sides_of(train, held_out) == train.split == held_out.split
    data.scale = 0.5
    assert sides_of(train, split_by_hash(data)[1]) is None
