"""Fingerprints of records: equal for the same records, different for any others, and sums of shares add up."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import dp_accounting as dp
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from dphypo.accounting import PureDp
from dphypo.mechanisms import Declared, Mechanism
from dphypo.mechanisms.fingerprint import encoded, fingerprint, held, read_twice, sum_of_digests, sum_of_rows

KEY, OTHER = bytes(range(32)), bytes(32)
X, Y = np.arange(12.0).reshape(6, 2), np.arange(6) % 2


@dataclasses.dataclass
class Holds(Mechanism):
    train: Any
    score: Any = None

    def __call__(self, params: Any, *, seed: int) -> Any:
        raise AssertionError

    def held_records(self) -> dict[str, Any]:
        return {"train": held(self.train), **({} if self.score is None else {"score": held(self.score)})}


def of(*given: Any, key: bytes = KEY) -> bytes:
    return fingerprint([Holds(*given)], key)


CHANGES: list[tuple[str, Any]] = [
    ("another scaling", ((X / 255 * 256, Y),)),
    ("one value", ((X + (X == 3) * 1e-12, Y),)),
    ("one label", ((X, 1 - Y),)),
    ("another order", ((X[::-1], Y[::-1]),)),
    ("one record less", ((X[:-1], Y[:-1]),)),
    ("another type", ((X.astype(np.float32), Y),)),
    ("another shape", ((X.reshape(6, 1, 2), Y),)),
    ("one record scores", ((X[:-1], Y[:-1]), (X[-1:], Y[-1:]))),
    ("tensors", ((torch.tensor(X), torch.tensor(Y)),)),
    ("a data set", (list(zip(X, Y, strict=True)),)),
    ("columns by name", ({"x": X, "y": Y},)),
    ("a frame", (pd.DataFrame(X),)),
]


def test_other_records_have_another_fingerprint() -> None:
    found = [of((X, Y)), *(of(*changed) for _, changed in CHANGES), of((X, Y), key=OTHER)]
    assert len(set(found)) == len(found)
    assert of((X.copy(), Y.copy())) == found[0]
    assert of((np.asfortranarray(X), Y)) == found[0]


def test_a_mechanism_without_records_has_zeros() -> None:
    plain = Declared(lambda params, *, seed: (0, 0.5), PureDp(1.0), dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    assert fingerprint([plain, Holds((X, Y))], KEY) == bytes(32) + of((X, Y))


@given(npst.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(0, 3))), st.integers(0, 9))
def test_sums_of_shares_add_up(rows: Any, cut: int) -> None:
    parts = sum_of_rows(KEY, "train", {"x": rows[:cut]}) + sum_of_rows(KEY, "train", {"x": rows[cut:]}, cut)
    assert sum_of_rows(KEY, "train", {"x": rows}) == parts % 2**256


def test_long_tables_are_hashed_in_pieces() -> None:
    rows = np.arange(10_000)
    whole = sum_of_rows(KEY, "train", {"x": rows})
    assert whole == sum(sum_of_rows(KEY, "train", {"x": rows[one : one + 1]}, one) for one in range(10_000)) % 2**256


def test_frames_and_texts() -> None:
    frame = pd.DataFrame({"age": [30, 40], "work": ["office", None]})
    other = frame.assign(work=["office", "outside"])
    renamed = frame.rename(columns={"age": "years"})
    found = {of((one, [0, 1])) for one in (frame, other, renamed)}
    assert len(found) == 3
    assert of((frame.copy(), [0, 1])) in found


VALUES: list[Any] = [
    1,
    1.0,
    True,
    "1",
    b"1",
    None,
    [1],
    [1, 2],
    [[1], 2],
    {"a": 1},
    {"a": 1, "b": 2},
    {1, 2},
    np.zeros(2),
    np.zeros(2, dtype=np.float32),
    np.zeros((2, 1)),
    np.array([None, 1], dtype=object),
    torch.zeros(2),
    torch.zeros(2, dtype=torch.bfloat16),
    Holds(1),
]


def test_values_are_told_apart() -> None:
    assert not any(encoded(one) == encoded(two) for one, two in itertools.combinations(VALUES, 2))
    assert encoded({"b": 2, "a": 1}) == encoded({"a": 1, "b": 2})
    assert encoded(object()) == encoded(object()), "its address is left out"


def test_records_that_read_differently_count_for_nothing() -> None:
    drawn = itertools.count()

    def read(index: int) -> Any:
        if index == 1:
            raise MemoryError
        return (index, next(drawn)) if index == 2 else index

    for workers in (0, 2):
        found = read_twice(read, 4, workers)
        assert [one is None for one in found] == [False, True, True, False]
    assert sum_of_digests(KEY, "train", found) == sum_of_digests(KEY, "train", read_twice(read, 4))


def test_what_holds_no_records_is_refused() -> None:
    with pytest.raises(TypeError, match="data is a int"):
        held(3)
