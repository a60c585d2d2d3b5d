"""The Gaussian process: one step against scikit-learn's, and a whole search against Optuna's GPSampler. On one core."""

from __future__ import annotations

import time
import warnings
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.stats import uniform

from benchmarks.timing import best_of
from dphypo.band import KL, Band
from dphypo.entropy import Seeded
from dphypo.samplers import GaussianProcess, History
from dphypo.samplers.gaussian_process import Hyperparameters, Units
from dphypo.space import Candidates, Grid, Space

Array = npt.NDArray[np.float64]

SPACE = Space({"x": uniform(), "y": uniform()})
FIXED = Hyperparameters(variance=1.0, lengthscales=(0.3, 0.5), noise=0.01)
STEPS_AT, STEPS = (100, 200), 20
RUNS = 100
CANDIDATES = 8192
BAND = Band(0.75, 2)


def main() -> None:
    """Print the ratios."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    with threadpool_limits(limits=1):
        print("samplers: the Gaussian process")
        for size in STEPS_AT:
            _one_step(size)
        _whole_search()


def _score(unit: Array) -> float:
    x, y = unit
    return float(np.sin(5 * x) + np.cos(3 * y) + 0.1 * np.sin(97 * x + 89 * y))


def _history(points: Candidates | Grid, indices: npt.NDArray[np.int64]) -> History:
    unit = points.unit[indices]
    scores = np.array([_score(point) for point in unit])
    return History(points.features[indices], unit, scores, np.zeros(len(unit), dtype=np.bool_), ({},) * len(unit))


def _one_step(size: int) -> None:
    """At so many runs and 2 500 cells, hyperparameters fixed: ours solves, scikit-learn fits and predicts.

    Up to 160 distinct points both solve the same system; of more, ours keeps 160 at most.
    """
    grid = SPACE.grid(x=50, y=50)
    indices = np.random.default_rng(0).integers(0, len(grid), size + STEPS)
    rule = GaussianProcess(units=Units.STANDARD, hyperparameters=FIXED)
    times = []
    for runs in range(size + 1, size + STEPS + 1):
        history = _history(grid, indices[:runs])
        start = time.perf_counter()
        rule.weights(grid, history)
        times.append(time.perf_counter() - start)
    history = _history(grid, indices[:size])
    mean, deviation = rule.posterior(grid, history)
    peer_mean, peer_deviation = _scikit_learn(grid, history)
    apart = max(np.abs(mean - peer_mean).max(), np.abs(deviation - peer_deviation).max())
    ours, peer = min(times), best_of(STEPS, partial(_scikit_learn, grid, history))
    print(
        f"  one step at t = {size}, {len(grid)} candidates: {ours * 1e3:.2f} ms; scikit-learn's fit and predict "
        f"{peer * 1e3:.1f} ms: {peer / ours:.1f} times faster; they differ by {apart:.0e}"
    )


def _scikit_learn(grid: Grid, history: History) -> tuple[Array, Array]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern

    kernel = ConstantKernel(FIXED.variance) * Matern(FIXED.lengthscales, nu=2.5)
    model = GaussianProcessRegressor(kernel, alpha=FIXED.noise, optimizer=None, normalize_y=True)
    mean, deviation = model.fit(history.features, history.scores).predict(grid.features, return_std=True)
    return mean, deviation


def _whole_search() -> None:
    """100 runs in two dimensions, fits included: all that is done to choose λ."""
    peer = _optuna()
    for name, grid in (
        (f"{CANDIDATES} fresh candidates a run", None),
        ("a grid of 2500 cells", SPACE.grid(x=50, y=50)),
    ):
        ours = _ours(grid)
        goal = "  (target: at least 5)" if grid is None else ""
        print(
            f"  {RUNS} runs, {name}: {ours:.2f} s; Optuna's GPSampler {peer:.1f} s: "
            f"{peer / ours:.0f} times faster{goal}"
        )


def _ours(grid: Grid | None) -> float:
    """Seconds to draw candidates, weigh them, project and draw, over a whole search."""
    rule, entropy = GaussianProcess(), Seeded(0)
    features, unit, scores = np.empty((RUNS, 2)), np.empty((RUNS, 2)), np.empty(RUNS)
    spent = 0.0
    for run in range(RUNS):
        failed = np.zeros(run, dtype=np.bool_)
        start = time.perf_counter()
        candidates = grid if grid is not None else SPACE.candidates(CANDIDATES, entropy)
        weights = rule.weights(candidates, History(features[:run], unit[:run], scores[:run], failed, ({},) * run))
        index = BAND.draw(BAND.project(weights, candidates.masses, KL()), entropy, candidates.masses)
        spent += time.perf_counter() - start
        features[run], unit[run] = candidates.features[index], candidates.unit[index]
        scores[run] = _score(unit[run])
    return spent


def _optuna() -> float:
    """Seconds that Optuna's GPSampler takes to suggest, over a whole search."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    spent = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.GPSampler(seed=0))
        for _ in range(RUNS):
            start = time.perf_counter()
            trial = study.ask()
            point = np.array([trial.suggest_float("x", 0.0, 1.0), trial.suggest_float("y", 0.0, 1.0)])
            spent += time.perf_counter() - start
            study.tell(trial, _score(point))
    return spent


if __name__ == "__main__":
    main()
