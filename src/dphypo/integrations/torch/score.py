"""Scores: what ranks the runs of a search, and what it costs.

* A **public hold-out** (records that are nobody's secret) costs nothing: :class:`PublicAccuracy`, or any function of
  the model. Whoever passes a function declares that it looks at public records alone.
* **Private records** cost privacy, because the search ranks by what was computed on them. :class:`PrivateAccuracy`,
  :class:`PrivateLoss` and :class:`PrivateConfusion` add noise that is Gaussian to the last bit (``dphypo.noise``) and
  state the event. Records that
  the model was not trained on, set apart by a rule that looks at each record by itself (:func:`split_by_hash`), cost
  the worse of training and scoring; the training records themselves cost both. A record outside the domain
  (``domain.py``) adds nothing, as in training.

Values of records are computed in ``record_values.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard, get_args, runtime_checkable

import dp_accounting
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from dphypo import _validate, noise
from dphypo.accounting import RoundedDp
from dphypo.accounting.sides import Sides
from dphypo.integrations.torch import check, seeds
from dphypo.integrations.torch.confusion import PrivateConfusion
from dphypo.integrations.torch.data import as_records
from dphypo.integrations.torch.fields import called
from dphypo.integrations.torch.loss import per_record
from dphypo.integrations.torch.metrics import Metrics
from dphypo.integrations.torch.record_values import classes_of, correct, declare, noise_of, values

_LARGEST = 700.0  # e to it is a number


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

    >>> score = PrivateAccuracy((torch.zeros(100, 2), torch.zeros(100)), noise_multiplier=5.0)
    >>> score.event.event
    GaussianDpEvent(noise_multiplier=5.0)
    """

    data: Any
    noise_multiplier: float | str
    split: Sides | None = None
    records: int | None = None
    example: Any = None

    def __post_init__(self) -> None:
        declare(self)

    @property
    def event(self) -> RoundedDp:
        return RoundedDp(dp_accounting.GaussianDpEvent(noise_of(self)), noise.slack(1, noise_of(self)))

    def __call__(self, model: nn.Module, *, seed: int) -> float:
        assert self.records is not None
        right = int(values(model, as_records(self.data, self.example), correct, self.records).sum())
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
        declare(self)

    @property
    def event(self) -> RoundedDp:
        return RoundedDp(dp_accounting.GaussianDpEvent(noise_of(self)), noise.slack_of_sum(noise_of(self)))

    def __call__(self, model: nn.Module, *, seed: int) -> float:
        loss, records = per_record(self.loss), as_records(self.data, self.example)
        bound = 2 * math.log(classes_of(model, records)) if self.bound is None else self.bound

        def cut_off(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            # A loss that is not a number counts as the worst one, so that no record can exceed the bound.
            return loss(outputs, targets).nan_to_num(nan=bound).clamp(0.0, bound)

        check.refuse_mixed_scores(called(model, records.fields), loss, records.example())
        assert self.records is not None
        losses = values(model, records, cut_off, self.records, loss)
        mean = noise.noisy_sum(losses, bound, noise_of(self), seeds.words(seed, "score")) / self.records
        return -mean if self.measure == "loss" else -math.exp(min(mean, _LARGEST))


_ENTROPIES = (cross_entropy, binary_cross_entropy_with_logits)

RecordScore = PrivateAccuracy | PrivateLoss | PrivateConfusion
"""A private score with records of its own."""


def is_private(score: object) -> TypeGuard[PrivateScore]:
    """Whether a score looks at private records, and states what that costs."""
    if isinstance(score, Metrics):
        return bool(score.private)
    return isinstance(score, (*get_args(RecordScore), PrivateScore))
