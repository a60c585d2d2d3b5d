"""Hyperparameters of the simulated searches' Gaussian process: fitted once for a landscape, on a pilot."""

from __future__ import annotations

import warnings

import numpy as np

from dphypo.samplers.gaussian_process import Hyperparameters
from paper.simulate.worlds import World

_FITTED: dict[bytes, Hyperparameters] = {}


def fitted(world: World, size: int = 100) -> Hyperparameters:
    """By maximum likelihood (scikit-learn, Matérn-5/2, a lengthscale a feature) on ``size`` uniform, noisy visits.

    ``dphypo`` refits while a search runs; a simulation of millions of runs cannot. What a search would learn after a
    hundred runs is a fair stand-in, slightly kind to the Gaussian process in its first runs.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    key = world.mean.tobytes() + world.noise.tobytes()
    if key not in _FITTED:
        random = np.random.default_rng(0)
        cells = random.integers(0, len(world), size)
        scores = world.mean[cells] + world.noise[cells] * random.standard_normal(size)
        shape = Matern([0.3, 0.3], [(0.05, 5.0)] * 2, nu=2.5)
        kernel = ConstantKernel(1.0, (0.05, 20.0)) * shape + WhiteKernel(0.05, (1e-3, 2.0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # an optimum at the edge of the range is accepted
            model = GaussianProcessRegressor(kernel, normalize_y=True).fit(world.features[cells], scores)
        found = model.kernel_
        _FITTED[key] = Hyperparameters(
            float(found.k1.k1.constant_value),
            tuple(float(scale) for scale in found.k1.k2.length_scale),
            float(found.k2.noise_level),
        )
    return _FITTED[key]
