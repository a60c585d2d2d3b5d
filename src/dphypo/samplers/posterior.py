"""Posterior of a Gaussian process on a set of candidates, extended one observation at a time.

With K the covariance of the observed rows, R their noise, L the Cholesky factor of K + R and V = L⁻¹ k(rows,
candidates), the posterior of the function at the candidates is

    mean = Vᵀ L⁻¹ y,    variance = k(x, x) − Σ_rows V²

L and V do not depend on the scores y. One more observation adds one row to each: O(n·t) on n candidates, where a fresh
factorisation would cost O(t³ + n·t²).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas, lapack

from dphypo.samplers.kernel import Array, Hyperparameters, covariance

# The smallest share of the variance a pivot may have; below it the step is numerically singular and the row gets that
# much more noise of its own.
_JITTER = 1e-10


class Posterior:
    """Rows of observed features under fixed hyperparameters, and the candidates they were last asked about."""

    def __init__(self, hyperparameters: Hyperparameters, features: Array, counts: Array) -> None:
        """``counts[i]`` observations were made of row i: its mean has noise/counts[i]."""
        self.hyperparameters = hyperparameters
        self.features = features.copy()
        size = len(features)
        matrix = covariance(features, features, hyperparameters)
        matrix[np.diag_indices(size)] += hyperparameters.noise / counts
        self._factor = np.asfortranarray(_cholesky(matrix, hyperparameters.variance))
        self._candidates: Array | None = None
        # Column j is row j of V: contiguous, so that a new row is one append.
        self._solved = np.empty((0, 0))
        self._explained = np.empty(0)

    def __len__(self) -> int:
        return len(self.features)

    def extend(self, row: Array) -> None:
        """Observe one more point, once: the factor and V gain a row."""
        old = len(self)
        parameters = self.hyperparameters
        against = covariance(row[None, :], self.features, parameters)[0]
        link = blas.dtrsv(self._factor, against, lower=1) if old else against
        floor = _JITTER * parameters.variance
        pivot = np.sqrt(max(parameters.variance + parameters.noise - float(link @ link), floor))
        self.features = np.vstack([self.features, row])
        factor = np.zeros((old + 1, old + 1), order="F")
        factor[:old, :old] = self._factor
        factor[old, :old] = link
        factor[old, old] = pivot
        self._factor = factor
        if self._candidates is not None:
            fresh = covariance(row[None, :], self._candidates, parameters)[0]
            fresh -= self._solved[:, :old] @ link
            fresh /= pivot
            self._append(fresh, old)

    def look_at(self, candidates: Array) -> None:
        """The candidates that will be asked about: V is kept, and extended, only while they stay the same."""
        if self._candidates is not None and not np.array_equal(self._candidates, candidates):
            self._candidates = None

    def at(self, candidates: Array, scores: Array) -> tuple[Array, Array]:
        """Mean and deviation of the function at ``candidates``, given one (mean) score a row."""
        size = len(self)
        self.look_at(candidates)
        if self._candidates is None:
            self._solve(candidates)
        half = blas.dtrsv(self._factor, scores, lower=1)
        mean = self._solved[:, :size] @ half
        variance = self.hyperparameters.variance - self._explained
        return mean, np.sqrt(np.maximum(variance, 0.0))

    def _solve(self, candidates: Array) -> None:
        self._candidates = candidates.copy()
        cross = covariance(self.features, candidates, self.hyperparameters).T
        self._solved = blas.dtrsm(1.0, self._factor, cross, side=1, lower=1, trans_a=1, overwrite_b=1)
        self._explained = np.einsum("ij,ij->i", self._solved, self._solved)

    def _append(self, fresh: Array, old: int) -> None:
        if self._solved.shape[1] == old:
            grown = np.empty((len(fresh), old + max(16, old // 2)), order="F")
            grown[:, :old] = self._solved
            self._solved = grown
        self._solved[:, old] = fresh
        self._explained += fresh * fresh


def _cholesky(matrix: Array, variance: float) -> Array:
    """The lower factor; jitter on the diagonal grows from nothing until the matrix is positive."""
    diagonal = matrix.diagonal().copy()
    for jitter in (0.0, *(_JITTER * 10.0**power for power in range(12))):
        matrix[np.diag_indices(len(matrix))] = diagonal + jitter * variance
        factor, failed = lapack.dpotrf(matrix, lower=1, clean=1)
        if not failed:
            return np.asarray(factor)
    raise np.linalg.LinAlgError("the covariance of the runs has no Cholesky factor: are their features finite?")
