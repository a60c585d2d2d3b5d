"""The Gaussian process of many searches at once, on the cells of one grid.

The same posterior as ``dphypo.samplers.GaussianProcess`` with fixed hyperparameters. On a grid the prior covariance is
K = ΦΦᵀ + (a diagonal remainder), Φ from the leading eigenvectors; an observation is then a rank-one update of a small
matrix, and means and deviations at all cells for all searches are matrix products.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri
from scipy.stats import rankdata

from dphypo.samplers import GaussianProcess
from dphypo.samplers.gaussian_process import Hyperparameters, Units, covariance
from paper.data.points import Floats

Cells = npt.NDArray[np.intp]


class Basis:
    """Φ (cells, rank) and what it leaves out of each cell's variance; ``dtype`` is that of all posteriors."""

    def __init__(
        self,
        features: Floats,
        hyperparameters: Hyperparameters,
        remainder: float = 2e-3,
        dtype: type[np.floating[Any]] = np.float32,
    ) -> None:
        prior = covariance(features, features, hyperparameters)
        values, vectors = np.linalg.eigh(prior)
        values, vectors = values[::-1].clip(0), vectors[:, ::-1]
        rank = int(np.searchsorted(np.cumsum(values), (1 - remainder) * values.sum())) + 1
        matrix = vectors[:, :rank] * np.sqrt(values[:rank])
        self.matrix: npt.NDArray[Any] = np.ascontiguousarray(matrix, dtype=dtype)
        self.left_out: npt.NDArray[Any] = (np.diag(prior) - np.square(matrix).sum(axis=1)).astype(dtype)
        self.noise = hyperparameters.noise


class Searches:
    """The history of n searches and the posterior of each."""

    def __init__(self, basis: Basis, rule: GaussianProcess, searches: int) -> None:
        self.basis, self.rule = basis, rule
        cells, rank = basis.matrix.shape
        self._spread = np.tile(np.eye(rank, dtype=basis.matrix.dtype), (searches, 1, 1))
        self._variance = np.tile(np.square(basis.matrix).sum(axis=1), (searches, 1))
        self._cells = np.empty((searches, 64), dtype=np.intp)
        self._scores = np.empty((searches, 64))
        # Counts and sums of what the surrogate is fitted to, at each cell, and the sum of squares over all.
        self._counts, self._sums = np.zeros((searches, cells)), np.zeros((searches, cells))
        self._squares = np.zeros(searches)
        self._length, self._ranked = 0, 0

    def keep(self, count: int) -> None:
        """Forget all but the first ``count`` searches."""
        for name in ("_spread", "_variance", "_cells", "_scores", "_counts", "_sums", "_squares"):
            setattr(self, name, getattr(self, name)[:count])

    def observe(self, cells: Cells, scores: Floats) -> None:
        """One more run in every search."""
        self._remember(cells, scores)
        phi = self.basis.matrix[cells]
        gain = np.einsum("nij,nj->ni", self._spread, phi)
        total = np.einsum("ni,ni->n", gain, phi) + self.basis.left_out[cells] + self.basis.noise
        gain /= np.sqrt(total)[:, None]
        self._spread -= gain[:, :, None] * gain[:, None, :]
        self._variance -= np.square(gain @ self.basis.matrix.T)

    def weights(self) -> Floats:
        """Algorithm 2's exp(β (μ + τσ)) at every cell of every search, up to a factor a search."""
        # With all scores equal to a mean m and deviation d, standardised sums are (Σy − m n)/d at each cell.
        centre = self._sums.sum(axis=1) / self._length
        variance = self._squares / self._length - centre**2
        deviation = np.sqrt(np.where(variance > 1e-20, variance, 1.0))
        informative = np.where(variance > 1e-20, 1.0 / deviation, 0.0)
        sums = (self._sums - centre[:, None] * self._counts) * informative[:, None]
        sums /= self.basis.noise + self.basis.left_out
        sums = sums.astype(self.basis.matrix.dtype)
        mean = np.einsum("nij,nj->ni", self._spread, sums @ self.basis.matrix) @ self.basis.matrix.T
        spread = np.sqrt(np.maximum(self._variance + self.basis.left_out, 0.0))
        beta = self.rule.beta * (deviation[:, None] if self.rule.units is Units.RAW else 1.0)
        exponent = np.asarray(beta, dtype=mean.dtype) * (mean + self.rule.tau * spread)
        return np.asarray(np.exp(np.maximum(exponent - exponent.max(axis=1, keepdims=True), -80.0)))

    def _remember(self, cells: Cells, scores: Floats) -> None:
        t, rows = self._length, np.arange(len(cells))
        if t == self._cells.shape[1]:
            self._cells = np.concatenate([self._cells, np.empty_like(self._cells)], axis=1)
            self._scores = np.concatenate([self._scores, np.empty_like(self._scores)], axis=1)
        self._cells[:, t], self._scores[:, t] = cells, scores
        self._length = t = t + 1
        self._counts[rows, cells] += 1
        values = scores
        if self.rule.units is Units.RANKS:
            # Ranks of a long history hardly move: all are refreshed whenever it has grown by a fiftieth; in between
            # a new score gets the rank that it has among all.
            if t - self._ranked > t // 50:
                self._rank_all()
                return
            below = (self._scores[:, :t] < scores[:, None]).sum(axis=1)
            values = ndtri((below + 0.5) / t)
        self._sums[rows, cells] += values
        self._squares += values**2

    def _rank_all(self) -> None:
        t, (searches, cells) = self._length, self._counts.shape
        self._ranked = t
        values = ndtri((rankdata(self._scores[:, :t], axis=1) - 0.5) / t)
        flat = self._cells[:, :t] + cells * np.arange(searches)[:, None]
        total: Floats = np.asarray(np.bincount(flat.ravel(), values.ravel(), searches * cells), dtype=np.float64)
        self._sums = total.reshape(searches, cells)
        self._squares = np.square(values).sum(axis=1)
