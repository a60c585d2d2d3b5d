"""A Gaussian process: a Matérn-5/2 kernel, hyperparameters by maximum a posteriori, and the posterior.

The kernel has one lengthscale a feature (automatic relevance determination). With r² = Σ_d (x_d − x′_d)²/ℓ_d² and
variance a:  k(x, x′) = a (1 + √5 r + 5r²/3) exp(−√5 r).

Hyperparameters maximise the log marginal likelihood plus log-normal priors, by L-BFGS over logarithms with analytic
gradients. Repeated observations of a point enter as their mean with noise divided by their count, plus the likelihood
of their scatter about that mean: exact, and never larger than the number of points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from dphypo import _validate
from dphypo.samplers.sampler import Array

_ROOT_5 = np.sqrt(5.0)


@dataclass(frozen=True)
class Hyperparameters:
    """Parameters of a Gaussian process, on scores standardised to mean 0 and deviation 1.

    ``variance`` is a, ``lengthscales`` are ℓ_d (one number serves every feature), ``noise`` is the variance of one
    observation about the function.

    >>> Hyperparameters(variance=1.0, lengthscales=(0.3, 0.5), noise=0.01).noise
    0.01
    """

    variance: float = 1.0
    lengthscales: float | tuple[float, ...] = 0.5
    noise: float = 1e-2

    def __post_init__(self) -> None:
        _validate.positive(variance=self.variance)
        _validate.non_negative(noise=self.noise)
        scales = self.lengthscales if isinstance(self.lengthscales, tuple) else (self.lengthscales,)
        for scale in scales:
            _validate.positive(lengthscales=scale)


def covariance(left: Array, right: Array, hyperparameters: Hyperparameters) -> Array:
    """k between every row of ``left`` and every row of ``right``, of shape (len(left), len(right))."""
    scales = np.asarray(hyperparameters.lengthscales, dtype=np.float64)
    if scales.ndim == 1 and len(scales) != left.shape[1]:
        raise _validate.fail("lengthscales", hyperparameters.lengthscales, f"there are {left.shape[1]} features")
    scaled = cdist(_ROOT_5 * (left / scales), _ROOT_5 * (right / scales))
    value = scaled / 3.0  # in place from here: most of the time of a draw is spent in these lines
    value += 1.0
    value *= scaled
    value += 1.0
    np.negative(scaled, out=scaled)
    value *= np.exp(scaled, out=scaled)
    value *= hyperparameters.variance
    return np.asarray(value)


# Priors (mean and deviation of the logarithm), in units of standardised scores and of features of unit range. The
# lengthscale grows with the square root of the number of features, as the distance between two points does.
_VARIANCE = (0.0, 0.5)
_LENGTHSCALE = (float(np.log(0.25)), 0.8)
_NOISE = (float(np.log(2e-2)), 1.5)
_BOUNDS = (np.log(1e-2), np.log(1e2))  # of the variance and of the lengthscales
_BOUNDS_NOISE = (np.log(1e-6), np.log(4.0))


@dataclass(frozen=True)
class Data:
    """Distinct points, the mean score and count at each, and the scatter Σ(y − mean)² within them."""

    features: Array
    means: Array
    counts: Array
    scatter: float


def fit(data: Data) -> Hyperparameters:
    """The most probable hyperparameters given ``data``."""
    width = data.features.shape[1]
    squares = (data.features[:, None, :] - data.features[None, :, :]) ** 2
    flat = np.ascontiguousarray(squares.reshape(-1, width).T)
    centre, spread = _prior(width)
    bounds = [*[_BOUNDS] * (1 + width), _BOUNDS_NOISE]

    def loss(logs: Array) -> tuple[float, Array]:
        deviation = (logs - centre) / spread
        value, gradient = _negative_log_likelihood(logs, data, flat)
        return value + 0.5 * float(deviation @ deviation), gradient + deviation / spread

    # From the prior's centre alone: on landscapes of every kind in benchmarks/landscapes.py a second or third start
    # found a better optimum in one fit of thirty, and doubled the time.
    best = minimize(loss, centre, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 50})
    return _from_logs(best.x)


def prior_mode(width: int) -> Hyperparameters:
    """The hyperparameters used before there are enough observations to fit."""
    return _from_logs(_prior(width)[0])


def _from_logs(logs: Array) -> Hyperparameters:
    variance, *lengthscales, noise = np.exp(logs).tolist()
    return Hyperparameters(variance, tuple(lengthscales), noise)


def _prior(width: int) -> tuple[Array, Array]:
    scale = _LENGTHSCALE[0] + 0.5 * np.log(max(width, 1))
    centre = np.array([_VARIANCE[0], *[scale] * width, _NOISE[0]])
    spread = np.array([_VARIANCE[1], *[_LENGTHSCALE[1]] * width, _NOISE[1]])
    return centre, spread


def _negative_log_likelihood(logs: Array, data: Data, flat: Array) -> tuple[float, Array]:
    """−log p(y | hyperparameters) up to a constant, and its gradient in the logarithms."""
    size = len(data.means)
    variance, noise = np.exp(logs[0]), np.exp(logs[-1])
    precisions = np.exp(-2.0 * logs[1:-1])
    radii = np.sqrt(precisions @ flat).reshape(size, size)
    # The derivative of the correlation by log ℓ_d is slope · (x_d − x′_d)²/ℓ_d²: no division by r, so no case r = 0.
    scaled = _ROOT_5 * radii
    decay = np.exp(-scaled)
    slope = (1.0 + scaled) * decay
    correlation = slope + scaled * scaled * decay / 3.0
    slope *= 5.0 / 3.0
    covariance = variance * correlation
    diagonal = np.diag_indices(size)
    # A trace of jitter keeps the factorisation alive at extreme trial values; it does not depend on the parameters.
    covariance[diagonal] += noise / data.counts + 1e-10 * variance
    factor, failed = lapack.dpotrf(covariance, lower=1, clean=1)
    if failed:
        return 1e10, np.zeros_like(logs)
    inverse, _ = lapack.dpotri(factor, lower=1)
    inverse += np.tril(inverse, -1).T
    weights = inverse @ data.means
    extra = float(data.counts.sum()) - size
    value = 0.5 * float(data.means @ weights) + float(np.log(np.diag(factor)).sum())
    value += 0.5 * (extra * logs[-1] + data.scatter / noise)

    difference = inverse - np.outer(weights, weights)  # d(value)/dK = difference/2
    gradient = np.empty_like(logs)
    gradient[0] = 0.5 * variance * float((difference * correlation).sum())
    gradient[1:-1] = 0.5 * variance * precisions * (flat @ (difference * slope).ravel())
    gradient[-1] = 0.5 * noise * float((difference[diagonal] / data.counts).sum())
    gradient[-1] += 0.5 * (extra - data.scatter / noise)
    return value, gradient


def posterior(hyperparameters: Hyperparameters, data: Data, candidates: Array) -> tuple[Array, Array]:
    """Mean and deviation of the function at ``candidates``.

    With K the covariance of the points, R their noise, L the Cholesky factor of K + R and V = L⁻¹ k(points, x):
    mean = Vᵀ L⁻¹ y, variance = k(x, x) − Σ_points V².
    """
    matrix = covariance(data.features, data.features, hyperparameters)
    matrix[np.diag_indices(len(matrix))] += hyperparameters.noise / data.counts
    factor = _cholesky(matrix, hyperparameters.variance)
    across = covariance(data.features, candidates, hyperparameters)
    solved = blas.dtrsm(1.0, factor, across.T, side=1, lower=1, trans_a=1, overwrite_b=1).T
    mean = blas.dtrsv(factor, data.means, lower=1) @ solved
    variance = hyperparameters.variance - np.einsum("ij,ij->j", solved, solved)  # rounding can leave it below 0
    return mean, np.sqrt(np.maximum(variance, 0.0))


_JITTER = 1e-10  # the least share of the variance that is added to a covariance without a Cholesky factor


def _cholesky(matrix: Array, variance: float) -> Array:
    """The lower factor; jitter on the diagonal grows from nothing until the matrix is positive."""
    diagonal = matrix.diagonal().copy()
    for jitter in (0.0, *(_JITTER * 10.0**power for power in range(12))):
        matrix[np.diag_indices(len(matrix))] = diagonal + jitter * variance
        factor, failed = lapack.dpotrf(matrix, lower=1, clean=1)
        if not failed:
            return np.asarray(factor)
    raise np.linalg.LinAlgError("the covariance of the runs has no Cholesky factor: are their features finite?")
