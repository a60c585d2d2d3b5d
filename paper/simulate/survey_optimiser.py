"""The Gaussian process of many surveys at once, on the cells of one grid; it is free to go anywhere: there is no band.

Matérn-5/2 with a lengthscale for each feature. Amplitude is profiled out; lengthscales and noise are the most probable
ones of a small grid under a weak prior, found coordinate by coordinate. Every array has the survey as its first axis.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from paper.data.points import Floats

Cells = npt.NDArray[np.intp]

LENGTHSCALES = (0.1, 0.2, 0.4, 0.8, 1.6)
NOISES = (0.003, 0.03, 0.1, 0.3)  # relative to the variance of the signal
REFIT = 1.1  # hyperparameters are fitted again when the survey has grown by this factor


@dataclass(frozen=True)
class Optimiser:
    """How a survey goes on.

    Args:
        start: how many runs of an even design come first.
        tau: weight of the deviation in μ + τσ; None for expected improvement over the best posterior mean so far.
        ranks: whether the process sees normal quantiles of ranks, or the scores themselves.
    """

    start: int = 10
    tau: float | None = 2.0
    ranks: bool = False


@dataclass(eq=False)
class Surveys:
    """The history of n surveys on cells with the given features (cells, d), and the posterior of each."""

    features: Floats
    optimiser: Optimiser
    count: int
    cells: Cells = field(init=False)
    scores: Floats = field(init=False)
    _fitted: int = field(default=0, init=False)
    _scales: Floats = field(init=False)
    _noise: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.cells, self.scores = np.empty((self.count, 0), dtype=np.intp), np.empty((self.count, 0))
        self._scales, self._noise = np.empty((self.count, self.features.shape[1])), np.empty(self.count)

    def observe(self, cells: Cells, scores: Floats) -> None:
        """One more run in every survey."""
        self.cells = np.concatenate([self.cells, cells[:, None]], axis=1)
        self.scores = np.concatenate([self.scores, scores[:, None]], axis=1)

    def next_group(self, size: int) -> list[Cells]:
        """Where each survey goes with its next ``size`` runs, each taken to give its posterior mean until it ends."""
        known, group = (self.cells, self.scores), []
        for _ in range(size):
            group.append(self.next_cells())
            if len(group) < size:
                expected = np.take_along_axis(self.posterior()[0], group[-1][:, None], axis=1)[:, 0]
                self.observe(group[-1], self._centre + self._spread * expected)
        self.cells, self.scores = known
        return group

    def next_cells(self) -> Cells:
        """Where each survey goes next."""
        mean, deviation = self.posterior()
        if self.optimiser.tau is not None:
            return np.asarray((mean + self.optimiser.tau * deviation).argmax(axis=1))
        reached = np.take_along_axis(mean, self.cells, axis=1).max(axis=1, keepdims=True)
        z = (mean - reached) / deviation
        gain = deviation * (z * ndtr(z) + np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi))
        return np.asarray(gain.argmax(axis=1))

    def best_mean(self, visited: bool = False) -> Cells:
        """The cell of the best posterior mean, among all or among those visited."""
        mean, _ = self.posterior()
        if not visited:
            return np.asarray(mean.argmax(axis=1))
        place = np.take_along_axis(mean, self.cells, axis=1).argmax(axis=1)
        return np.asarray(self.cells[np.arange(self.count), place])

    def best_score(self) -> Cells:
        """The cell of the best score."""
        return np.asarray(self.cells[np.arange(self.count), self.scores.argmax(axis=1)])

    def posterior(self) -> tuple[Floats, Floats]:
        """Means and deviations at all cells."""
        values, t = self._values, self.scores.shape[1]
        if t >= REFIT * self._fitted:
            self._fit(values)
        places = self.features[self.cells]
        covariance = _matern(places, places, self._scales) + self._noise[:, None, None] * np.eye(t)
        cross = _matern(places, np.broadcast_to(self.features, (self.count, *self.features.shape)), self._scales)
        solved = np.linalg.solve(covariance, np.concatenate([values[:, :, None], cross], axis=2))
        mean = np.einsum("ntc,nt->nc", cross, solved[:, :, 0])
        amplitude = np.maximum(np.einsum("nt,nt->n", values, solved[:, :, 0]) / t, 1e-6)
        left = np.maximum(1.0 - np.einsum("ntc,ntc->nc", cross, solved[:, :, 1:]), 1e-12)
        return mean, np.sqrt(left * amplitude[:, None])

    @property
    def _values(self) -> Floats:
        if self.optimiser.ranks:
            return np.asarray(ndtri((rankdata(self.scores, axis=1) - 0.5) / self.scores.shape[1]))
        return np.asarray((self.scores - self._centre[:, None]) / self._spread[:, None])

    @property
    def _centre(self) -> Floats:
        return np.asarray(self.scores.mean(axis=1))

    @property
    def _spread(self) -> Floats:
        return np.asarray(np.maximum(self.scores.std(axis=1), 1e-9))

    def _fit(self, values: Floats) -> None:
        """Isotropic first, then two rounds over the features, each with all noises."""
        places = self.features[self.cells]
        best = np.full(self.count, -np.inf)
        d = self.features.shape[1]
        trials: list[tuple[int | None, float]] = [(None, scale) for scale in LENGTHSCALES]
        trials += [(axis, scale) for axis in (*range(d), *range(d)) for scale in LENGTHSCALES]
        for axis, scale in trials:
            scales = np.full_like(self._scales, scale) if axis is None else self._scales.copy()
            if axis is not None:
                scales[:, axis] = scale
            correlation = _matern(places, places, scales)
            for noise in NOISES:
                likely = _likelihood(correlation, noise, values) - 0.5 * (np.log(scales / 0.3) ** 2 / 0.64).sum(axis=1)
                better = likely > best
                best[better] = likely[better]
                self._scales[better], self._noise[better] = scales[better], noise
        self._fitted = values.shape[1]


def _matern(left: Floats, right: Floats, scales: Floats) -> Floats:
    """Correlations of points (n, s, d) and (n, t, d) with lengthscales (n, d)."""
    one, other = left / scales[:, None], right / scales[:, None]
    squares = (one**2).sum(axis=2)[:, :, None] + (other**2).sum(axis=2)[:, None] - 2 * one @ other.transpose(0, 2, 1)
    radii = np.sqrt(5 * np.maximum(squares, 0.0))  # Matérn-5/2, without the library: a machine with a GPU may lack it
    return np.asarray((1 + radii + radii**2 / 3) * np.exp(-radii))


def _likelihood(correlation: Floats, noise: float, values: Floats) -> Floats:
    """Log marginal likelihood with the amplitude profiled out, up to a constant."""
    t = values.shape[1]
    root = np.linalg.cholesky(correlation + noise * np.eye(t))
    half = np.linalg.solve(root, values[:, :, None])[:, :, 0]
    amplitude = np.maximum(np.square(half).sum(axis=1) / t, 1e-12)
    return np.asarray(-np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1) - 0.5 * t * np.log(amplitude))


def even(features: Floats, number: int, shift: Floats) -> Cells:
    """Run ``number`` of an even design in the unit cube: the golden-ratio sequence, shifted (n, d) for each survey."""
    d = features.shape[1]
    golden = 2.0
    for _ in range(30):  # the root of x^(d+1) = x + 1
        golden = (1 + golden) ** (1 / (d + 1))
    place = (shift + number / golden ** np.arange(1, d + 1)) % 1
    return np.asarray(((features[None] - place[:, None]) ** 2).sum(axis=2).argmin(axis=1))
