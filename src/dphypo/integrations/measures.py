"""What scores on private records have in common, whatever library trains: their noise, and measures of noisy counts.

A confusion matrix has a row for each true class and a column for each predicted one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import dp_accounting
import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from dphypo import _validate
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
    if isinstance(noise := score.noise_multiplier, str):
        remedy = "a score needs a number: leave it to dphypo.tune(mechanism, epsilon=..., delta=...), or give one"
        raise _validate.fail("noise_multiplier", noise, remedy)
    return float(noise)


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
    noise = (random.normal(0.0, noise_multiplier, expected.shape) for _ in range(_DRAWS))
    drawn = np.array([found(np.maximum(np.rint(expected + one), 0)) for one in noise])
    return float(np.sqrt(np.mean(np.square(drawn - found(expected)))))


def _gap(rates: Floats) -> float:
    """The largest difference between groups, over what else the rates differ in."""
    return float(np.max(rates.max(0) - rates.min(0)))


GAPS: dict[str, Callable[[Floats], float]] = {
    "accuracy_gap": lambda groups: _gap(_over(np.trace(groups, axis1=1, axis2=2), groups.sum((1, 2)))),
    "recall_gap": lambda groups: _gap(_over(np.diagonal(groups, axis1=1, axis2=2), groups.sum(2))),
    "rate_gap": lambda groups: _gap(_over(groups.sum(1), groups.sum((1, 2))[:, None])),
}
"""Gaps between groups, of matrices [group, true class, predicted class]."""
