"""Scores: what ranks the runs of a search, and what it costs.

* A **public hold-out** costs nothing: :class:`PublicAccuracy`, or any function of the model. Whoever passes a function
  declares that it looks at public records alone.
* **Private records** cost privacy. :class:`PrivateAccuracy`, :class:`PrivateLoss` and :class:`PrivateConfusion` add
  noise that is Gaussian to the last bit (``dphypo.noise``) and state the event. Records that the model was not trained
  on, set apart by a rule that looks at each record by itself (:func:`split_by_hash`), cost the worse of training and
  scoring; the training records themselves cost both. A record outside the domain adds nothing, as in training.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.utils.data import Subset

from dphypo import _validate, noise
from dphypo.accounting import RoundedDp
from dphypo.accounting.sides import Sides
from dphypo.errors import UnsupportedModelError
from dphypo.integrations import measures
from dphypo.integrations.measures import (
    BINS,
    GAPS,
    MEASURES,
    MOST_CELLS,
    Floats,
    MatrixMeasure,
    auc,
    declare,
    event_of_counts,
    event_of_sum,
    noise_of,
    noisy_matrix,
    noisy_mean,
)
from dphypo.integrations.torch import check, seeds
from dphypo.integrations.torch.data import DatasetRecords, as_records
from dphypo.integrations.torch.domain import is_single
from dphypo.integrations.torch.fields import Called, called
from dphypo.integrations.torch.record_values import classes_of, correct, per_record, predicted, values
from dphypo.mechanisms.one_record import or_none

_LARGEST = 700.0  # e to it is a number
_ENTROPIES = (cross_entropy, binary_cross_entropy_with_logits)


@dataclass(frozen=True, repr=False)
class PublicAccuracy:
    """The share of public records that the model classifies correctly. Costs nothing.

    Args:
        data: inputs and targets, as for :class:`DPSGD`. They must be public: nothing protects them.
    """

    data: Any

    def __call__(self, model: nn.Module) -> float:
        records = as_records(self.data, public=True)
        return float(values(model, records, correct).sum()) / len(records)


@dataclass(frozen=True, repr=False)
class PrivateAccuracy:
    """The share of private records that the model classifies correctly, with Gaussian noise on the count.

    Formal guarantee: adding or removing one record changes the count by at most 1, so one evaluation is a Gaussian
    mechanism with the given noise multiplier, rounded (:func:`dphypo.noise.noisy_count`). What is published is a whole
    number over the declared number of records, a constant.

    Args:
        data: inputs and targets, as for :class:`DPSGD`.
        noise_multiplier: standard deviation of the noise on the count. The score's is ``noise_multiplier / records``.
            "calibrate" leaves it to :func:`dphypo.tune`.
        split: the rule that sets these records apart from those that train, a :class:`dphypo.Split`. Parts of
            :func:`split_by_hash` know it. Else, without one, a record may train and score, and the two compose.
        records: the number of records, a public constant; by default the length of ``data``, which declares it public.
        example: one made-up record, as for :class:`DPSGD`.
        ignore_index: a label whose records count for nothing, as the loss of the training has one.

    >>> score = PrivateAccuracy((torch.zeros(100, 2), torch.zeros(100)), noise_multiplier=5.0)
    >>> score.event.event
    GaussianDpEvent(noise_multiplier=5.0)
    """

    data: Any
    noise_multiplier: float | str
    split: Sides | None = None
    records: int | None = None
    example: Any = None
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        declare(self, _size(self))

    @property
    def event(self) -> RoundedDp:
        return event_of_counts(noise_of(self))

    def __call__(self, model: nn.Module, *, seed: int) -> float:
        assert self.records is not None
        records = as_records(self.data, self.example)
        right = int(values(model, records, correct, self.records, ignored=self.ignore_index).sum())
        return noise.noisy_count(right, noise_of(self), seeds.words(seed, "score")) / self.records


@dataclass(frozen=True, repr=False)
class PrivateLoss:
    """Minus the mean loss on private records, each record's loss cut off at ``bound``, with Gaussian noise on the sum.

    Formal guarantee: each record's loss is rounded to a grid by itself, and adding or removing one record changes their
    sum by at most ``bound``, so one evaluation is a Gaussian mechanism with the given noise multiplier, rounded
    (:func:`dphypo.noise.noisy_sum`).

    Args:
        data, noise_multiplier, split, records, example: as for :class:`PrivateAccuracy`.
        measure: "loss", or "perplexity": minus e to the mean loss.
        bound: the largest loss a record counts with; a constant chosen without looking at the data. By default, for
            cross entropy, twice the loss of a guess among the model's classes.
        loss: one of PyTorch's losses, or a function that gives one value, 0 or greater, a record. It is tried on
            made-up records and refused if a record's value depends on the others.
    """

    data: Any
    noise_multiplier: float | str
    bound: float | None = None
    loss: Callable[..., Any] = cross_entropy
    split: Sides | None = None
    records: int | None = None
    example: Any = None
    measure: str = "loss"

    def __post_init__(self) -> None:
        if self.measure not in ("loss", "perplexity"):
            raise _validate.fail("measure", self.measure, 'give "loss" or "perplexity"')
        if self.bound is not None:
            _validate.positive(bound=self.bound)
        elif self.loss not in _ENTROPIES and not isinstance(self.loss, nn.CrossEntropyLoss | nn.BCEWithLogitsLoss):
            raise _validate.fail("bound", None, "give the largest loss a record counts with, a public constant")
        declare(self, _size(self))

    @property
    def event(self) -> RoundedDp:
        return event_of_sum(noise_of(self))

    def __call__(self, model: nn.Module, *, seed: int) -> float:
        loss, records = per_record(self.loss), as_records(self.data, self.example)
        bound = 2 * math.log(classes_of(model, records)) if self.bound is None else self.bound
        check.refuse_mixed_scores(called(model, records.fields), loss, records.example)
        assert self.records is not None
        losses = values(model, records, loss, self.records, loss)
        mean = noisy_mean(losses, bound, noise_of(self), self.records, seeds.words(seed, "score"))
        return -mean if self.measure == "loss" else -math.exp(min(mean, _LARGEST))


@dataclass(frozen=True, repr=False)
class PrivateConfusion(MatrixMeasure):
    """A measure of the confusion matrix on private records, with Gaussian noise on the count of every cell.

    Formal guarantee: a record is in one cell, so adding or removing it changes one count by 1, and one evaluation is a
    Gaussian mechanism with the given noise multiplier, rounded. The measure is computed from the noisy matrix.

    Args:
        data, noise_multiplier, split, records, example, ignore_index: as for :class:`PrivateAccuracy`.
        measure: "f1" (the mean over classes), "balanced_accuracy" (the mean recall), "accuracy", or a function of the
            matrix, whose rows are true classes and whose columns are predicted ones. Counts below 0 were set to 0.
            "auc", of two classes, comes from a histogram of the model's probabilities in 64 bins, the columns. With
            ``group``, minus a gap between groups: "accuracy_gap", "recall_gap" (the largest over classes) or "rate_gap"
            (of how often a class is predicted).
        group: ``group(inputs)``, of the arguments of the model for one record, gives the number of its group. Matrices
            are then [group, true class, predicted class].
        groups: how many groups there are; a record of no group is in no cell.
        rarest: the share of the rarest class, a public constant: what the noise of the measure depends on. It is stated
            and nothing else; by default a fifth of an even share is assumed.
    """

    data: Any
    noise_multiplier: float | str
    measure: str | Callable[[Floats], float] = "f1"
    split: Sides | None = None
    records: int | None = None
    example: Any = None
    group: Callable[[Any], Any] | None = None
    groups: int = 2
    ignore_index: int | None = None
    rarest: float | None = None

    def __post_init__(self) -> None:
        known = [*MEASURES, "auc", *(GAPS if self.group is not None else ())]
        self.check_measure(known)
        _validate.integer(at_least=2, groups=self.groups)
        declare(self, _size(self))

    @property
    def event(self) -> RoundedDp:
        return event_of_counts(noise_of(self), MOST_CELLS)

    @property
    def matrix_key(self) -> tuple[Any, ...]:
        """Equal for scores that are measures of one noisy matrix."""
        cells = (id(self.group), self.groups, self.measure == "auc", self.ignore_index)
        data = self.data.dataset if isinstance(self.data, DatasetRecords) else self.data
        return type(self), id(data), id(self.example), self.noise_multiplier, self.split, self.records, *cells

    def __call__(self, model: nn.Module, *, seed: int) -> float:
        return self.measured(self.matrix(model, seed=seed))

    def matrix(self, model: nn.Module, *, seed: int) -> Floats:
        assert self.records is not None
        records = as_records(self.data, self.example)
        classes = classes_of(model, records)
        columns = BINS if self.measure == "auc" else classes
        if self.measure == "auc" and classes != 2:
            raise UnsupportedModelError(f"'auc' is of two classes, and the model tells {classes} apart")
        fields = model.fields if isinstance(model, Called) else records.fields

        def group_of(row: torch.Tensor) -> float:
            group: Any = self.group
            found = torch.as_tensor(group(row if fields is None else fields.unpack(row)))
            return float(found.reshape(()).double())

        def cell(outputs: torch.Tensor, targets: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
            found = targets.reshape(len(targets)).double()
            inside = (found >= 0) & (found < classes) & (found == found.round())
            column = _bin(outputs, len(targets)) if self.measure == "auc" else predicted(outputs, targets)
            if self.group is not None:  # of each record by itself: it must not depend on the others
                read = [or_none(partial(group_of, row)) for row in inputs.unsqueeze(1)]
                group = found.new_tensor([-1.0 if one is None else one for one in read])
                inside &= (group >= 0) & (group < self.groups) & (group == group.round())
                found = group * classes + found
            return torch.where(inside, found * columns + column, -1.0)

        cells = values(model, records, cell, self.records, beside=True, ignored=self.ignore_index)
        shape = (*([] if self.group is None else [self.groups]), classes, columns)
        return noisy_matrix(cells, shape, noise_of(self), seeds.words(seed, "score"))

    def measured(self, matrix: Floats) -> float:
        if callable(self.measure):
            return float(self.measure(matrix))
        if self.measure in GAPS:
            return -float(GAPS[self.measure](matrix))
        whole = matrix if self.group is None else matrix.sum(0)
        return auc(whole) if self.measure == "auc" else float(MEASURES[self.measure](whole))


def _bin(outputs: torch.Tensor, count: int) -> torch.Tensor:
    """In which bin the probability of class 1 is; one that is not a number is in the first."""
    margin = outputs.reshape(count) if is_single(outputs) else outputs[:, 1] - outputs[:, 0]
    return (margin.double().sigmoid().nan_to_num(nan=0.0) * BINS).floor().clamp(0, BINS - 1)


_REGRESSION = (
    *(functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss, functional.huber_loss),
    *(nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.GaussianNLLLoss, nn.PoissonNLLLoss),
)


@torch.no_grad()
def refuse_targets(score: Any, model: nn.Module, loss: Any) -> None:
    """Refuse targets that a measure of labels cannot score, from types and shapes alone."""
    if not isinstance(score, PublicAccuracy | PrivateAccuracy | PrivateConfusion):
        return
    how: dict[str, Any] = {"public": True} if isinstance(score, PublicAccuracy) else {"example": score.example}
    records = as_records(score.data, **how)
    named = getattr(score, "measure", "accuracy")
    inputs, targets = records.example
    device = next(model.parameters()).device
    made_up = torch.zeros((2, *inputs.shape[1:]), dtype=inputs.dtype, device=device)
    try:
        outputs = called(model, records.fields)(made_up)
    except Exception as error:
        raise check.not_callable(error, inputs) from error
    measures.refuse_targets(
        named if isinstance(named, str) else type(score).__name__,
        tuple(targets.shape[1:]),
        str(targets.dtype).removeprefix("torch."),
        tuple(outputs.shape[1:]),
        regression=loss in _REGRESSION or type(loss) in _REGRESSION,
        float_labels=is_single(outputs),
    )


def _size(score: Any) -> int:
    """How many records a score has."""
    if isinstance(score.data, Subset) and score.split != "same":
        raise TypeError(
            "data is a Subset (random_split), which sets records apart by their positions: one record more moves "
            "others from training to scoring. Use split_by_hash(inputs, targets), or declare split='same'"
        )
    records = as_records(score.data, score.example)
    if isinstance(records, DatasetRecords):  # kept: its records are read twice, once for all copies of the score
        object.__setattr__(score, "data", records)
        object.__setattr__(score, "example", None)
    return len(records)


RecordScore = PrivateAccuracy | PrivateLoss | PrivateConfusion
"""A private score with records of its own."""
