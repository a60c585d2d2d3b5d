"""Observations as rows of a surrogate: repeats collapsed, and a bound on how many."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dphypo.samplers.history import Array

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

    def only(self, kept: Indices) -> Rows:
        """These rows, in this order; the observations of others are left out."""
        renamed = np.full(len(self.first), -1, dtype=np.intp)
        renamed[kept] = np.arange(len(kept))
        return Rows(self.first[kept], np.where(self.row >= 0, renamed[self.row], -1))


def distinct(features: Array) -> Rows:
    """Repeats of a point made one row, in the order of the features."""
    order = np.lexsort(features.T[::-1])
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (features[order[1:]] != features[order[:-1]]).any(axis=1)
    row = np.empty(len(order), dtype=np.intp)
    row[order] = np.cumsum(new) - 1
    return Rows(order[new], row)  # the sort is stable: the first of each group is the earliest


def collapsed(features: Array, scores: Array, limit: int) -> Rows:
    """Repeats of a point made one row; of more than ``limit`` rows, the best half and a fair sample of the rest.

    The fair sample is every m-th row in the order of the scores, so it spans their whole range. The rule does not
    depend on the order of the history.
    """
    rows = distinct(features)
    if len(rows.first) <= limit:
        return rows
    ranked = np.argsort(-rows.means(scores), kind="stable")
    best, rest = ranked[: limit // 2], ranked[limit // 2 :]
    spaced = np.linspace(0, len(rest) - 1, limit - len(best)).round().astype(np.intp)
    return rows.only(np.sort(np.concatenate([best, rest[spaced]])))
