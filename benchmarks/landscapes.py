"""Landscapes of different character to search: a score for every point, at a place drawn anew for each repetition.

Scores lie between 0 and about 1, except that ``diverging`` falls without bound. The observed score is the true one
plus Gaussian noise; what counts is the true score of what a search releases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.stats import uniform

from dphypo.entropy import Entropy
from dphypo.space import Candidates, Grid, Space

Array = npt.NDArray[np.float64]
Score = Callable[[Array], Array]

CANDIDATES = 256


@dataclass(frozen=True)
class Landscape:
    """A family of score functions over the unit cube of a space."""

    name: str
    space: Space
    family: Callable[[np.random.Generator], Score]  # a member, the best score of which is 1 or ``best`` of the grid
    noise: float = 0.0

    @cached_property
    def grid(self) -> Grid | None:
        """Every cell, where the space is small enough to have a grid; else candidates are drawn for each run."""
        return self.space.grid(x=16, y=16) if self.space.names == ("x", "y") else None

    def candidates(self, entropy: Entropy) -> Candidates | Grid:
        return self.grid if self.grid is not None else self.space.candidates(CANDIDATES, entropy)

    def best(self, score: Score) -> float:
        """What a search can reach."""
        return float(score(self.grid.unit).max()) if self.grid is not None else 1.0


SQUARE = Space({"x": uniform(), "y": uniform()})
SIX = Space({f"x{index}": uniform() for index in range(6)})
CONDITIONAL = Space({"optimizer": ["sgd", "adam", "lion"], "rate": uniform()}).when(
    "optimizer", "sgd", {"momentum": uniform()}
)


def _bump(points: Array, centre: Array, width: float) -> Array:
    squares: Array = ((points - centre) ** 2).sum(axis=1)
    return np.exp(-0.5 * squares / width**2)


def _plateau(rng: np.random.Generator) -> Score:
    centre = rng.uniform(0.1, 0.9, 2)
    return lambda points: np.clip(1.5 - 2.5 * np.linalg.norm(points - centre, axis=1), 0.0, 1.0)


def _needle(rng: np.random.Generator) -> Score:
    centre, needle = rng.uniform(0.1, 0.9, (2, 2))
    return lambda points: 0.3 * (1 - ((points - centre) ** 2).sum(axis=1)) + 0.7 * _bump(points, needle, 0.05)


def _ridge(rng: np.random.Generator) -> Score:
    slope, offset, middle = rng.choice([-0.8, 0.8]), rng.uniform(0.2, 0.8), rng.uniform(0.3, 0.7)

    def score(points: Array) -> Array:
        across = points[:, 0] - offset - slope * (points[:, 1] - 0.5)
        along: Array = 0.6 + 0.4 * np.abs(points[:, 1] - middle)
        value: Array = along * np.exp(-np.abs(across) / 0.1)
        return value

    return score


def _two(rng: np.random.Generator) -> Score:
    broad = rng.uniform(0.1, 0.9, 2)
    narrow = (broad + rng.uniform(0.35, 0.65, 2)) % 1
    return lambda points: np.maximum(0.8 * _bump(points, broad, 0.2), _bump(points, narrow, 0.08))


def _six(rng: np.random.Generator) -> Score:
    centre = rng.uniform(0.1, 0.9, 2)
    return lambda points: _bump(points[:, [1, 4]], centre, 0.2)


def _all_six(rng: np.random.Generator) -> Score:
    centre = rng.uniform(0.2, 0.8, 6)
    return lambda points: 1 - ((points - centre) ** 2).sum(axis=1)


def _cliff(rng: np.random.Generator) -> Score:
    edge, slope = rng.uniform(0.25, 0.65), rng.uniform(-0.3, 0.3)

    def score(points: Array) -> Array:
        along = points[:, 0] + slope * points[:, 1] - edge
        beyond = np.exp(-25 * np.maximum(along - 0.3, 0.0))
        return 0.1 + 0.87 * np.where(along < 0.3, 1 / (1 + np.exp(-18 * along)), beyond)

    return score


def _diverging(rng: np.random.Generator) -> Score:
    centre = rng.uniform(0.1, 0.9, 2)
    return lambda points: 1.05 - np.exp(8 * np.linalg.norm(points - centre, axis=1)) / 20


def _conditional(rng: np.random.Generator) -> Score:
    heights, rates, momentum = rng.permutation([0.7, 0.85, 1.0]), rng.uniform(0.1, 0.9, 3), rng.uniform(0.2, 0.8)

    def score(points: Array) -> Array:
        choice = np.minimum((3 * points[:, 0]).astype(int), 2)
        height: Array = heights[choice] - np.where(choice == 0, (points[:, 2] - momentum) ** 2, 0.0)
        value: Array = height * np.exp(-0.5 * ((points[:, 1] - rates[choice]) / 0.12) ** 2)
        return value

    return score


LANDSCAPES = [
    Landscape("flat optimum, noisy", SQUARE, _plateau, 0.2),
    Landscape("needle", SQUARE, _needle),
    Landscape("ridge", SQUARE, _ridge),
    Landscape("ridge, noisy", SQUARE, _ridge, 0.1),
    Landscape("two optima", SQUARE, _two),
    Landscape("two optima, noisy", SQUARE, _two, 0.1),
    Landscape("two of six matter", SIX, _six),
    Landscape("two of six, noisy", SIX, _six, 0.1),
    Landscape("cliff", SQUARE, _cliff),
    Landscape("diverging", SQUARE, _diverging),
    Landscape("conditional, noisy", CONDITIONAL, _conditional, 0.1),
    Landscape("all six, very noisy", SIX, _all_six, 0.3),
]
