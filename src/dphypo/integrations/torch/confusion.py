"""Scores from counts: a record is in one cell, the cells get noise, and whatever is computed from them is free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dp_accounting
import numpy as np
import torch
from torch import nn

from dphypo import _validate, noise
from dphypo.accounting import RoundedDp
from dphypo.accounting.sides import Sides
from dphypo.errors import UnfitModelError
from dphypo.integrations.measures import GAPS, MEASURES, Floats, auc
from dphypo.integrations.torch import seeds
from dphypo.integrations.torch.data import as_records
from dphypo.integrations.torch.domain import FATAL
from dphypo.integrations.torch.fields import Called
from dphypo.integrations.torch.record_values import classes_of, declare, noise_of, predicted, values

_MOST_CELLS = 1e12  # of a confusion matrix
_BINS = 64


@dataclass(frozen=True, repr=False)
class PrivateConfusion:
    """A measure of the confusion matrix on private records, with Gaussian noise on the count of every cell.

    Formal guarantee: a record is in one cell, so adding or removing it changes one count by 1, and one evaluation is a
    Gaussian mechanism with the given noise multiplier, rounded. The measure is computed from the noisy matrix.

    Args:
        data, noise_multiplier, split, records, example: as for :class:`PrivateAccuracy`.
        measure: "f1" (the mean over classes), "balanced_accuracy" (the mean recall), "accuracy", or a function of the
            matrix, whose rows are true classes and whose columns are predicted ones. Counts below 0 were set to 0.
            "auc", of two classes, comes from a histogram of the model's probabilities in 64 bins, the columns. With
            ``group``, minus a gap between groups: "accuracy_gap", "recall_gap" (the largest over classes) or "rate_gap"
            (of how often a class is predicted).
        group: ``group(inputs)``, of the arguments of the model for one record, gives the number of its group. Matrices
            are then [group, true class, predicted class].
        groups: how many groups there are; a record of no group is in no cell.
    """

    data: Any
    noise_multiplier: float | str
    measure: str | Callable[[Floats], float] = "f1"
    split: Sides | None = None
    records: int | None = None
    example: Any = None
    group: Callable[[Any], Any] | None = None
    groups: int = 2

    def __post_init__(self) -> None:
        known = [*MEASURES, "auc", *(GAPS if self.group is not None else ())]
        if not callable(self.measure) and self.measure not in known:
            raise _validate.fail("measure", self.measure, f"give one of {', '.join(known)}, or a function")
        _validate.integer(at_least=2, groups=self.groups)
        declare(self)

    @property
    def event(self) -> RoundedDp:
        return RoundedDp(dp_accounting.GaussianDpEvent(noise_of(self)), noise.slack(_MOST_CELLS, noise_of(self)))

    @property
    def matrix_key(self) -> tuple[Any, ...]:
        """Equal for scores that are measures of one noisy matrix."""
        cells = (id(self.group), self.groups, self.measure == "auc")
        return type(self), id(self.data), id(self.example), self.noise_multiplier, self.split, self.records, *cells

    def __call__(self, model: nn.Module, *, seed: int) -> float:
        return self.measured(self.matrix(model, seed=seed))

    def matrix(self, model: nn.Module, *, seed: int) -> Floats:
        """The noisy counts, 0 or greater."""
        assert self.records is not None
        records = as_records(self.data, self.example)
        classes = classes_of(model, records)
        columns = _BINS if self.measure == "auc" else classes
        if self.measure == "auc" and classes != 2:
            raise UnfitModelError(f"'auc' is of two classes, and the model tells {classes} apart")
        fields = model.fields if isinstance(model, Called) else records.fields

        def group_of(row: torch.Tensor) -> torch.Tensor:
            assert self.group is not None
            try:
                return torch.as_tensor(self.group(row if fields is None else fields.unpack(row))).reshape(()).double()
            except FATAL:
                raise
            except Exception:
                return torch.tensor(-1.0, dtype=torch.float64)

        def cell(outputs: torch.Tensor, targets: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
            found = targets.reshape(len(targets)).double()
            inside = (found >= 0) & (found < classes) & (found == found.round())
            column = _bin(outputs, len(targets)) if self.measure == "auc" else predicted(outputs, targets)
            if self.group is not None:  # of each record by itself: it must not depend on the others
                group = torch.stack([group_of(inputs[place : place + 1]) for place in range(len(inputs))]).to(found)
                inside &= (group >= 0) & (group < self.groups) & (group == group.round())
                found = group * classes + found
            return torch.where(inside, found * columns + column, -1.0)

        cells = values(model, records, cell, self.records, beside=True).astype(np.int64)
        shape = (*([] if self.group is None else [self.groups]), classes, columns)
        counts = np.bincount(cells[cells >= 0], minlength=int(np.prod(shape)))
        noisy = counts + noise.rounded_gaussian(noise_of(self), seeds.words(seed, "score"), len(counts))
        return np.asarray(np.maximum(noisy, 0).reshape(shape), dtype=np.float64)

    def measured(self, matrix: Floats) -> float:
        """The measure of such a matrix."""
        if callable(self.measure):
            return float(self.measure(matrix))
        if self.measure in GAPS:
            return -float(GAPS[self.measure](matrix))
        whole = matrix if self.group is None else matrix.sum(0)
        return auc(whole) if self.measure == "auc" else float(MEASURES[self.measure](whole))


def _bin(outputs: torch.Tensor, count: int) -> torch.Tensor:
    """In which bin the probability of class 1 is; one that is not a number is in the first."""
    single = outputs.dim() == 1 or outputs.shape[1] == 1
    margin = outputs.reshape(count) if single else outputs[:, 1] - outputs[:, 0]
    return (margin.double().sigmoid().nan_to_num(nan=0.0) * _BINS).floor().clamp(0, _BINS - 1)
