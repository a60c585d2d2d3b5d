"""Steps per second of the simulator against the same loop with scikit-learn's Gaussian process, in one run."""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from paper import parallel
from paper.experiments import paper_settings as e
from paper.simulate import worlds
from paper.simulate.paths import paths
from paper.simulate.pilot import fitted
from paper.simulate.worlds import World


def scikit_learn(world: World, steps: int, refit: bool) -> float:
    """Steps per second of Algorithm 2, one search, the Gaussian process made anew from the history at every step."""
    known, band, random = fitted(world), e.WIDE, np.random.default_rng(0)
    cells: list[int] = []
    scores: list[float] = []
    started = time.perf_counter()
    for step in range(steps):
        masses = np.full(len(world), 1 / len(world))
        if step:
            kernel = ConstantKernel(known.variance) * Matern(np.array(known.lengthscales), nu=2.5)
            model = GaussianProcessRegressor(
                kernel + WhiteKernel(known.noise), normalize_y=True, optimizer="fmin_l_bfgs_b" if refit else None
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(world.features[cells], np.array(scores))
            mean, deviation = model.predict(world.features, return_std=True)
            masses = band.project(np.exp(mean + 0.1 * deviation))
        cells.append(int(random.choice(len(world), p=masses / masses.sum())))
        scores.append(float(world.mean[cells[-1]] + world.noise[cells[-1]] * random.standard_normal()))
    return steps / (time.perf_counter() - started)


def ours(world: World, steps: int, searches: int = 400) -> float:
    """Steps per second of the simulator, over all its searches."""
    fitted(world)
    started = time.perf_counter()
    for _ in paths(world, e.PAPER, np.full(searches, steps), 0):
        pass
    return steps * searches / (time.perf_counter() - started)


def ratios() -> dict[str, float]:
    """In a process of its own with one thread, so that none of the loops has more cores than another."""
    result: dict[str, float] = parallel.each([(measured, ())])[0]
    return result


def measured(steps: int = 100) -> dict[str, float]:
    """Searches of ``steps`` runs on the 320 cells of MNIST."""
    world = worlds.mnist(0.71)
    fast = ours(world, steps)
    fixed, refitted = (scikit_learn(world, steps, refit) for refit in (False, True))
    return {
        "steps": steps,
        "simulator, steps per second": round(fast),
        "scikit-learn, hyperparameters fixed": round(fixed, 1),
        "scikit-learn, refitted at every step": round(refitted, 1),
        "ratio, fixed": round(fast / fixed),
        "ratio, refitted": round(fast / refitted),
    }
