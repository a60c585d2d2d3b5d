"""Whatever reading or computing one record raises is that record's outcome: it counts for nothing, and no run fails."""

from __future__ import annotations

import builtins
import io
import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from support.torch_world import EXAMPLE, INPUTS, LABELS, dpsgd
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from dphypo.errors import UnsupportedModelError
from dphypo.mechanisms.mechanism import attempt, or_none
from dphypo.sklearn.schema import numbers
from dphypo.torch import PrivateAccuracy
from dphypo.training.split import record_bytes, split_by_hash


class Panic(BaseException):
    """As pyo3_runtime.PanicException of tokenizers and polars, which is no Exception."""


KINDS = sorted(
    (kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)),
    key=lambda kind: kind.__name__,
)
KINDS = [*dict.fromkeys(KINDS), Panic, UnsupportedModelError, torch.OutOfMemoryError]
MARK = 1000.0  # the numbers of the record that raises the first kind; those of the next are larger by one


def raised(number: float) -> None:
    """Raise what the record with this number raises, if there is one."""
    if not MARK <= number < MARK + len(KINDS):
        return
    kind = KINDS[int(number - MARK)]
    if issubclass(kind, BaseExceptionGroup):
        raise kind("two", [ValueError("one")])
    if issubclass(kind, UnicodeError) and kind is not UnicodeError:
        raise kind.__new__(kind)  # whose text cannot be made
    raise kind


class Rows(Dataset[Any]):
    def __init__(self, rows: Any, *, raises: bool) -> None:
        self.rows, self.raises = rows, raises

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        if self.raises:
            raised(self.rows[index][0])
        return torch.tensor(self.rows[index]), int(self.rows[index][1] > 1)


class Picky(nn.Module):
    """The first weight of a loss that raises is large, so that the loss knows the odd records by their outputs."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place, self.inner = place, nn.Linear(5, 2)
        if place == "loss":
            nn.init.eye_(self.inner.weight)
            nn.init.zeros_(self.inner.bias)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.place == "model":
            raised(float(inputs.max()))
        return torch.as_tensor(self.inner(inputs))


ODD = np.repeat(MARK + np.arange(len(KINDS), dtype=np.float32)[:, None], 5, axis=1)


def outcome(place: str, rows: Any) -> tuple[bytes, float]:
    def collate(records: list[Any]) -> Any:
        raised(float(records[0][0][0]))
        return records[0][0][None], torch.tensor([records[0][1]])

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if place == "loss":
            raised(round(float(outputs.max())))
        return cross_entropy(outputs, targets, reduction="none")

    changes: dict[str, Any] = {"data": Rows(rows, raises=place == "reading"), "example": EXAMPLE, "records": 60}
    changes |= {"model": lambda: Picky(place), "loss": loss, "learning_rate": 1e-6}
    if place == "collate":
        changes["collate"] = collate
    if place == "score":
        changes["data"] = Rows(INPUTS, raises=False)
        changes["score"] = PrivateAccuracy(Rows(rows, raises=True), noise_multiplier=2.0, records=60, example=EXAMPLE)
    found = attempt(dpsgd(**changes), {}, 1)
    assert found.ok, found.failure
    return found.model, float(found.score or 0)


@pytest.mark.parametrize("place", ["reading", "collate", "score"])
def test_no_exception_of_a_record_fails_a_run(place: str) -> None:
    """Before, MemoryError and what is no Exception made every run fail."""
    raising, outside = (np.concatenate([INPUTS, rows]) for rows in (ODD, ODD * np.nan))
    assert outcome(place, raising) == outcome(place, outside)


def test_a_damaged_header_is_the_outcome_of_its_record() -> None:
    """NumPy raises MemoryError for an array file whose header announces 2**50 numbers."""
    damaged = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (2**50,)}
    np.lib.format.write_array_header_1_0(damaged, header)

    class Files(Dataset[Any]):
        def __len__(self) -> int:
            return 61

        def __getitem__(self, index: int) -> Any:
            if index == 60:
                return np.load(io.BytesIO(damaged.getvalue() + bytes(40))), 0
            return torch.tensor(INPUTS[index]), int(LABELS[index])

    with pytest.raises(MemoryError):
        Files()[60]
    assert attempt(dpsgd(data=Files(), example=EXAMPLE, records=60), {}, 1).ok
    train, held_out = split_by_hash(Files())
    assert len(train) + len(held_out) == 61


class Hostile:
    """A value of a table that raises whatever is asked of it."""

    def __float__(self) -> float:
        raise Panic

    def __str__(self) -> str:
        raise Panic

    def __len__(self) -> int:
        raise Panic

    def __ne__(self, other: object) -> bool:
        raise Panic

    __hash__ = None  # type: ignore[assignment]


def test_no_value_of_a_table_raises() -> None:
    assert len(record_bytes([[1.0, Hostile()], [2.0, 3.0]])) == 2
    table = np.empty((2, 1), dtype=object)
    table[0, 0], table[1, 0] = Hostile(), 1.0
    assert np.isnan(numbers(table)[0, 0])
    assert numbers(table)[1, 0] == 1.0


def test_a_score_that_raises_on_made_up_records_fails_whatever_the_records_are() -> None:
    class Never(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            raise MemoryError("no model works here")

    for rows in (INPUTS, INPUTS[:0]):
        score = PrivateAccuracy((rows, LABELS[: len(rows)]), noise_multiplier=2.0, records=60)
        with pytest.raises(MemoryError):
            score(Never(5, 2), seed=1)


def test_signals_pass_through() -> None:
    assert threading.current_thread() is threading.main_thread()

    def told_to_end(number: int) -> None:
        os.kill(os.getpid(), number)
        time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        or_none(lambda: told_to_end(signal.SIGINT))

    def leave(number: int, frame: object) -> None:
        raise SystemExit(3)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        with pytest.raises(SystemExit):
            or_none(lambda: told_to_end(signal.SIGTERM))
    finally:
        signal.signal(signal.SIGTERM, before)

    def ended() -> None:
        raise SystemExit(3)

    assert or_none(ended) is None  # a record's own
