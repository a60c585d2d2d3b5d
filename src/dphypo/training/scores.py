"""Private scores: what ranks the runs of a search, and what it costs, whatever library trains.

* A **public hold-out** costs nothing: :class:`PublicAccuracy`, or any function of the model. Whoever passes a function
  declares that it reads public records only.
* **Private records** cost privacy. :class:`PrivateAccuracy`, :class:`PrivateLoss` and :class:`PrivateConfusion` add
  noise that is Gaussian to the last bit (``dphypo.noise``) and state the event. Records that the model was not trained
  on, set apart by a rule that looks at each record by itself (:func:`split_by_hash`), cost the worse of training and
  scoring; the training records themselves cost both. A record outside the domain adds nothing, as in training.

A library computes one value per record, from that record and the model alone: :class:`TrainedModel`. Everything else,
the noise, the events, the measures and what they cannot score, is here.

The noisy accuracy from which a target counts as reached is :func:`reaching` (docs/theory/ladders.md).
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self, TypeGuard

import dp_accounting
import numpy as np
import numpy.typing as npt
from scipy.special import ndtr
from scipy.stats import binom

from dphypo import _validate, noise
from dphypo.accounting import RoundedDp
from dphypo.accounting.composition import Sides, read_sides
from dphypo.errors import UnreachableError, UnsupportedModelError
from dphypo.mechanisms.mechanism import read_cap
from dphypo.training import cost
from dphypo.training.persons import GRID, I64, PersonKeys, person_cells, person_means
from dphypo.training.split import Origin

Floats = npt.NDArray[np.float64]
Value = Callable[[Floats, Floats, Floats | None], Floats]
"""Of the outputs, the labels and the groups of some records, one number per record."""

_MOST_CELLS = 1e12  # of a confusion matrix, for the slack of its noise
_LARGEST = 700.0  # e to it is a number
_STATE_BOUND = (
    "no largest value of this loss is known: state one, a public constant. private_test takes bound=...; for a "
    "training, split the records, trains, scores = split_by_hash(x, y), and give data=trains and "
    'score=PrivateLoss(scores, "calibrate", bound=...)'
)
_ENTROPIES = ("cross_entropy", "binary_cross_entropy_with_logits", "CrossEntropyLoss", "BCEWithLogitsLoss")
_ROUNDING = 1 - 1e-12
_SHARE, _ENOUGH = 0.2, 4000  # this many records suffice to rank runs


@dataclass(frozen=True)
class Asked:
    """The records of which a score needs values.

    Args:
        rows: their numbers; None for all.
        declared: the public number of records, if there is one.
        ignored: a label whose records are left out.
        group: gives the number of a record's group; one for which it raises is in group -1.
    """

    rows: I64 | None = None
    declared: int | None = None
    ignored: int | None = None
    group: Callable[[Any], Any] | None = None


class TrainedModel(ABC):
    """A trained model as scores see it: a value of each record, computed from that record and the model alone.

    ``model`` is the model as its user knows it, for functions of the model.
    """

    model: Any

    @classmethod
    @abstractmethod
    def records(cls, data: Any, example: Any = None, *, public: bool = False, person: Any = None) -> Any:
        """Records as the library reads them, with the keys ``person`` if they are persons."""

    @classmethod
    def reads_once(cls, records: Any) -> bool:
        """Whether what was found of the records is kept for all copies of a score."""
        return False

    @abstractmethod
    def classes(self, records: Any) -> int | None:
        """How many classes the model distinguishes; None if that is not known."""

    @abstractmethod
    def labelled(self, records: Any, value: Value, asked: Asked) -> Floats:
        """``value(outputs, labels, groups)`` of each record; NaN for one outside the domain of the model's classes."""

    @abstractmethod
    def losses(self, records: Any, loss: Callable[..., Any] | None, asked: Asked) -> Floats:
        """The loss of each record; infinite if it is not a number, NaN for a record outside its domain."""

    @abstractmethod
    def targets(self, measure: str, records: Any) -> Targets:
        """What the targets are, from types and shapes alone; ``measure`` is who asks, for an error."""

    def refuse_loss(self, loss: Callable[..., Any] | None, records: Any) -> None:  # noqa: B027
        """Refuse a loss that says nothing of the model, from types and shapes alone."""

    def correct(self, records: Any, asked: Asked) -> Floats:
        """1 for each record classified correctly, else 0; NaN for one outside the domain."""
        return self.labelled(records, _correct, asked)


@functools.singledispatch
def as_trained(model: object) -> TrainedModel:
    """A model as scores see it. Each library registers its own."""
    raise TypeError(f"model is a {type(model).__name__}, but a score takes the model that a run trained")


@as_trained.register
def _(model: TrainedModel) -> TrainedModel:
    return model


def predicted(outputs: Floats) -> Floats:
    """The class of each record: that of the largest output, or by the sign of a single one.

    >>> predicted(np.array([[0.1, 0.7, 0.2]])), predicted(np.array([[-3.0], [2.0]]))
    (array([1.]), array([0., 1.]))
    """
    found = outputs.argmax(1) if _several(outputs) else outputs.reshape(len(outputs)) > 0
    return np.asarray(found, dtype=np.float64)


def _several(outputs: Floats) -> bool:
    return outputs.ndim > 1 and outputs.shape[1] > 1


def _correct(outputs: Floats, labels: Floats, _: Floats | None) -> Floats:
    given = labels.reshape(len(labels))
    wanted = given if _several(outputs) else given > 0.5
    return np.asarray(predicted(outputs) == wanted, dtype=np.float64)


def _bin(outputs: Floats) -> Floats:
    """In which bin the probability of class 1 is, by comparisons alone; one that is not a number is in the first."""
    margin = outputs[:, 1] - outputs[:, 0] if _several(outputs) else outputs.reshape(len(outputs))
    return np.searchsorted(_MARGINS, np.where(np.isnan(margin), -np.inf, margin), side="right").astype(np.float64)


@dataclass(frozen=True, repr=False)
class PublicAccuracy:
    """The share of public records that the model classifies correctly. Costs nothing.

    Args:
        data: inputs and targets, as for ``DPSGD``. They must be public: nothing protects them.
    """

    measure: ClassVar[str] = "accuracy"
    data: Any

    def records_for(self, model: TrainedModel) -> Any:
        """The records as the model's library reads them."""
        return model.records(self.data, public=True)

    def __call__(self, model: Any) -> float:
        trained = as_trained(model)
        records = self.records_for(trained)
        return float(np.nansum(trained.correct(records, Asked()))) / max(1, len(records))


@dataclass(frozen=True, repr=False)
class RecordScore(ABC):
    """A score on private records: one evaluation is a Gaussian mechanism, under adding or removing one record.

    Args:
        data: inputs and targets, as for ``DPSGD``.
        noise_multiplier: standard deviation of the noise over what one record can change; with "calibrate",
            :func:`dphypo.tune` solves for it.
        split: the rule that sets these records apart from those that train, a :class:`dphypo.Split`. Parts of
            :func:`split_by_hash` know it. Without one, a record may train and score, and the two compose.
        records: the number of records, a public constant; by default the length of ``data``, which declares it public.
        example: one made-up record, as for ``DPSGD``.
        person: which person each row belongs to, as for ``DPSGD``. Records are then persons, ``records`` is their
            number, and a person counts with the mean over the drawn rows. Parts of a split by person know it.
        rows_per_person: at most this many rows of a person, drawn afresh, are used; 8 if nothing is said.
    """

    data: Any
    noise_multiplier: float | str
    split: Sides | str | None = field(default=None, kw_only=True)
    records: int | None = field(default=None, kw_only=True)
    example: Any = field(default=None, kw_only=True)
    person: Any = field(default=None, kw_only=True)
    rows_per_person: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        person = getattr(self.data, "person", None) if self.person is None else self.person
        object.__setattr__(self, "rows_per_person", read_cap(person, self.rows_per_person))
        object.__setattr__(self, "noise_multiplier", cost.read(self.noise_multiplier))
        object.__setattr__(self, "split", read_sides(self.split) or self.split)  # "same" stays, for copies
        by_position = hasattr(self.data, "indices") and hasattr(self.data, "dataset")
        if by_position and not hasattr(self.data, "side") and self.split != "same":
            raise TypeError(
                "data is a Subset (random_split), which sets records apart by their positions: one more record moves "
                "others from training to scoring. Use split_by_hash(inputs, targets), or declare split='same'"
            )
        if self.records is not None:
            object.__setattr__(self, "records", _validate.integer(at_least=1, records=self.records))
            if not isinstance(self.noise_multiplier, str):
                _validate.warn_of_score_noise(self.noise_multiplier / self.declared)

    @property
    @abstractmethod
    def measure(self) -> Any:
        """What it measures: a name, or a function."""

    @property
    def event(self) -> RoundedDp:
        """The event of one evaluation."""
        return RoundedDp(dp_accounting.GaussianDpEvent(self.sigma), self._slack)

    @property
    @abstractmethod
    def _slack(self) -> float:
        """How far rounding takes one evaluation from its event, in total variation."""

    def _slack_of_counts(self, cells: float) -> float:
        """The slack of noisy counts, of which one record changes one by at most 1; a person is spread over them."""
        return noise.slack(cells, (1 if self.rows_per_person is None else GRID) * self.sigma)

    def deviation(self, classes: int | None) -> float | None:
        """The noise of the score of a model with this many classes, in units of its whole range; None if unknown."""
        sigma = self.noise_multiplier
        return sigma / self.records if isinstance(sigma, float) and self.records else None

    @property
    def assumes(self) -> str:
        """What the stated noise is a part of, or assumes, in words that follow the number."""
        return ""

    def reaching(self, target: float, wrong: float, of: int | None) -> float | None:
        """The score from which a target counts as reached, if a hash chose the records from ``of``; None if unknown."""
        return None

    @abstractmethod
    def value(self, model: TrainedModel, records: Any, words: noise.Words, rows: I64 | None, owners: I64 | None) -> Any:
        """What is published: a function of noisy numbers.

        Where records are persons, ``rows`` are the numbers of the rows that are used, ``owners`` those of their
        persons; else both are None.
        """

    @property
    def sigma(self) -> float:
        """The noise multiplier; an error if it is still "calibrate"."""
        if isinstance(given := self.noise_multiplier, str):
            remedy = "dphypo.tune(mechanism, epsilon=..., delta=...) solves for it; elsewhere give a number"
            raise _validate.fail("the score's noise_multiplier", given, remedy)
        return float(given)

    @property
    def declared(self) -> int:
        """The declared number of records, once they were read."""
        assert self.records is not None
        return self.records

    def read_by(self, library: type[TrainedModel]) -> Self:
        """The same score, its records read once by a library, and their number declared."""
        records = library.records(self.data, self.example, person=self.person)
        changes: dict[str, Any] = {}
        if self.records is None:
            changes["records"] = getattr(records, "size", len(records))
        if records is not self.data and library.reads_once(records):
            changes |= {"data": records, "example": None}
        return replace(self, **changes) if changes else self

    def records_for(self, model: TrainedModel) -> Any:
        """The records as the model's library reads them."""
        return model.records(self.data, self.example, person=self.person)

    def __call__(self, model: Any, *, seed: int) -> float:
        return float(self.drawn(model, seed))

    def drawn(self, model: Any, seed: int) -> Any:
        """One evaluation, with the noise of a seed."""
        trained = as_trained(model)
        score = self.read_by(type(trained))
        records, words = score.records_for(trained), noise.Words.of_seed(seed)
        rows = owners = None
        if (most := score.rows_per_person) is not None:
            keys = score.person if isinstance(score.person, PersonKeys) else records.person
            rows, owners = keys.grouped(most).drawn_of_all(words.stream("rows that score"))
        with np.errstate(all="ignore"):  # a warning of one record's numbers would be shown, or end the run
            return score.value(trained, records, words.stream("score"), rows, owners)


@dataclass(frozen=True, repr=False)
class PrivateAccuracy(RecordScore):
    """The share of private records that the model classifies correctly, with Gaussian noise on two counts.

    Formal guarantee: a record is counted as correct or as wrong, so adding or removing it changes one of the two counts
    by 1, and one evaluation is a Gaussian mechanism with the given noise multiplier, rounded. What is published is the
    noisy count of correct records over the sum of both: how many records score does not shift it.

    Args:
        data, noise_multiplier, split, records, example: as for :class:`RecordScore`. The noise of the score is
            ``noise_multiplier / records`` at most.
        ignore_index: a label whose records count for nothing, as the loss of the training has one.

    >>> score = PrivateAccuracy((np.zeros((100, 2)), np.zeros(100)), noise_multiplier=5.0)
    >>> score.event.event
    GaussianDpEvent(noise_multiplier=5.0)
    """

    ignore_index: int | None = field(default=None, kw_only=True)

    @property
    def measure(self) -> str:
        return "accuracy"

    @property
    def _slack(self) -> float:
        return self._slack_of_counts(2)

    def value(
        self, model: TrainedModel, records: Any, words: noise.Words, rows: I64 | None, owners: I64 | None
    ) -> float:
        each = model.correct(records, Asked(rows, self.declared, self.ignore_index))
        wrong, right = noisy_matrix(each, (2,), self.sigma, words, owners)
        return float(right / max(wrong + right, 1))

    def reaching(self, target: float, wrong: float, of: int | None) -> float:
        if self.rows_per_person is not None:
            remedy = "it is known for records that are right or wrong, and persons may be both: leave out the target"
            raise _validate.fail("target", target, remedy)
        return reaching(target, wrong, noise_multiplier=self.sigma, records=self.declared, of=of)


@dataclass(frozen=True, repr=False)
class PrivateLoss(RecordScore):
    """Minus the mean loss on private records, each record's loss clipped to [0, ``bound``], with noise on the sum.

    Formal guarantee: each record's loss is rounded to a grid by itself, and adding or removing one record changes their
    sum by at most ``bound``, so one evaluation is a Gaussian mechanism with the given noise multiplier, rounded
    (:func:`dphypo.noise.noisy_sum`). A loss that is not a number counts as ``bound``, the worst.

    Args:
        data, noise_multiplier, split, records, example: as for :class:`RecordScore`.
        bound: the largest loss a record counts with; a constant chosen without looking at the data. By default, for
            cross entropy, twice the loss of a guess among the model's classes.
        loss: one of PyTorch's losses, or a function that gives one value, 0 or greater, per record. It is tried on
            made-up records and refused if a record's value depends on the others. By default the loss of the
            training, as the score of a ``DPSGD``; elsewhere cross entropy.
        measure: "loss", or "perplexity": minus e to the mean loss.
    """

    bound: float | None = None
    loss: Callable[..., Any] | None = None
    measure: str = field(default="loss", kw_only=True)

    def __post_init__(self) -> None:
        if self.measure not in ("loss", "perplexity"):
            raise _validate.fail("measure", self.measure, 'give "loss" or "perplexity"')
        if self.bound is not None:
            _validate.positive(bound=self.bound)
        elif not _has_bound(self.loss):
            raise _validate.fail("bound", None, "give the largest loss a record counts with, a public constant")
        super().__post_init__()

    @property
    def _slack(self) -> float:
        return noise.slack_of_sum(self.sigma)

    @property
    def assumes(self) -> str:
        """The unit of the stated noise, in words that follow the number."""
        return "" if self.bound is None else f" times the bound of {self.bound:g}"

    def bound_for(self, model: TrainedModel, records: Any) -> float:
        """The largest loss that a record counts with; an error if none is given and none follows from the classes."""
        if self.bound is not None:
            return self.bound
        if (classes := model.classes(records)) is None:
            raise _validate.fail("bound", None, "give the largest loss a record counts with, a public constant")
        return 2 * math.log(classes)

    def value(
        self, model: TrainedModel, records: Any, words: noise.Words, rows: I64 | None, owners: I64 | None
    ) -> float:
        bound = self.bound_for(model, records)
        losses = np.clip(model.losses(records, self.loss, Asked(rows, self.declared)), 0.0, bound)
        mean = noise.noisy_sum(_each(losses, owners), bound, self.sigma, words) / self.declared
        return -mean if self.measure == "loss" else -math.exp(min(mean, _LARGEST))


@dataclass(frozen=True, repr=False)
class PrivateConfusion(RecordScore):
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
        group: ``group(inputs)``, of the arguments of the model for one record, gives the number of its group, from that
            record alone. It is your Python, called for each record: nothing checks that it keeps no state. Matrices are
            then [group, true class, predicted class].
        groups: how many groups there are; a record of no group is in no cell.
        rarest: the share of the rarest class, a public constant: what the noise of the measure depends on. It is stated
            and nothing else; by default a fifth of an even share is assumed.
    """

    measure: str | Callable[[Floats], float] = "f1"
    group: Callable[[Any], Any] | None = field(default=None, kw_only=True)
    groups: int = field(default=2, kw_only=True)
    ignore_index: int | None = field(default=None, kw_only=True)
    rarest: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        known = [*MEASURES, "auc", *(GAPS if self.group is not None else ())]
        if not callable(self.measure) and self.measure not in known:
            raise _validate.fail("measure", self.measure, f"give one of {', '.join(known)}, or a function")
        read_rarest(self.rarest)
        _validate.integer(at_least=2, groups=self.groups)
        super().__post_init__()

    @property
    def _slack(self) -> float:
        return self._slack_of_counts(_MOST_CELLS)

    @property
    def matrix_key(self) -> tuple[Any, ...]:
        """Equal for scores that are measures of one noisy matrix."""
        cells = (id(self.group), self.groups, self.measure == "auc", self.ignore_index, self.rows_per_person)
        data = getattr(self.data, "read_from", self.data)
        return type(self), id(data), id(self.example), self.noise_multiplier, self.split, self.records, *cells

    def __call__(self, model: Any, *, seed: int) -> float:
        return self.measured(self.drawn(model, seed))

    def value(
        self, model: TrainedModel, records: Any, words: noise.Words, rows: I64 | None, owners: I64 | None
    ) -> Floats:
        """The noisy matrix."""
        classes = model.classes(records) or 2
        columns = BINS if self.measure == "auc" else classes
        if self.measure == "auc" and classes != 2:
            raise UnsupportedModelError(f"'auc' needs two classes, and the model has {classes}")

        def cell(outputs: Floats, labels: Floats, groups: Floats | None) -> Floats:
            row = labels.reshape(len(labels))
            inside = (row >= 0) & (row < classes) & (row == np.rint(row))
            if groups is not None:
                inside &= (groups >= 0) & (groups < self.groups) & (groups == np.rint(groups))
                row = np.where(inside, groups, 0) * classes + row
            column = _bin(outputs) if self.measure == "auc" else predicted(outputs)
            return np.where(inside, np.where(inside, row, 0) * columns + column, -1.0)

        cells = model.labelled(records, cell, Asked(rows, self.declared, self.ignore_index, self.group))
        shape = (*([] if self.group is None else [self.groups]), classes, columns)
        return noisy_matrix(cells, shape, self.sigma, words, owners)

    def measured(self, matrix: Floats) -> float:
        """The measure of a noisy matrix."""
        if callable(self.measure):
            return float(self.measure(matrix))
        if self.measure in GAPS:
            return -float(GAPS[self.measure](matrix))
        whole = matrix if self.group is None else matrix.sum(0)
        return auc(whole) if self.measure == "auc" else float(MEASURES[self.measure](whole))

    def deviation(self, classes: int | None) -> float | None:
        """The noise of the measure among this many classes; None for your own measure or a gap between groups."""
        if classes is None:
            return super().deviation(None)
        if not isinstance(self.measure, str) or self.measure in GAPS or not isinstance(self.noise_multiplier, float):
            return None
        share = 1 / (5 * classes) if self.rarest is None else self.rarest  # by default a fifth of an even share
        return deviation(self.measure, classes, share, self.records or 1, self.noise_multiplier)

    @property
    def assumes(self) -> str:
        """What the stated noise assumes, in words that follow the number; "" if none is stated."""
        if self.deviation(2) is None:
            return ""
        if self.rarest is not None:
            return f" where the rarest class has {100 * self.rarest:.2g} % of the records"
        return " if the rarest class has a fifth of an even share (assumed: state rarest=, a public constant)"


NAMED: Mapping[str, type[RecordScore]] = {
    "accuracy": PrivateAccuracy,
    "loss": PrivateLoss,
    "f1": PrivateConfusion,
    "balanced_accuracy": PrivateConfusion,
    "auc": PrivateConfusion,
    "perplexity": PrivateLoss,
}
"""Scores by name: ``DPSGD(score="f1")`` sets private records apart, and ``tune`` solves for the noise."""


def _has_bound(loss: Callable[..., Any] | None) -> bool:
    """Whether a largest loss follows from the number of classes."""
    return loss is None or getattr(loss, "__name__", type(loss).__name__) in _ENTROPIES


def names_in(score: str | Sequence[str]) -> list[str]:
    """The names that were given as ``score``, checked."""
    names: list[Any] = [score] if isinstance(score, str) else list(score)
    for name in names or [""]:
        if not isinstance(name, str):
            remedy = (
                'to score on records, give PrivateAccuracy(records, noise_multiplier="calibrate") if they are '
                "private, or PublicAccuracy(records) if they are public"
            )
            raise _validate.fail("score", type(score).__name__, remedy)
        if name not in NAMED:
            raise _validate.fail("score", name, f"give one of {', '.join(NAMED)}, or a function of the model")
    return names


def named(
    score: str | Sequence[str],
    *,
    rarest: float | None = None,
    loss: Callable[..., Any] | None = None,
    ignored: int | None = None,
    **options: Any,
) -> RecordScore | Metrics:
    """The scores of these names, whose noise is to be solved for; ``options`` are those of :class:`RecordScore`."""
    names, scores = names_in(score), {}
    for name in names:
        # Accuracy is of the same matrix, if there is one.
        of_matrix = name == "accuracy" and not {"f1", "balanced_accuracy"}.isdisjoint(names)
        kind: type[RecordScore] = PrivateConfusion if of_matrix else NAMED[name]
        own: dict[str, Any] = {} if kind is PrivateAccuracy else {"measure": name}
        own |= {"loss": loss} if kind is PrivateLoss else {"ignore_index": ignored}
        own |= {"rarest": rarest} if kind is PrivateConfusion else {}
        if kind is PrivateLoss and "bound" not in options and not _has_bound(loss):
            raise _validate.fail("score", name, _STATE_BOUND)
        scores[name] = kind(noise_multiplier=cost.CALIBRATE, **options, **own)
    return scores[names[0]] if isinstance(score, str) else Metrics(scores)


def scoring_share(records: int) -> tuple[float, int]:
    """The share of this many records that is set apart for scoring, and the declared number of these.

    >>> scoring_share(1000), scoring_share(60_000)
    ((0.2, 200), (0.0667, 4002))
    """
    share = round(min(_SHARE, _ENOUGH / records), 4)
    return share, max(1, round(share * records))


@dataclass(frozen=True, repr=False)
class Metrics:
    """Several scores of one run, ``DPSGD(score={"accuracy": ..., "gap": ...})``: the first ranks, all are published.

    Each score on private records is a Gaussian mechanism with its own noise, and together they compose: what all of
    them cost is one Gaussian mechanism, 1/σ² = Σ 1/σᵢ². Measures of one confusion matrix are functions of the same
    noisy matrix, which is drawn and paid for once. Without private records a metric costs nothing.

    Args:
        scores: private scores, and functions of the model that look at public records alone.
        noise_multiplier: of all private scores together; None if they have their own, "calibrate" if it is to be found.
    """

    scores: Mapping[str, Any]
    noise_multiplier: float | str | None = None

    def __post_init__(self) -> None:
        for name, score in _validate.mapping(score=self.scores).items():
            usable = callable(score) and not isinstance(score, Metrics)
            if not usable or not isinstance(name, str) or name in ("score", "status"):
                raise _validate.fail("score", name, "give names, each with a function of the model or a private score")
        open_ = [score.noise_multiplier == cost.CALIBRATE for score in self.private]
        if self.noise_multiplier is None and any(open_):
            if not all(open_):
                raise _validate.fail("score", "calibrate", "leave the noise of all private scores to tune, or of none")
            object.__setattr__(self, "noise_multiplier", cost.CALIBRATE)
        elif self.noise_multiplier is not None and not isinstance(self.noise_multiplier, str):
            noise = self.noise_multiplier * math.sqrt(len(self.private))
            with warnings.catch_warnings(action="ignore"):  # a plan tries out noise that it does not keep
                scores = {
                    name: replace(score, noise_multiplier=noise) if is_private(score) else score
                    for name, score in self.scores.items()
                }
            object.__setattr__(self, "scores", scores)

    @property
    def private(self) -> list[RecordScore]:
        """The scores that cost something, one of each matrix."""
        found: dict[Any, RecordScore] = {}
        for name, score in self.scores.items():
            if is_private(score) and isinstance(score, RecordScore):  # the first of a matrix, which draws it
                found.setdefault(score.matrix_key if isinstance(score, PrivateConfusion) else name, score)
        return list(found.values())

    @property
    def event(self) -> RoundedDp:
        """One evaluation of all of them, each with its own noise."""
        slack = math.fsum(score.event.slack for score in self.private) * (1 + 1e-12)
        sigma = _ROUNDING / math.sqrt(math.fsum(score.sigma**-2 for score in self.private))
        return RoundedDp(dp_accounting.GaussianDpEvent(sigma), slack)

    @property
    def records(self) -> int | None:
        """The smallest declared number of records that a private score looks at."""
        return min((score.records for score in self.private if score.records), default=None)

    @property
    def split(self) -> Sides | str | None:
        """The rule of all private scores, if they share one."""
        rules = [score.split for score in self.private]
        return rules[0] if all(rule == rules[0] for rule in rules) else None

    @property
    def data(self) -> Origin:
        """Where the records of all private scores come from: their side, if it is one, and all their arrays."""
        known = [Origin.of(score.data) for score in self.private]
        one = known[0] if known and all(origin == known[0] for origin in known) else Origin()
        return replace(one, arrays=tuple(array for origin in known for array in origin.arrays))

    def __call__(self, model: Any, *, seed: int) -> dict[str, float]:
        """Every metric, each with its own random words; measures of one matrix share them."""
        trained, found, matrices = as_trained(model), {}, {}
        for name, score in self.scores.items():
            words = noise.Words.of_seed(seed).stream(f"metric {name}")
            own = int.from_bytes(words.draw(2).tobytes(), "big")
            if isinstance(score, PrivateConfusion):
                if (key := score.matrix_key) not in matrices:
                    matrices[key] = score.drawn(trained, own)
                found[name] = score.measured(matrices[key])
            else:
                found[name] = scored(score, trained, own)[0]
        return found

    def read_by(self, library: type[TrainedModel]) -> Metrics:
        """The same scores, their records read by a library."""
        return replace(self, scores={name: read_by(library, score) for name, score in self.scores.items()})


def scores_of(score: Any) -> Mapping[str, Any]:
    """The scores of a run by their names; a single one has no name."""
    return score.scores if isinstance(score, Metrics) else {"": score}


def read_by(library: type[TrainedModel], score: Any) -> Any:
    """A score whose records were read by a library; one of another kind is itself."""
    return score.read_by(library) if isinstance(score, RecordScore | Metrics) else score


def scored(score: Any, model: TrainedModel, seed: int) -> tuple[float, dict[str, float]]:
    """What ranks a run, and all its metrics if it has several."""
    if isinstance(score, Metrics):
        metrics = score(model, seed=seed)
        return next(iter(metrics.values())), metrics
    if isinstance(score, RecordScore):
        return score(model, seed=seed), {}
    if isinstance(score, PublicAccuracy):
        return score(model), {}
    found = score(model.model)
    try:
        return float(found), {}
    except (TypeError, ValueError):
        kind = type(found).__name__  # not the value, which may be a record's
    raise TypeError(f"score returned an object of type {kind}: return one number, the larger the better")


def on_synthetic(score: Any, records: Callable[[RecordScore], Any]) -> Any:
    """A score on made-up records; a function reads its own, which are public."""
    if isinstance(score, Metrics):
        return Metrics({name: on_synthetic(one, records) for name, one in score.scores.items()})
    if isinstance(score, RecordScore):
        plain: dict[str, Any] = {"person": None, "rows_per_person": None}  # made-up records are rows
        return replace(score, data=records(score), example=None, records=10**6, noise_multiplier=1.0, **plain)
    return score


def is_private(score: object) -> TypeGuard[RecordScore | Metrics]:
    """Whether a score looks at private records; one that states an event, and is none of ours, is refused."""
    if isinstance(score, Metrics):
        return bool(score.private)
    if isinstance(score, RecordScore):
        return True
    if inspect.getattr_static(score, "event", None) is not None:
        remedy = (
            "it states an event, so it is private: give a PrivateConfusion, whose measure is a function of the noisy "
            "matrix, or a PrivateLoss, whose loss is one of each record; for anything else, declare your training by "
            "dphypo.mechanism(score_event=...)"
        )
        raise _validate.fail("score", type(score).__name__, remedy)
    return False


def no_score(*_: object) -> float:
    """In place of a score that is not computed."""
    return 0.0


class Targets(NamedTuple):
    """What is public of the targets of some records."""

    shape: tuple[int, ...]  # of one record's target
    kind: str  # their type, such as "float32"
    outputs: tuple[int, ...]  # the shape of the model's output for one record
    regression: bool = False  # whether the loss is one of regression, if that is known
    float_labels: bool = False  # whether labels may be floating-point numbers, as those of a single output


def refuse_targets(score: Any, model: TrainedModel) -> None:
    """Refuse targets that a measure of labels cannot score, from types and shapes alone."""
    for one in scores_of(score).values():
        if isinstance(one, PublicAccuracy | PrivateAccuracy | PrivateConfusion):
            measure = one.measure if isinstance(one.measure, str) else type(one).__name__
            if (remedy := _not_labels(model.targets(measure, one.records_for(model)))) is not None:
                raise _validate.fail("score", measure, remedy)
        elif isinstance(one, PrivateLoss):
            model.refuse_loss(one.loss, one.records_for(model))


def _not_labels(targets: Targets) -> str | None:
    """What to give instead of targets that are no labels."""
    if (values := math.prod(targets.shape)) != 1:
        several = 'give targets.argmax(1) if they are one-hot, and score="loss" if a record has several labels'
        each = several if targets.shape == targets.outputs else 'use score="loss", which takes a mean over positions'
        return f"it compares one label per record, and the targets have {values} values per record: {each}"
    if targets.regression:
        return 'it compares labels, and the loss is one of regression: use score="loss", with a PrivateLoss(bound=...)'
    if "float" in targets.kind and not targets.float_labels:
        return (
            f"it compares labels, and the targets are {targets.kind} numbers: give whole numbers, such as "
            "y.astype(int), or score a regression with a PrivateLoss(bound=...)"
        )
    return None


def _each(values: Floats, owners: I64 | None) -> Floats:
    """One value per record, or per person the mean over the rows; NaN marks records that are left out."""
    known = ~np.isnan(values)
    return values[known] if owners is None else person_means(values[known], owners[known])


def noisy_matrix(
    cells: Floats, shape: tuple[int, ...], noise_multiplier: float, words: noise.Words, owners: I64 | None = None
) -> Floats:
    """How many records are in each cell of a matrix, with noise; counts below 0 are set to 0.

    ``cells`` has one number per record. A record whose number is no cell counts nowhere. With ``owners`` records are
    persons: ``cells`` has one number per row, and a person is spread over the cells of their rows.
    """
    size, numbers = math.prod(shape), np.nan_to_num(cells, nan=-1.0).astype(np.int64)
    parts = 1 if owners is None else GRID
    if owners is None:
        counts = np.bincount(numbers[(numbers >= 0) & (numbers < size)], minlength=size)
    else:
        counts = person_cells(numbers, owners, size)
    noisy = counts + noise.rounded_gaussian(parts * noise_multiplier, words, size)
    return np.asarray(np.maximum(noisy, 0).reshape(shape) / parts, dtype=np.float64)


_TAIL = 1e-10  # of each law: what lies beyond is added to the probability
_DECIMALS = 4


def reaching(target: float, wrong: float, *, noise_multiplier: float, records: int, of: int | None = None) -> float:
    """The smallest noisy accuracy that a model with an accuracy a ≤ ``target`` shows with probability ≤ ``wrong``.

    Of all accuracies a ≤ t of the model on new records, a = t shows it most often; there the probability is a finite
    sum: P[R − uN + Z ≥ −1/2] for N records that score, R of them right, and Z ∼ N(0, σ²((1 − u)² + u²)).

    Args:
        target: the accuracy that is wanted, t.
        wrong: the probability with which "reached" may be wrong.
        noise_multiplier: the standard deviation σ of the noise on each of the two counts.
        records: how many records score; the expected number if a hash sets them apart from ``of`` records.
        of: how many records there are in all, each of which scores with probability ``records / of``.

    >>> reaching(0.9, 0.0125, noise_multiplier=5.0, records=2000)
    0.916
    """
    target = _validate.within(0.0, 1.0, until=target)
    unit, (right, sizes, masses) = 10.0**-_DECIMALS, _counted(target, records, of)

    def probability(steps: int) -> float:
        """An upper bound on the probability that a model of accuracy ``target`` shows at least this score."""
        shown = steps * unit
        spread = noise_multiplier * math.hypot(1 - shown, shown)
        return float(np.sum(masses * ndtr((right - shown * sizes + 0.5) / spread))) * (1 + 1e-9) + 4 * _TAIL

    low, high = math.floor(target / unit), round(1 / unit)
    if probability(high) > wrong:
        raise UnreachableError(
            f"no accuracy on about {records} records with noise {noise_multiplier:.3g} shows that {target:g} is "
            f"reached, if that is to be wrong with probability {wrong:.3g} at most: give a lower target, more records, "
            "a larger epsilon, or a larger wrong="
        )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if probability(middle) > wrong else (low, middle)
    return round(high * unit, _DECIMALS)


@functools.lru_cache(4)
def _counted(target: float, records: int, of: int | None) -> tuple[Floats, Floats, Floats]:
    """The numbers of correct records and of all records, with their probabilities, without the tails of both laws."""
    law = binom(records, 1.0) if of is None else binom(of, records / of)
    sizes = np.arange(law.ppf(_TAIL), law.isf(_TAIL) + 1)
    middle = np.floor(target * sizes)
    least, most = binom.ppf(_TAIL, sizes, target) - middle, binom.isf(_TAIL, sizes, target) - middle
    right = middle + np.arange(least.min(), most.max() + 1)[:, None]
    return right, sizes, binom.pmf(right, sizes, target) * law.pmf(sizes)


BINS = 64
"""Of the histogram from which an AUC is computed."""
_DRAWS = 200
_EDGES = np.linspace(0, 1, BINS + 1)[1:-1]
_MARGINS = np.log(_EDGES / (1 - _EDGES))  # where a probability passes from one bin to the next


def _over(counts: Floats, totals: Floats) -> Floats:
    return np.asarray(counts / np.maximum(totals, 1))


MEASURES: dict[str, Callable[[Floats], float]] = {
    "accuracy": lambda matrix: float(np.trace(matrix) / max(matrix.sum(), 1)),
    "f1": lambda matrix: float(_over(2 * np.diag(matrix), matrix.sum(0) + matrix.sum(1)).mean()),
    "balanced_accuracy": lambda matrix: float(_over(np.diag(matrix), matrix.sum(1)).mean()),
    "f1 of class 1": lambda matrix: float(_over(2 * np.diag(matrix), matrix.sum(0) + matrix.sum(1))[1]),
}


def auc(histogram: Floats) -> float:
    """The area under the ROC curve from counts [class, bin]; pairs in one bin count half.

    >>> auc(np.array([[3.0, 1.0], [0.0, 4.0]]))
    0.875
    """
    below = np.cumsum(histogram[0]) - histogram[0] / 2
    pairs = histogram[0].sum() * histogram[1].sum()
    return float((histogram[1] * below).sum() / pairs) if pairs > 0 else 0.5


def deviation(measure: str, classes: int, share: float, records: int, noise_multiplier: float) -> float:
    """How far noise takes a measure of a matrix from what it would be: the root of the mean square, by simulation.

    The rarest class has this share of the records, the others are even, and a model of middling quality is assumed.

    >>> [round(deviation("balanced_accuracy", 2, share, 1000, 10.0), 2) for share in (0.5, 0.1, 0.02)]
    [0.01, 0.04, 0.15]
    """
    sizes = records * np.array([share, *[(1 - share) / (classes - 1)] * (classes - 1)])
    found: Callable[[Floats], float]
    if measure == "auc":
        below = [ndtr(_MARGINS + shift) for shift in (-1.0, 1.0)]  # margins N(±1, 1)
        expected = sizes[:, None] * np.diff(np.array([[0.0, *one, 1.0] for one in (below[0], below[1])]))
        found = auc
    else:
        expected = sizes[:, None] * np.where(np.eye(classes, dtype=bool), 0.8, 0.2 / (classes - 1))
        found = MEASURES[measure]
    random = np.random.default_rng(0)
    added = (random.normal(0.0, noise_multiplier, expected.shape) for _ in range(_DRAWS))
    drawn = np.array([found(np.maximum(np.rint(expected + one), 0)) for one in added])
    return float(np.sqrt(np.mean(np.square(drawn - found(expected)))))


def read_rarest(rarest: float | None) -> float | None:
    """The declared share of the rarest class; None if none is declared."""
    return None if rarest is None else _validate.within(0.0, 0.5, closed="right", rarest=rarest)


def _gap(rates: Floats) -> float:
    """The largest difference between groups, over what else the rates differ in."""
    return float(np.max(rates.max(0) - rates.min(0)))


GAPS: dict[str, Callable[[Floats], float]] = {
    "accuracy_gap": lambda groups: _gap(_over(np.trace(groups, axis1=1, axis2=2), groups.sum((1, 2)))),
    "recall_gap": lambda groups: _gap(_over(np.diagonal(groups, axis1=1, axis2=2), groups.sum(2))),
    "rate_gap": lambda groups: _gap(_over(groups.sum(1), groups.sum((1, 2))[:, None])),
}
"""Gaps between groups, of matrices [group, true class, predicted class]."""
