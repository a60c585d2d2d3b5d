"""Measures of a noisy confusion matrix, whose rows are true classes and whose columns are predicted ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def _recall(matrix: Floats) -> Floats:
    return np.asarray(np.diag(matrix) / np.maximum(matrix.sum(1), 1))


def _f1(matrix: Floats) -> Floats:
    return np.asarray(2 * np.diag(matrix) / np.maximum(matrix.sum(0) + matrix.sum(1), 1))


MEASURES: dict[str, Callable[[Floats], float]] = {
    "accuracy": lambda matrix: float(np.trace(matrix) / max(matrix.sum(), 1)),
    "f1": lambda matrix: float(_f1(matrix).mean()),
    "balanced_accuracy": lambda matrix: float(_recall(matrix).mean()),
}


def auc(histogram: Floats) -> float:
    """The area under the ROC curve from counts [class, bin]; pairs in one bin count half.

    >>> auc(np.array([[3.0, 1.0], [0.0, 4.0]]))
    0.875
    """
    below = np.cumsum(histogram[0]) - histogram[0] / 2
    pairs = histogram[0].sum() * histogram[1].sum()
    return float((histogram[1] * below).sum() / pairs) if pairs > 0 else 0.5


def _gap(rates: Floats) -> float:
    """The largest difference between groups, over what else the rates differ in."""
    return float(np.max(rates.max(0) - rates.min(0)))


def _over(counts: Floats, totals: Floats) -> Floats:
    return np.asarray(counts / np.maximum(totals, 1))


GAPS: dict[str, Callable[[Floats], float]] = {
    "accuracy_gap": lambda groups: _gap(_over(np.trace(groups, axis1=1, axis2=2), groups.sum((1, 2)))),
    "recall_gap": lambda groups: _gap(_over(np.diagonal(groups, axis1=1, axis2=2), groups.sum(2))),
    "rate_gap": lambda groups: _gap(_over(groups.sum(1), groups.sum((1, 2))[:, None])),
}
"""Gaps between groups, of matrices [group, true class, predicted class]."""
