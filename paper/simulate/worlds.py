"""Landscapes to search: what the committed trainings say of every cell, oriented so that larger is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from paper.data import points
from paper.data.points import Floats, Grid

FOLDER = Path(__file__).parents[1] / "landscapes"
BEYOND = 1.05  # how far outside the trained noise multipliers the fit is trusted
_WIDTH = 0.25  # of the weights that neighbouring noise multipliers get, in log σ


@dataclass(frozen=True)
class World:
    """A score for every cell of a grid.

    ``mean`` is the actual score of a cell, by which a search is judged; visiting a cell shows it plus Gaussian noise of
    deviation ``noise``. ``features`` lie in the unit square.
    """

    features: Floats
    mean: Floats
    noise: Floats

    def __len__(self) -> int:
        return len(self.mean)


def unit_square(grid: Grid) -> Floats:
    """Middles of equal cells: what a uniform prior on the grid's values becomes.

    >>> unit_square(points.MNIST)[[0, -1]]
    array([[0.03125, 0.025  ],
           [0.96875, 0.975  ]])
    """
    axes = [(np.arange(len(axis)) + 0.5) / len(axis) for axis in (grid.first, grid.second)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)


@dataclass(frozen=True)
class Trained:
    """Scores (repetitions, points) by noise multiplier, after a number of steps or rounds; ``limits`` of any score."""

    scores: dict[float, Floats]
    limits: tuple[float, float] = (0.0, 1.0)

    def mean(self, noise_multiplier: float) -> Floats:
        """The mean score at a noise multiplier that was trained."""
        return np.asarray(self.scores[noise_multiplier].mean(axis=0))

    def at(self, noise_multiplier: float) -> Floats:
        """The score at any noise multiplier: a local quadratic in log σ through what was trained.

        Levels are weighted by exp(−(log σ − log σ′)²/2w²) times their number of repetitions, so that levels trained
        once are no noisier, and their best cell no luckier, than others; w = 0.25, or more where levels are far apart.
        """
        levels = np.array(sorted(self.scores))
        if not levels[0] / BEYOND <= noise_multiplier <= levels[-1] * BEYOND:
            raise ValueError(f"σ = {noise_multiplier:g} was not trained: {levels[0]:g} to {levels[-1]:g} were")
        values = np.stack([self.mean(level) for level in levels])
        counts = [len(self.scores[level]) for level in levels]
        return np.clip(local_quadratic(levels, values, counts, noise_multiplier), *self.limits)


def local_quadratic(levels: Floats, values: Floats, counts: Sequence[int], noise_multiplier: float) -> Floats:
    """The mean of each cell at a noise multiplier, from means (levels, cells), each of ``counts`` trainings."""
    distance = np.log(levels / noise_multiplier)
    degree = min(2, len(levels) - 1)
    width = max(_WIDTH, float(np.sort(abs(distance))[degree]) / 3.0)  # the levels that a quadratic needs must count
    weight = np.sqrt(np.asarray(counts)) * np.exp(-0.25 * (distance / width) ** 2)
    design = distance[:, None] ** np.arange(degree + 1) * weight[:, None]
    return np.asarray(np.linalg.lstsq(design, values * weight[:, None], rcond=None)[0][0])


@cache
def trained(files: Sequence[str], steps: int) -> Trained:
    """What those of the given files that tell it hold after ``steps`` steps, repetitions of one level joined."""
    found: dict[float, list[Floats]] = {}
    for file in files:
        with np.load(FOLDER / f"{file}.npz") as content:
            for index in np.flatnonzero(content["steps"] == steps):
                for level, right in zip(content["noise_multipliers"], content["correct"][:, index], strict=True):
                    found.setdefault(float(level), []).append(right / float(content["tests"]))
    return Trained({level: np.concatenate(rows) for level, rows in found.items()})


MNIST = ("mnist", "mnist-noise", "mnist-noise-2", "mnist-noise-3")
CIFAR = ("cifar-coarse", "cifar-noise", "cifar-noise-2", "cifar-noise-3")


def mnist(noise_multiplier: float, noise: float = 0.1) -> World:
    """Setting 1: the mean of the trained models; where that σ was not among the paper's, :meth:`Trained.at`."""
    known = trained(MNIST, 2344)
    mean = known.mean(noise_multiplier) if noise_multiplier in (0.71, 0.64) else known.at(noise_multiplier)
    return World(unit_square(points.MNIST), mean, np.full(len(mean), noise))


def cifar_coarse(noise_multiplier: float, noise: float = 0.02) -> World:
    """The real coarse grid of CIFAR-10, at any noise multiplier."""
    mean = trained(CIFAR, 1954).at(noise_multiplier)
    return World(unit_square(points.CIFAR_COARSE), mean, np.full(len(mean), noise))


def cifar(noise_multiplier: float) -> World:
    """Setting 2: mean and standard error by BoTorch from 50 trainings, as in the paper."""
    with np.load(FOLDER / "cifar-botorch.npz") as content:
        index = int(np.flatnonzero(content["noise_multipliers"] == noise_multiplier)[0])
        return World(unit_square(points.CIFAR), content["mean"][index], content["deviation"][index])


GUESSING = float(np.log(10.0))  # the loss of guessing one of ten classes; what trains worse counts as that


@cache
def federated_losses() -> Floats:
    """Test losses (repetitions, cells) at noise multiplier 1, at most :data:`GUESSING`."""
    with np.load(FOLDER / "federated.npz") as content:
        return np.asarray(np.minimum(content["loss"][0, 0], GUESSING))


def federated() -> World:
    """The federated task: mean and standard error of the loss by BoTorch from 50 trainings, sign turned."""
    with np.load(FOLDER / "federated-botorch.npz") as content:
        return World(unit_square(points.FEDERATED), -content["mean"], content["deviation"])


@cache
def federated_trained(rounds: int = 100) -> Trained:
    """Losses of the federated task after so many rounds, sign turned; repetitions of one noise multiplier joined."""
    found: dict[float, list[Floats]] = {}
    for path in [FOLDER / "federated.npz", *sorted(FOLDER.glob("federated-[nl]o*.npz"))]:  # at more noise, or less long
        with np.load(path) as content:
            for index in np.flatnonzero(content["rounds"] == rounds):
                for level, loss in zip(content["noise_multipliers"], content["loss"][:, index], strict=True):
                    complete = loss[~np.isnan(loss).any(axis=1)].astype(np.float64)  # nan: not trained
                    found.setdefault(float(level), []).append(-np.minimum(complete, GUESSING))
    joined = {level: np.concatenate(rows) for level, rows in found.items()}
    return Trained({level: rows for level, rows in joined.items() if len(rows)}, (-GUESSING, 0.0))


def federated_at(noise_multiplier: float, noise: float = 0.02) -> World:
    """The real grid of the federated task, at any noise multiplier.

    The default ``noise`` is the deviation between repetitions in the best fifth of the cells, 0.02.
    """
    mean = federated_trained().at(noise_multiplier)
    return World(unit_square(points.FEDERATED), mean, np.full(len(mean), noise))
