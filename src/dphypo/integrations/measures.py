"""What scores on private records have in common, whatever library trains.

A library computes one value per record: whether it is correct, its loss, or its cell of a matrix. The noise on these
values, its event, measures of noisy counts, and the targets that a measure cannot score do not depend on the library.

A confusion matrix has a row for each true class and a column for each predicted one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, Protocol, runtime_checkable

import dp_accounting
import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from dphypo import _validate, noise
from dphypo.accounting import RoundedDp
from dphypo.accounting.sides import Sides, read_sides
from dphypo.integrations import cost

Floats = npt.NDArray[np.float64]

MOST_CELLS = 1e12
"""Of a confusion matrix, for the slack of its noise."""

BINS = 64
"""Of the histogram from which an AUC is computed."""
_DRAWS = 200
_SHARE, _ENOUGH = 0.2, 4000
"""At most this many records score: they suffice to rank runs."""


def scoring_share(records: int) -> tuple[float, int]:
    """The share of this many records that is set apart for scoring, and how many that is taken to be.

    >>> scoring_share(1000), scoring_share(60_000)
    ((0.2, 200), (0.0667, 4002))
    """
    share = round(min(_SHARE, _ENOUGH / records), 4)
    return share, max(1, round(share * records))


@runtime_checkable
class PrivateScore(Protocol):
    """A score computed on private records, with noise, that says what it costs.

    ``event`` is that of one evaluation, under adding or removing one record. A score of your own may give None for
    the others: ``split`` (the rule that set its records apart, where they do not know it), ``data``, ``records`` (the
    declared number) and ``noise_multiplier`` ("calibrate" if it is to be solved for).
    """

    @property
    def event(self) -> dp_accounting.DpEvent | RoundedDp: ...
    @property
    def split(self) -> Sides | None: ...
    @property
    def data(self) -> Any: ...
    @property
    def records(self) -> int | None: ...
    @property
    def noise_multiplier(self) -> float | str | None: ...


def declare(score: Any, size: int) -> None:
    """Check what a score of ``size`` records was given, and fill in the declared number of them."""
    object.__setattr__(score, "noise_multiplier", cost.read(score.noise_multiplier))
    object.__setattr__(score, "split", read_sides(score.split) or score.split)  # "same" stays, for copies
    size = _validate.integer(at_least=1, records=size if score.records is None else score.records)
    object.__setattr__(score, "records", size)
    if not isinstance(score.noise_multiplier, str):
        _validate.warn_of_score_noise(score.noise_multiplier / size)


def noise_of(score: Any) -> float:
    """The noise multiplier of a score; an error if it is yet to be found."""
    if isinstance(given := score.noise_multiplier, str):
        remedy = "a score needs a number: leave it to dphypo.tune(mechanism, epsilon=..., delta=...), or give one"
        raise _validate.fail("noise_multiplier", given, remedy)
    return float(given)


def event_of_counts(noise_multiplier: float, cells: float = 1) -> RoundedDp:
    """The event of noisy counts, where one record changes one of them by at most 1."""
    return RoundedDp(dp_accounting.GaussianDpEvent(noise_multiplier), noise.slack(cells, noise_multiplier))


def event_of_sum(noise_multiplier: float) -> RoundedDp:
    """The event of :func:`noisy_mean`."""
    return RoundedDp(dp_accounting.GaussianDpEvent(noise_multiplier), noise.slack_of_sum(noise_multiplier))


def noisy_mean(values: Floats, bound: float, noise_multiplier: float, records: int, words: noise.Words) -> float:
    """The noisy sum of one value per record, clipped to [0, ``bound``], over the declared number of records.

    A value that is not a number counts as ``bound``: as a loss or an error, it is the worst.
    """
    clipped = np.clip(np.nan_to_num(values, nan=bound), 0.0, bound)
    return noise.noisy_sum(clipped, bound, noise_multiplier, words) / records


def noisy_matrix(cells: Floats, shape: tuple[int, ...], noise_multiplier: float, words: noise.Words) -> Floats:
    """How many records are in each cell of a matrix, with noise; counts below 0 are set to 0.

    ``cells`` has one number per record. A record whose number is no cell counts nowhere.
    """
    size, numbers = math.prod(shape), cells.astype(np.int64)
    counts = np.bincount(numbers[(numbers >= 0) & (numbers < size)], minlength=size)
    noisy = counts + noise.rounded_gaussian(noise_multiplier, words, size)
    return np.asarray(np.maximum(noisy, 0).reshape(shape), dtype=np.float64)


def refuse_targets(
    measure: str,
    shape: tuple[int, ...],
    kind: str,
    outputs: tuple[int, ...],
    *,
    regression: bool = False,
    float_labels: bool = False,
) -> None:
    """Refuse targets that a measure of labels cannot score, from types and shapes alone.

    Args:
        measure: its name, for the message.
        shape, kind: the shape of one record's target, and its type, such as "float32".
        outputs: the shape of the model's output for one record.
        regression: whether the loss is one of regression, where that is known.
        float_labels: whether labels may be floating-point numbers, as those of a single output are in some libraries.
    """
    if (values := math.prod(shape)) != 1:
        several = 'give targets.argmax(1) if they are one-hot, and score="loss" if a record has several labels'
        each = several if shape == outputs else 'use score="loss", which takes a mean over positions'
        remedy = f"it compares one label a record, and the targets have {values} values a record: {each}"
    elif regression:
        remedy = (
            'it compares labels, and the loss is one of regression: use score="loss", with a PrivateLoss(bound=...)'
        )
    elif "float" in kind and not float_labels:
        remedy = (
            f"it compares labels, and the targets are {kind} numbers: give whole numbers, such as y.astype(int), or "
            "score a regression with a PrivateLoss(bound=...)"
        )
    else:
        return
    raise _validate.fail("score", measure, remedy)


def _over(counts: Floats, totals: Floats) -> Floats:
    return np.asarray(counts / np.maximum(totals, 1))


MEASURES: dict[str, Callable[[Floats], float]] = {
    "accuracy": lambda matrix: float(np.trace(matrix) / max(matrix.sum(), 1)),
    "f1": lambda matrix: float(_over(2 * np.diag(matrix), matrix.sum(0) + matrix.sum(1)).mean()),
    "balanced_accuracy": lambda matrix: float(_over(np.diag(matrix), matrix.sum(1)).mean()),
}


def auc(histogram: Floats) -> float:
    """The area under the ROC curve from counts [class, bin]; pairs in one bin count half.

    >>> auc(np.array([[3.0, 1.0], [0.0, 4.0]]))
    0.875
    """
    below = np.cumsum(histogram[0]) - histogram[0] / 2
    pairs = histogram[0].sum() * histogram[1].sum()
    return float((histogram[1] * below).sum() / pairs) if pairs > 0 else 0.5


def assumed_share(classes: int) -> float:
    """The share of the rarest class where none is declared: a fifth of an even share."""
    return 1 / (5 * classes)


def deviation(measure: str, classes: int, share: float, records: int, noise_multiplier: float) -> float:
    """How far noise takes a measure of a matrix from what it would be: the root of the mean square, by simulation.

    The rarest class has this share of the records, the others are even, and a model of middling quality is assumed.

    >>> [round(deviation("balanced_accuracy", 2, share, 1000, 10.0), 2) for share in (0.5, 0.1, 0.02)]
    [0.01, 0.04, 0.15]
    """
    sizes = records * np.array([share, *[(1 - share) / (classes - 1)] * (classes - 1)])
    found: Callable[[Floats], float]
    if measure == "auc":
        edges = np.linspace(0, 1, BINS + 1)[1:-1]
        below = [ndtr(np.log(edges / (1 - edges)) + shift) for shift in (-1.0, 1.0)]  # margins N(±1, 1)
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


class MatrixMeasure:
    """The noise that a score states of its measure of a noisy matrix; a mixin for a score with these fields."""

    measure: str | Callable[[Floats], float]
    noise_multiplier: float | str
    records: int | None
    rarest: float | None

    def check_measure(self, known: Collection[str]) -> None:
        """Refuse a measure that is neither one of the known ones nor a function, and a wrong share."""
        if not callable(self.measure) and self.measure not in known:
            raise _validate.fail("measure", self.measure, f"give one of {', '.join(known)}, or a function")
        read_rarest(self.rarest)

    def deviation(self, classes: int) -> float | None:
        """The noise of the measure among so many classes; None if it is one of your own, or a gap between groups."""
        if not isinstance(self.measure, str) or self.measure in GAPS or not isinstance(self.noise_multiplier, float):
            return None
        share = assumed_share(classes) if self.rarest is None else self.rarest
        return deviation(self.measure, classes, share, self.records or 1, self.noise_multiplier)

    @property
    def assumes(self) -> str:
        """What the stated noise assumes, in words that follow the number; "" if none is stated."""
        if self.deviation(2) is None:
            return ""
        if self.rarest is not None:
            return f" where the rarest class has {100 * self.rarest:.2g} % of the records"
        return " if the rarest class has a fifth of an even share (assumed: state rarest=, a public constant)"


def _gap(rates: Floats) -> float:
    """The largest difference between groups, over what else the rates differ in."""
    return float(np.max(rates.max(0) - rates.min(0)))


GAPS: dict[str, Callable[[Floats], float]] = {
    "accuracy_gap": lambda groups: _gap(_over(np.trace(groups, axis1=1, axis2=2), groups.sum((1, 2)))),
    "recall_gap": lambda groups: _gap(_over(np.diagonal(groups, axis1=1, axis2=2), groups.sum(2))),
    "rate_gap": lambda groups: _gap(_over(groups.sum(1), groups.sum((1, 2))[:, None])),
}
"""Gaps between groups, of matrices [group, true class, predicted class]."""
