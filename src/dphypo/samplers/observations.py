"""Observations as rows of a surrogate: repeats collapsed, a bound on how many, and when to start afresh."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dphypo.samplers.kernel import Array

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Rows:
    """Distinct points of a history: where each stands first, and which row each observation belongs to.

    Observations left out by the limit belong to row −1.
    """

    first: Indices
    row: Indices

    @property
    def counts(self) -> Array:
        """How many observations each row stands for."""
        return np.bincount(self.row[self.row >= 0], minlength=len(self.first)).astype(np.float64)

    def means(self, scores: Array) -> Array:
        """The mean score of each row."""
        kept = self.row >= 0
        total = np.bincount(self.row[kept], weights=scores[kept], minlength=len(self.first))
        return total / self.counts

    def scatter(self, scores: Array) -> float:
        """Σ (score − mean of its row)² over the observations kept."""
        kept = self.row >= 0
        residual = scores[kept] - self.means(scores)[self.row[kept]]
        return float(residual @ residual)


def collapsed(features: Array, scores: Array, limit: int) -> Rows:
    """Repeats of a point made one row; of more than ``limit`` rows, the best half and a fair sample of the rest.

    The fair sample is every m-th row in the order of the scores, so it spans their whole range. The rule does not
    depend on the order of the history.
    """
    _, first, row = np.unique(features, axis=0, return_index=True, return_inverse=True)
    rows = Rows(first, row.reshape(-1))
    if len(first) <= limit:
        return rows
    order = np.argsort(-rows.means(scores), kind="stable")
    best, rest = order[: limit // 2], order[limit // 2 :]
    spaced = np.linspace(0, len(rest) - 1, limit - len(best)).round().astype(np.intp)
    kept = np.sort(np.concatenate([best, rest[spaced]]))
    renamed = np.full(len(first), -1, dtype=np.intp)
    renamed[kept] = np.arange(len(kept))
    return Rows(first[kept], renamed[rows.row])


def distinct(features: Array) -> Indices:
    """How many distinct points the first 1, 2, … observations have."""
    _, first = np.unique(features, axis=0, return_index=True)
    is_first = np.zeros(len(features), dtype=np.intp)
    is_first[first] = 1
    return np.cumsum(is_first)


def checkpoint(features: Array, limit: int) -> tuple[int, int]:
    """The last scheduled length of history not beyond this one, and the next.

    From one to the next the history grows by half the number of rows it then has (at most ``limit``): refitting and
    collapsing at these lengths costs, per run, no more than an update does.
    """
    points = distinct(features)
    last, following = 1, 2
    while following <= len(features):
        last = following
        following = last + max(1, min(int(points[last - 1]), limit) // 2)
    return last, following
