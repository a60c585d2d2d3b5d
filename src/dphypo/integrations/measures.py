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
    "f1": lambda matrix: float(_f1(matrix).mean()),
    "balanced_accuracy": lambda matrix: float(_recall(matrix).mean()),
}
