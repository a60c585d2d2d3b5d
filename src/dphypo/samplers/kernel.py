"""Matérn-5/2 covariance with one lengthscale a feature (automatic relevance determination).

With r² = Σ_d (x_d − x′_d)²/ℓ_d² and variance a:  k(x, x′) = a (1 + √5 r + 5r²/3) exp(−√5 r).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from dphypo import _validate

Array = npt.NDArray[np.float64]

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

    def scaled(self, features: Array) -> Array:
        """``features`` in units of the lengthscales."""
        scales = np.asarray(self.lengthscales, dtype=np.float64)
        if scales.ndim == 1 and len(scales) != features.shape[1]:
            raise _validate.fail("lengthscales", self.lengthscales, f"there are {features.shape[1]} features")
        return features / scales


def covariance(left: Array, right: Array, hyperparameters: Hyperparameters) -> Array:
    """k between every row of ``left`` and every row of ``right``, shape (len(left), len(right))."""
    radii = cdist(hyperparameters.scaled(left), hyperparameters.scaled(right))
    value, _ = matern(radii)
    value *= hyperparameters.variance
    return value


def matern(radii: Array) -> tuple[Array, Array]:
    """The correlation at distance r, and the factor (5/3)(1 + √5 r) exp(−√5 r) of its gradient.

    The derivative by log ℓ_d is that factor times (x_d − x′_d)²/ℓ_d²: no division by r, so no special case at 0.
    """
    scaled = _ROOT_5 * radii
    decay = np.exp(-scaled)
    slope = (1.0 + scaled) * decay
    value = slope + scaled * scaled * decay / 3.0
    slope *= 5.0 / 3.0
    return value, slope
