"""Scores: what ranks the runs of a search, and what it costs.

* A **public hold-out** (records that are nobody's secret) costs nothing: :class:`PublicAccuracy`, or any function of
  the model. Whoever passes a function declares that it looks at public records alone.
* **Private records** cost privacy, because the search ranks by what was computed on them. :class:`PrivateAccuracy`,
  :class:`PrivateLoss` and :class:`PrivateConfusion` add noise that is Gaussian to the last bit (``dphypo.noise``) and
  state the event. Records that
  the model was not trained on, set apart by a rule that looks at each record by itself (:func:`split_by_hash`), cost
  the worse of training and scoring; the training records themselves cost both. A record outside the domain
  (``domain.py``) adds nothing, as in training.

What a record adds depends on that record and the model alone, to the bit: records go through the model in batches of
one size, the last one filled up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard, get_args, runtime_checkable

import dp_accounting
import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.utils.data import Subset

from dphypo import _validate, noise
from dphypo.accounting import RoundedDp
from dphypo.accounting.sides import Sides, read_sides
from dphypo.errors import UnfitModelError
from dphypo.integrations import cost
from dphypo.integrations.measures import MEASURES
from dphypo.integrations.torch import check, seeds
from dphypo.integrations.torch.data import Records, as_records
from dphypo.integrations.torch.domain import FATAL, Batch, Domain
from dphypo.integrations.torch.fields import called
from dphypo.integrations.torch.loss import Loss, per_record

_CHUNK = 1024
_MOST_CELLS = 1e12  # of a confusion matrix

Floats = npt.NDArray[np.float64]


@runtime_checkable
class PrivateScore(Protocol):
    """A score computed on private records, with noise, that says what it costs."""

    @property
    def split(self) -> Sides | None:
        """How these records were set apart from those that train; None where the records know it, or nobody does."""
        ...

    @property
    def event(self) -> dp_accounting.DpEvent | RoundedDp:
        """The event of one evaluation, under adding or removing one record."""
        ...

    def __call__(self, model: nn.Module, *, seed: int) -> float: ...


Score = PrivateScore | Callable[[nn.Module], float]


@dataclass(frozen=True, repr=False)
class PublicAccuracy:
    """The share of public records that the model classifies correctly. Costs nothing.

    Args:
        data: inputs and targets, as for :class:`DPSGD`. They must be public: nothing protects them.
    """

    data: Any

    def __call__(self, model: nn.Module) -> float:
        records = as_records(self.data, public=True)
        return float(values(model, records, _correct).sum()) / len(records)


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

    >>> score = PrivateAccuracy((np.zeros((100, 2)), np.zeros(100)), noise_multiplier=5.0)
    >>> score.event.event
    GaussianDpEvent(noise_multiplier=5.0)
    """

    data: Any
    noise_multiplier: float | str
    split: Sides | None = None
    records: int | None = None
    example: Any = None

    def __post_init__(self) -> None:
        _declare(self)

    @property
    def event(self) -> RoundedDp:
        return RoundedDp(dp_accounting.GaussianDpEvent(_noise(self)), noise.slack(1, _noise(self)))

    def __call__(self, model: nn.Module, *, seed: int) -> float:
        assert self.records is not None
        correct = int(values(model, as_records(self.data, self.example), _correct, self.records).sum())
        return noise.noisy_count(correct, _noise(self), seeds.words(seed, "score")) / self.records


@dataclass(frozen=True, repr=False)
class PrivateLoss:
    """Minus the mean loss on private records, each record's loss cut off at ``bound``, with Gaussian noise on the sum.

    Formal guarantee: each record's loss is rounded to a grid by itself, and adding or removing one record changes their
    sum by at most ``bound``, so one evaluation is a Gaussian mechanism with the given noise multiplier, rounded
    (:func:`dphypo.noise.noisy_sum`).

    Args:
        data, noise_multiplier, split, records, example: as for :class:`PrivateAccuracy`.
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

    def __post_init__(self) -> None:
        if self.bound is not None:
            _validate.positive(bound=self.bound)
        elif self.loss not in _ENTROPIES and not isinstance(self.loss, nn.CrossEntropyLoss | nn.BCEWithLogitsLoss):
            raise _validate.fail("bound", None, "give the largest loss a record counts with, a public constant")
        _declare(self)

    @property
    def event(self) -> RoundedDp:
        return RoundedDp(dp_accounting.GaussianDpEvent(_noise(self)), noise.slack_of_sum(_noise(self)))

    def __call__(self, model: nn.Module, *, seed: int) -> float:
        loss, records = per_record(self.loss), as_records(self.data, self.example)
        bound = 2 * math.log(_classes(model, records)) if self.bound is None else self.bound

        def cut_off(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            # A loss that is not a number counts as the worst one, so that no record can exceed the bound.
            return loss(outputs, targets).nan_to_num(nan=bound).clamp(0.0, bound)

        check.refuse_mixed_scores(called(model, records.fields), loss, records.example())
        assert self.records is not None
        losses = values(model, records, cut_off, self.records, loss)
        return -noise.noisy_sum(losses, bound, _noise(self), seeds.words(seed, "score")) / self.records


@dataclass(frozen=True, repr=False)
class PrivateConfusion:
    """A measure of the confusion matrix on private records, with Gaussian noise on the count of every cell.

    Formal guarantee: a record is in one cell, so adding or removing it changes one count by 1, and one evaluation is a
    Gaussian mechanism with the given noise multiplier, rounded. The measure is computed from the noisy matrix.

    Args:
        data, noise_multiplier, split, records, example: as for :class:`PrivateAccuracy`.
        measure: "f1" (the mean over classes), "balanced_accuracy" (the mean recall), or a function of the matrix, whose
            rows are true classes and whose columns are predicted ones. Counts below 0 were set to 0.
    """

    data: Any
    noise_multiplier: float | str
    measure: str | Callable[[Floats], float] = "f1"
    split: Sides | None = None
    records: int | None = None
    example: Any = None

    def __post_init__(self) -> None:
        if not callable(self.measure) and self.measure not in MEASURES:
            raise _validate.fail("measure", self.measure, f"give one of {', '.join(MEASURES)}, or a function")
        _declare(self)

    @property
    def event(self) -> RoundedDp:
        return RoundedDp(dp_accounting.GaussianDpEvent(_noise(self)), noise.slack(_MOST_CELLS, _noise(self)))

    def __call__(self, model: nn.Module, *, seed: int) -> float:
        assert self.records is not None
        records = as_records(self.data, self.example)
        classes = _classes(model, records)

        def cell(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            found = targets.reshape(len(targets)).double()
            inside = (found >= 0) & (found < classes) & (found == found.round())
            return torch.where(inside, found * classes + _predicted(outputs, targets), -1.0)

        cells = values(model, records, cell, self.records).astype(np.int64)
        counts = np.bincount(cells[cells >= 0], minlength=classes**2)
        noisy = counts + noise.rounded_gaussian(_noise(self), seeds.words(seed, "score"), classes**2)
        measure = self.measure if callable(self.measure) else MEASURES[self.measure]
        return float(measure(np.maximum(noisy, 0).reshape(classes, classes).astype(np.float64)))


_ENTROPIES = (cross_entropy, binary_cross_entropy_with_logits)

RecordScore = PrivateAccuracy | PrivateLoss | PrivateConfusion
"""A private score with records of its own."""


def is_private(score: object) -> TypeGuard[PrivateScore]:
    """Whether a score looks at private records, and states what that costs."""
    return isinstance(score, (*get_args(RecordScore), PrivateScore))


def _noise(score: RecordScore) -> float:
    if isinstance(score.noise_multiplier, str):
        raise ValueError(
            'noise_multiplier = "calibrate" of a score needs a plan that solves for it: use dphypo.tune(mechanism, '
            "epsilon=..., delta=...), or score=PrivateAccuracy(records, noise_multiplier=5.0)"
        )
    return score.noise_multiplier


def _declare(score: RecordScore) -> None:
    object.__setattr__(score, "noise_multiplier", cost.read(score.noise_multiplier))
    given: object = score.split
    object.__setattr__(score, "split", read_sides(score.split))
    if isinstance(score.data, Subset) and given != "same":
        raise TypeError(
            "data is a Subset (random_split), which sets records apart by their positions: adding one record moves "
            "others from training to scoring, and the two then cost their sum. Split by the records themselves with "
            "split_by_hash(inputs, targets), or declare split='same'"
        )
    records = as_records(score.data, score.example)
    size = len(records) if score.records is None else score.records
    object.__setattr__(score, "records", _validate.integer(at_least=1, records=size))
    if not isinstance(score.noise_multiplier, str):
        _validate.warn_of_score_noise(score.noise_multiplier / size, stacklevel=5)


def _correct(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """1 for each record classified correctly."""
    single = outputs.dim() == 1 or outputs.shape[1] == 1
    return (_predicted(outputs, targets) == (targets.reshape(len(targets)) > 0.5 if single else targets)).double()


def _predicted(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The class of each record: that of the largest output, or by the sign of a single one."""
    single = outputs.dim() == 1 or outputs.shape[1] == 1
    return outputs.reshape(len(targets)) > 0 if single else outputs.argmax(1)


@torch.no_grad()
def _classes(model: nn.Module, records: Records) -> int:
    """How many classes the model tells apart, from its output on made-up records."""
    device = next(model.parameters()).device
    example = records.example()[0]
    outputs = called(model, records.fields)(torch.zeros((2, *example.shape[1:]), dtype=example.dtype, device=device))
    return int(max(outputs.shape[1] if outputs.dim() > 1 else 2, 2))


def values(model: nn.Module, records: Records, value: Loss, declared: int = _CHUNK, loss: Loss | None = None) -> Floats:
    """A value for each record in the model's domain."""
    model = called(model, records.fields)
    device = next(model.parameters()).device
    records = records.within(Domain.of(model, records.example(), loss))
    size = min(_CHUNK, declared)
    was_training = model.training
    model.eval()
    with torch.no_grad():
        batches = (np.arange(start, min(start + size, len(records))) for start in range(0, len(records), size))
        found = [_of_batch(model, value, records.batch(batch, device), size) for batch in batches]
    model.train(was_training)
    return np.concatenate(found) if found else np.zeros(0)


def _of_batch(model: nn.Module, value: Loss, batch: Batch, size: int) -> Floats:
    """The values of a batch; a record on which the model or the value raises by itself is left out, as in training."""
    inputs, targets = batch

    def at(places: list[int]) -> torch.Tensor:
        filled = places + [places[-1]] * (size - len(places))
        found = value(model(inputs[filled]), targets[filled])
        if found.shape != (size,):
            raise UnfitModelError("the score is not one value a record")
        return found[: len(places)].double().cpu()

    def each(place: int) -> torch.Tensor:
        try:
            return at([place])
        except FATAL:
            raise
        except Exception:
            return torch.zeros(0)

    everywhere = list(range(len(inputs)))
    if not everywhere:
        return np.zeros(0)
    try:
        return at(everywhere).numpy()
    except FATAL:
        raise
    except Exception:
        return torch.cat([each(place) for place in everywhere]).double().numpy()
