"""Hyperparameters of the Gaussian process by maximum a posteriori.

The objective is the log marginal likelihood of the observations plus log-normal priors, maximised by L-BFGS over
logarithms with analytic gradients. Repeated observations of a point enter as their mean with noise divided by their
count, plus the likelihood of their scatter about that mean: exact, and never larger than the number of points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import minimize

from dphypo.samplers.kernel import Array, Hyperparameters, matern

# Priors (mean and deviation of the logarithm), in units of standardised scores and of features of unit range. The
# lengthscale grows with the square root of the number of features, as the distance between two points does.
_VARIANCE = (0.0, 0.5)
_LENGTHSCALE = (float(np.log(0.25)), 0.8)
_NOISE = (float(np.log(2e-2)), 1.5)
_BOUNDS_VARIANCE = (np.log(1e-2), np.log(1e2))
_BOUNDS_LENGTHSCALE = (np.log(1e-2), np.log(1e2))
_BOUNDS_NOISE = (np.log(1e-6), np.log(4.0))

_ITERATIONS = 50


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
    bounds = [_BOUNDS_VARIANCE, *[_BOUNDS_LENGTHSCALE] * width, _BOUNDS_NOISE]

    def loss(logs: Array) -> tuple[float, Array]:
        deviation = (logs - centre) / spread
        value, gradient = _negative_log_likelihood(logs, data, flat)
        return value + 0.5 * float(deviation @ deviation), gradient + deviation / spread

    # From the prior's centre alone: on landscapes of every kind in benchmarks/landscapes.py a second or third start
    # found a better optimum in one fit of thirty, and doubled the time.
    options = {"maxiter": _ITERATIONS}
    best = minimize(loss, centre, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    values = np.exp(best.x)
    return Hyperparameters(float(values[0]), tuple(float(scale) for scale in values[1:-1]), float(values[-1]))


def prior_mode(width: int) -> Hyperparameters:
    """The hyperparameters used before there are enough observations to fit."""
    centre, _ = _prior(width)
    values = np.exp(centre)
    return Hyperparameters(float(values[0]), tuple(float(scale) for scale in values[1:-1]), float(values[-1]))


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
    correlation, slope = matern(radii)
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
