"""A landscape: what full and cheaper runs score all over a space; and what a design is expected to reach on it.

One visit draws cell j with its prior mass W_j and shows a score with density φ_j. The best of T visits shows the score
q with density f′(F(q)) F′(q), f the probability generating function of T and F the law of one visit's score, and is
cell i with the share W_i φ_i(q) / F′(q) of it. So P[cell i wins] = W_i ∫ g(Σ_j W_j P[score_j > q]) φ_i(q) dq with
g(v) = f′(1 − v): two matrix products for any number of priors at once, and no simulation.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from dphypo import _files, _validate
from dphypo.laws import Law
from dphypo.planning.designs import PlannedPart, Spent
from dphypo.space.candidates import normal

Floats = npt.NDArray[np.float64]

_WIDTH = 0.25  # of the weights that neighbouring noise multipliers get, in log σ
BEYOND = 1.05  # how far outside the trained noise multipliers the fit is trusted

# What comes with the library, and what it is: its files hold numbers alone.
ABOUT = {
    "mnist": "accuracy on MNIST of DP-SGD with batches of 256 of 60 000 records and 2 344 steps, over the learning "
    "rate and the clipping norm",
    "cifar10": "accuracy on CIFAR-10 of DP-SGD with batches of 256 of 50 000 records and 1 954 steps, over the "
    "learning rate and the clipping norm",
    "federated": "minus the test loss on Fashion-MNIST (scores are minus a loss) of federated training with 300 of "
    "3 000 clients expected a round and 100 rounds, over the server's and the clients' learning rates",
}
NAMES = tuple(ABOUT)


# The arrays of a file, and how many dimensions each has.
_COLUMNS = dict.fromkeys(("limits", "fractions", "noise_multipliers", "repetitions", "shape"), 1)
_COLUMNS |= {"scores": 2, "score_noise": 0}
_LARGEST = 2**26  # bytes of one array
_HUGE = 1e100  # no sum or difference of scores overflows


@dataclass(frozen=True, eq=False, repr=False)
class Landscape:
    """Scores of runs of several lengths and noise multipliers on a grid of equal cells. **It must be public.**

    Args:
        shape: the number of cells along each coordinate of the unit cube in which the prior is uniform.
        scores: by the fraction of a full run's steps (1 is a full run) and the noise multiplier: the mean score of
            each cell, the first coordinate varying slowest; larger is better.
        score_noise: the standard deviation of the noise of one shown score.
        repetitions: in the same order, how many runs a mean is of; one if left out.
        limits: the smallest and the largest score that there can be.
        name: what to call it.
        about: what was trained and scored, in public words; shown beside what is read from it.

    >>> toy = Landscape((4,), {0.1: {1.0: [0, 1, 2, 1], 2.0: [0, 0, 1, 0]}, 1.0: {1.0: [0, 2, 3, 2]}}, 0.1)
    >>> toy.mean(0.1, 1.0).round(2).tolist()
    [0.0, 1.0, 2.0, 1.0]
    >>> toy.mean(1.0, 3.0) is None  # not known at that noise
    True
    """

    shape: tuple[int, ...]
    scores: Mapping[float, Mapping[float, npt.ArrayLike]]
    score_noise: float
    repetitions: Mapping[float, Mapping[float, int]] = field(default_factory=dict)
    limits: tuple[float, float] = (-math.inf, math.inf)
    name: str = "a landscape"
    about: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.shape, Sequence):
            raise _validate.fail("shape", self.shape, "give the number of cells along each axis, such as (16, 20)")
        shape = tuple(_validate.integer(at_least=1, shape=cells) for cells in self.shape)
        _validate.within(1 / _HUGE, _HUGE, score_noise=self.score_noise)
        if not isinstance(self.about, str):
            raise _validate.fail("about", self.about, "say in a few public words what was trained and scored")
        low, high = self.limits
        if not low < high:
            raise _validate.fail("limits", self.limits, "give the smallest and the largest score, in this order")
        _validate.mapping(scores=self.scores)
        _validate.mapping(repetitions=self.repetitions)
        if 1.0 not in self.scores:
            raise _validate.fail("scores", sorted(self.scores), "give the scores of full runs, under the fraction 1.0")
        read: dict[float, dict[float, Floats]] = {}
        for fraction, levels in sorted(self.scores.items()):
            fraction = _validate.within(0.0, 1.0, closed="right", fraction=fraction)
            if not isinstance(levels, Mapping) or not levels:
                raise _validate.fail("scores", fraction, "give at least one noise multiplier for every fraction")
            read[fraction] = {
                _validate.positive(noise_multiplier=level): _validate.vector(
                    length=math.prod(shape), **{f"scores[{fraction:g}][{level:g}]": means}
                )
                for level, means in sorted(levels.items())
            }
        if max(float(abs(means).max()) for levels in read.values() for means in levels.values()) > _HUGE:
            raise _validate.fail("scores", "(not shown)", f"give scores between {-_HUGE:g} and {_HUGE:g}")
        for fraction, levels in self.repetitions.items():
            for level, count in levels.items():
                _validate.integer(at_least=1, **{f"repetitions[{fraction:g}][{level:g}]": count})
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "scores", read)

    @classmethod
    def load(cls, name: str) -> Landscape:
        """A landscape that comes with the library, of real trainings of a small convolutional network with DP-SGD.

        >>> Landscape.load("mnist")
        <landscape mnist: 16 x 20 cells, fractions 0.01, 0.03, 0.1, 0.3, 1>
        """
        if name not in NAMES:
            raise _validate.fail("name", name, f"give one of {', '.join(NAMES)}, or make a Landscape of your own")
        with (files("dphypo.planning") / "landscapes" / f"{name}.npz").open("rb") as file, np.load(file) as content:
            return cls.from_arrays(name, content, ABOUT[name])

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Landscape:
        """A landscape from an ``.npz`` file, which need not be trusted; :meth:`from_arrays` says what it holds."""
        path = Path(path)
        if not path.is_file() or not zipfile.is_zipfile(path):
            names = ", ".join(NAMES)
            raise _validate.fail("landscape", str(path), f"give one of {names}, or the path of an .npz file")

        def parse(data: bytes) -> Landscape:
            with np.load(io.BytesIO(data), allow_pickle=False) as content:
                return cls.from_arrays(path.stem, content)

        return _files.parsed(parse, path, "landscape", wrong="it is not a landscape", most=_files.MOST_TABLE_BYTES)

    @classmethod
    def from_arrays(cls, name: str, content: Mapping[str, npt.NDArray[Any]], about: str = "") -> Landscape:
        """A landscape from the arrays of its file: rows of (fraction, noise multiplier), scores as whole numbers from
        0 to 65 535 between the limits.

        ``content`` is a mapping, or what ``numpy.load`` gives of a file that need not be trusted.
        """
        found = {column: _column(content, column) for column in _COLUMNS}
        rows = [found[column] for column in ("fractions", "noise_multipliers", "repetitions", "scores")]
        if any(len(row) != len(rows[0]) for row in rows) or found["limits"].shape != (2,):
            raise ValueError("the arrays of the landscape have different lengths, or there are not two limits")
        low, high = (float(limit) for limit in found["limits"])
        scores: dict[float, dict[float, Floats]] = {}
        repetitions: dict[float, dict[float, int]] = {}
        for fraction, level, count, row in zip(*rows, strict=True):
            scores.setdefault(float(fraction), {})[float(level)] = low + (high - low) * row / 65535.0
            repetitions.setdefault(float(fraction), {})[float(level)] = int(count)
        shape = tuple(int(cells) for cells in found["shape"])
        return cls(shape, scores, float(found["score_noise"]), repetitions, (low, high), name, about)

    def __len__(self) -> int:
        return math.prod(self.shape)

    @property
    def fractions(self) -> tuple[float, ...]:
        """The lengths of run that are known, in fractions of a full one, the full one last."""
        return tuple(self.scores)

    def mean(self, fraction: float, noise_multiplier: float) -> Floats | None:
        """The mean score of each cell at any noise multiplier: a local quadratic in log σ through what was trained.

        Trainings are weighted by exp(−(log σ − log σ′)²/2w²) times their number of repetitions, so that levels trained
        once are no noisier, and their best cell no luckier, than others; w = 0.25, or more where levels are far apart.
        None for a σ that lies more than 5 % outside the trained ones.
        """
        if fraction not in self.scores:
            fractions = ", ".join(f"{one:g}" for one in self.fractions)
            raise _validate.fail("fraction", fraction, f"{self.name} has scores at the fractions {fractions}")
        known = self.scores[fraction]
        levels, values = np.array(list(known)), np.stack([np.asarray(means) for means in known.values()])
        if not levels[0] / BEYOND <= _validate.positive(noise_multiplier=noise_multiplier) <= levels[-1] * BEYOND:
            return None
        counts = self.repetitions.get(fraction, {})
        fitted = local_quadratic(levels, values, [counts.get(float(level), 1) for level in levels], noise_multiplier)
        return np.asarray(np.clip(fitted, *self.limits))

    def priors(self, spread: float, floor: float) -> Floats:
        """Row i: the prior of :class:`dphypo.PriorAround` if cell i is released, the kernels at the cells' middles."""
        spread = _validate.within(0.0, 1.0, closed="right", spread=spread)
        floor = _validate.within(0.0, 1.0, closed="right", floor=floor)
        near: npt.NDArray[np.floating[Any]] = np.ones((1, 1))
        for cells in self.shape:
            ends = np.arange(cells + 1) / cells
            near = np.kron(near, np.diff(normal((ends[1:, None] + ends[:-1, None]) / 2, spread).cdf(ends)))
        return np.asarray(floor / len(self) + (1.0 - floor) * near)

    def __repr__(self) -> str:
        cells = " x ".join(map(str, self.shape))
        return f"<landscape {self.name}: {cells} cells, fractions {', '.join(f'{one:g}' for one in self.fractions)}>"


def _column(content: Mapping[str, npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
    if isinstance(content, np.lib.npyio.NpzFile) and content.zip is not None:
        array = _files.read_array(content.zip, name, limit=_LARGEST)
    elif name in content:
        array = np.asarray(content[name])
    else:
        raise ValueError(f"the landscape has no array {name!r}: it needs {', '.join(_COLUMNS)}")
    if array.ndim != _COLUMNS[name] or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        raise ValueError(f"the array {name!r} of the landscape must hold finite numbers in {_COLUMNS[name]} dimensions")
    return array


def local_quadratic(levels: Floats, values: Floats, counts: Sequence[int], noise_multiplier: float) -> Floats:
    """The mean of each cell at a noise multiplier, from means (levels, cells), each of ``counts`` trainings."""
    distance = np.log(levels / noise_multiplier)
    degree = min(2, len(levels) - 1)
    width = max(_WIDTH, float(np.sort(abs(distance))[degree]) / 3.0)  # the levels that a quadratic needs must count
    weight = np.sqrt(np.asarray(counts)) * np.exp(-0.25 * (distance / width) ** 2)
    design = distance[:, None] ** np.arange(degree + 1) * weight[:, None]
    return np.asarray(np.linalg.lstsq(design, values * weight[:, None], rcond=None)[0][0])


_REACH = 9.0  # standard deviations beyond the means: less than 1e-18 lies outside
_STEP = 0.2  # standard deviations: a sum of smooth functions of that width is exact to many digits
_PIECE = 1_000_000  # of cells times scores held at once
_LEAST = 1e-9  # of the range of the means: less noise ranks cells as no noise does


def winners(priors: npt.ArrayLike, means: npt.ArrayLike, noise: float | Floats, law: Law) -> Floats:
    """The probability of each of n cells to win a uniform search, for each row of an (m, n) array of ``priors``.

    ``means`` are the mean scores of the cells, larger being better; ``noise`` is the standard deviation of one shown
    score, for all cells or for each. A search with T = 0 has no winner: what is returned is given that T ≥ 1.

    >>> from dphypo.laws import Pmf
    >>> winners([[0.5, 0.5]], [0.0, 9.0], 1.0, Pmf({2: 1.0})).round(6).tolist()  # the worse cell twice: 1/4
    [[0.25, 0.75]]
    """
    masses, mean = np.asarray(priors, dtype=np.float64), np.asarray(means, dtype=np.float64)
    spread = np.maximum(np.broadcast_to(np.asarray(noise, dtype=np.float64), mean.shape), _LEAST * np.ptp(mean))
    scores = _scores_near(mean - mean.min(), spread) + mean.min()
    found = np.zeros_like(masses)
    for part in np.array_split(scores, 1 + len(scores) * max(masses.shape) // _PIECE):
        z = (part - mean[:, None]) / spread[:, None]
        factor = np.exp(law.log_g(np.clip(masses @ ndtr(-z), 0.0, 1.0)))
        found += masses * (factor @ np.exp(-0.5 * z**2).T) / spread
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def _scores_near(mean: Floats, spread: Floats) -> Floats:
    """The scores of a uniform grid that some cell may show. Between distant means nobody scores: nothing is computed.

    Their number is at most 2 · _REACH / _STEP for each cell and each multiple of the smallest spread.
    """
    step = _STEP * float(spread.min())
    first, last = np.floor((mean - _REACH * spread) / step), np.ceil((mean + _REACH * spread) / step)
    order = np.argsort(first)
    ends = np.maximum.accumulate(last[order])
    starts = np.concatenate([first[order][:1], np.maximum(first[order][1:], ends[:-1] + 1)])
    return step * np.concatenate([np.arange(a, b + 1) for a, b in zip(starts, ends, strict=True) if a <= b])


def expected_score(spent: Spent, landscape: Landscape) -> float | None:
    """The expected mean score of what is released; None where the landscape has no runs of that length or noise.

    Designs whose search rule adapts are underestimated. The λ of a survey are taken as drawn from the prior and its
    best score is followed, where the Gaussian process of :func:`dphypo.tune` does better. A band counts as uniform
    search with its noise. A search with T = 0 has no release: the score is given that T ≥ 1. Without tuning, the middle
    of the space is run.
    """
    full = landscape.mean(1.0, spent.noise_multiplier)
    if full is None:
        return None
    first, last = spent.parts[0], spent.parts[-1]
    if first is last and first.published:
        return float(_middle(landscape) @ full)
    seen = full if first is last else _seen(landscape, first)
    if seen is None:
        return None
    flat = np.full((1, len(landscape)), 1.0 / len(landscape))
    (won,) = winners(flat, seen, landscape.score_noise, first.law)
    if first is not last and not last.published:
        assert first.around is not None
        assert isinstance(first.around.spread, (int, float))
        priors = landscape.priors(first.around.spread, first.around.floor)
        won = won @ winners(priors, full, landscape.score_noise, last.law)
    return float(won @ full)


def _seen(landscape: Landscape, part: PlannedPart) -> Floats | None:
    """The mean scores of the runs of a part that is not the last."""
    if part.fraction not in landscape.fractions:
        return None
    return landscape.mean(part.fraction, part.noise_multiplier / math.sqrt(part.fraction))


def _middle(landscape: Landscape) -> Floats:
    """The cells about the middle of the space, equally likely."""
    masses: Floats = np.ones(1)
    for cells in landscape.shape:
        axis = np.zeros(cells)
        axis[[(cells - 1) // 2, cells // 2]] = 1.0
        masses = np.asarray(np.kron(masses, axis / axis.sum()))
    return masses
