"""Columns that the model does not take are left out, and declared columns are rehearsed before a record is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dphypo.torch import DPSGD

datasets = pytest.importorskip("datasets")
pytestmark = pytest.mark.filterwarnings("ignore:the data set declares that lengths")

COUNT, LENGTH = 40, 6
IDS = np.random.default_rng(0).integers(0, 20, (COUNT, LENGTH))
LABELS = (IDS[:, 0] > 9).astype(int)
EXAMPLE = {"input_ids": [0] * LENGTH, "labels": 0}


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(20, 3), nn.Linear(3 * LENGTH, 2)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.head(self.table(input_ids).flatten(1)))


class Anything(Reader):
    def forward(self, input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        return super().forward(input_ids)


def texts(**more: Any) -> Any:
    columns = {"text": ["words"] * COUNT, "input_ids": IDS.tolist(), "labels": LABELS.tolist()}
    return datasets.Dataset.from_dict({**columns, **more})


def collate(records: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """As the collator of transformers, which makes a tensor of every column."""
    return {name: torch.stack([torch.as_tensor(record[name]) for record in records]) for name in records[0]}


def dpsgd(**changes: Any) -> DPSGD:
    given: dict[str, Any] = {"model": Reader, "data": texts(), "example": EXAMPLE, "score": lambda model: 0.5}
    return DPSGD(**{**given, "noise_multiplier": 1.0, "epochs": 1, "batch_size": 10, "device": "cpu", **changes})


@pytest.mark.parametrize("kind", [None, "torch", "numpy"])
@pytest.mark.parametrize("collator", [None, collate])
def test_a_column_that_the_model_does_not_take_is_left_out(kind: str | None, collator: Any) -> None:
    """Before, a collator that cannot make a tensor of a text left out every record, in silence."""
    found = dpsgd(data=texts().with_format(kind), collate=collator)
    assert found.fitting_records() == {"train": (COUNT, COUNT)}
    assert found({}, seed=1).ok


def test_an_example_may_show_columns_that_the_model_does_not_take() -> None:
    assert dpsgd(example={**EXAMPLE, "text": "made up"}).fitting_records() == {"train": (COUNT, COUNT)}


def test_arrays_by_name_may_hold_other_columns() -> None:
    data = {"input_ids": IDS, "labels": LABELS, "text": ["words"] * COUNT}
    assert dpsgd(data=data, example=None).fitting_records() == {"train": (COUNT, COUNT)}


def test_a_column_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ValueError, match=r"column 'text', declared as Value\('string'\).*remove_columns\('text'\)"):
        dpsgd(model=Anything, collate=collate)


def test_a_declared_length_that_is_not_the_example_s_is_named() -> None:
    fixed = datasets.Features(
        {
            "text": datasets.Value("string"),
            "input_ids": datasets.List(datasets.Value("int64"), length=LENGTH),
            "labels": datasets.Value("int64"),
        }
    )
    assert dpsgd(data=texts().cast(fixed)).fitting_records() == {"train": (COUNT, COUNT)}
    with pytest.raises(ValueError, match=r"column 'input_ids' with the shape \(6,\), and example shows \(5,\)"):
        dpsgd(data=texts().cast(fixed), example={"input_ids": [0] * 5, "labels": 0})


def test_a_target_of_another_type_is_named() -> None:
    with pytest.raises(ValueError, match=r"column 'labels', the target, with torch\.int64 values"):
        dpsgd(example={"input_ids": [0] * LENGTH, "labels": 0.0}, loss=nn.functional.mse_loss)


def test_a_data_set_with_a_transform_is_read_as_it_is() -> None:
    def transform(batch: dict[str, list[Any]]) -> dict[str, Any]:
        return {"input_ids": torch.tensor(batch["input_ids"]), "labels": torch.tensor(batch["labels"])}

    found = dpsgd(data=texts().with_transform(transform), model=Anything, collate=collate)
    assert found.fitting_records() == {"train": (COUNT, COUNT)}
