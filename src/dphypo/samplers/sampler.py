"""A search rule, what it is allowed to know (the finished runs and nothing else), and how a surrogate sees them.

Scores are put into units on their way into a surrogate and out of it, as weights. Repeats of a point are one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from dphypo.band import Band

if TYPE_CHECKING:
    from dphypo.space import Candidates, Grid, Space


@runtime_checkable
class Sampler(Protocol):
    """A rule that turns the finished runs into weights on candidates: π^(j+1) of Framework 1, before projection.

    Any rule is allowed. Whatever it returns, the band is enforced after it, in one place, so a rule cannot break
    privacy; weights that are not finite, are negative, or are all zero are refused before anything is drawn.

    A rule is a frozen dataclass: configuration is fields, and randomness inside it comes only from a ``seed`` field
    and the arguments. It is never told T, how many runs remain, or the time.

    A rule whose weights depend on nothing else may say so with ``history_only = True`` in the class that defines
    ``weights``; subclasses do not inherit it. Inside a band the rule then costs less (Theorem H), and the certificate
    names the class whose author has said so.
    """

    def weights(self, candidates: Candidates | Grid, history: History) -> npt.NDArray[np.float64]:
        """(n,) non-negative finite numbers, one a candidate and not all zero: how much mass the rule wants there.

        They are relative masses, not densities: the prior itself is ``candidates.masses``.
        """


@dataclass(frozen=True)
class Uniform:
    """Draw every run from the prior: Algorithm 1 of the paper, private random search.

    It needs no band: with ``Band(1, 1)`` it costs what Papernot and Steinke's random search costs.
    """

    history_only: ClassVar[bool] = True

    def weights(self, candidates: Candidates | Grid, history: History) -> npt.NDArray[np.float64]:
        """The prior masses themselves, whatever happened before."""
        return np.asarray(candidates.masses, dtype=np.float64)


def default_sampler(band: Band) -> Sampler:
    """A Gaussian process where the band leaves it room, else draws from the prior.

    ``benchmarks/rules.py`` has the evidence: with the greedy projection it is the best of the rules there.
    """
    if band.C == 1:
        return Uniform()
    from dphypo.samplers.gaussian_process import GaussianProcess

    return GaussianProcess()


Array = npt.NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class History:
    """The finished runs of a search, in the order in which their λ were drawn.

    A sampler is handed this and the candidates. It holds neither T, nor how many runs remain, nor a clock, nor any
    identifier of a run. **Everything in it is secret**: it stays on the curator's side, and ``repr`` shows nothing.

    Args:
        features: (t, k) numbers for a surrogate, one row a run.
        unit: (t, d) the same λ in the unit cube, where the prior is uniform.
        scores: (t,) larger is better, whatever the direction of the study; nan where the run failed.
        failed: (t,) whether the run failed.
        params: the hyperparameters themselves, as plain values.

    >>> history = History.empty(features=3, unit=2)
    >>> len(history), history.features.shape, history.unit.shape
    (0, (0, 3), (0, 2))
    >>> history
    History(secret)
    """

    features: Array
    unit: Array
    scores: Array
    failed: npt.NDArray[np.bool_]
    params: Sequence[Mapping[str, Any]]

    def __post_init__(self) -> None:
        length = len(self.scores)
        if self.features.ndim != 2 or self.unit.ndim != 2 or self.scores.ndim != 1 or self.failed.ndim != 1:
            raise ValueError("a History takes features (t, k), unit (t, d), scores (t,) and failed (t,)")
        if not len(self.features) == len(self.unit) == len(self.failed) == len(self.params) == length:
            raise ValueError("the arrays of a History must have one row for every run")
        if not np.array_equal(np.isfinite(self.scores), ~self.failed):
            raise ValueError("the score of a failed run is nan, and every other score is finite")

    @classmethod
    def empty(cls, *, features: int, unit: int) -> History:
        """The history before the first run, for a space with that many columns."""
        none = np.empty(0)
        return cls(np.empty((0, features)), np.empty((0, unit)), none, np.empty(0, dtype=np.bool_), ())

    def first(self, size: int) -> History:
        """The history as it was after the first ``size`` of these runs."""
        cut = slice(size)
        return History(self.features[cut], self.unit[cut], self.scores[cut], self.failed[cut], self.params[cut])

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        return "History(secret)"


Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Rows:
    """Distinct points of a history: where each stands first, and the row of each observation, −1 if it was left out."""

    first: Indices
    row: Indices

    @property
    def counts(self) -> Array:
        """How many observations each row stands for."""
        return np.bincount(self.row[self.row >= 0], minlength=len(self.first)).astype(np.float64)

    def means(self, scores: Array) -> Array:
        """The mean score of each row."""
        kept = self.row >= 0
        return np.bincount(self.row[kept], weights=scores[kept], minlength=len(self.first)) / self.counts

    def scatter(self, scores: Array) -> float:
        """Σ (score − mean of its row)² over the observations kept."""
        kept = self.row >= 0
        residual = scores[kept] - self.means(scores)[self.row[kept]]
        return float(residual @ residual)

    def only(self, kept: Indices) -> Rows:
        """These rows, in this order; the observations of others are left out."""
        renamed = np.full(len(self.first), -1, dtype=np.intp)
        renamed[kept] = np.arange(len(kept))
        return Rows(self.first[kept], np.where(self.row >= 0, renamed[self.row], -1))


def distinct(features: Array) -> Rows:
    """Repeats of a point made one row, in the order of the features."""
    _, first, row = np.unique(features, axis=0, return_index=True, return_inverse=True)
    return Rows(first, row.ravel())


def collapsed(features: Array, scores: Array, limit: int) -> Rows:
    """Repeats of a point made one row; of more than ``limit`` rows, the best half and a fair sample of the rest.

    The sample is every m-th row by score. The rule does not depend on the order of the history.
    """
    rows = distinct(features)
    if len(rows.first) <= limit:
        return rows
    ranked = np.argsort(-rows.means(scores), kind="stable")
    best, rest = ranked[: limit // 2], ranked[limit // 2 :]
    spaced = np.linspace(0, len(rest) - 1, limit - len(best)).round().astype(np.intp)
    return rows.only(np.sort(np.concatenate([best, rest[spaced]])))


# Exponents stop here, so that no weight becomes zero or subnormal and the order of the scores is kept above it.
_LEAST = -600.0
# Scores closer than this, in their own units, are the same: what is left below it is rounding, which depends on how a
# posterior was computed and must not decide between candidates.
_DIGITS = 9


class Units(Enum):
    """In what units the scores enter the softmax exp(β s)."""

    RAW = "the scores' own units, as Algorithm 2 is written"
    STANDARD = "standard deviations of the scores seen so far"
    RANKS = "normal quantiles of the scores' ranks: any increasing function of the score gives the same search"


def lowest(history: History) -> Array:
    """The scores, a failed run below them all: for rules that look at their order alone."""
    return np.where(history.failed, -np.inf, history.scores)


def seen(history: History, units: Units) -> tuple[Array, float, float]:
    """What a surrogate is fitted to: values of mean 0 and deviation 1 (or all 0), and the scores' centre and deviation.

    A failed run counts as the worst score seen (0 when every run failed), among ranks as the lowest.
    """
    if units is Units.RANKS:
        scores = lowest(history)
        order = np.sort(scores)
        below = np.searchsorted(order, scores, side="left") + np.searchsorted(order, scores, side="right")
        scores = ndtri(below / (2 * len(scores)))  # half of those equal count as below: a plateau stays one
    elif history.failed.all():
        scores = np.zeros(len(history))
    else:
        scores = np.where(history.failed, history.scores[~history.failed].min(), history.scores)
    # Scores may be as large as floats go (a diverged loss): squares are taken of scaled numbers only.
    scale = float(np.abs(scores).max(initial=0.0)) or 1.0
    relative = scores / scale
    centre, deviation = float(relative.mean()), float(relative.std())
    if not deviation > 1e-12:
        return np.zeros(len(scores)), centre * scale, 1.0
    return (relative - centre) / deviation, centre * scale, deviation * scale


def softmax(scores: Array, beta: float, masses: Array) -> Array:
    """Algorithm 2's π ∝ exp(β s), as relative masses: times the prior masses, and with the largest exponent 0."""
    exponent = beta * np.round(scores - scores.max(), _DIGITS)
    return np.asarray(masses * np.exp(np.maximum(exponent, _LEAST)))


def scales(space: Space) -> Array:
    """What each feature column is multiplied by, so that a parameter adds 2 to the mean squared distance of two draws.

    A number is uniform on (0, 1) as a feature: its squared distance has mean 1/6. A category of k equally likely
    choices is k columns, one of them 1: two draws differ with probability 1 − 1/k, and then by 2.
    """
    dimensions = [parameter.dimension for parameter in space.parameters]
    squares = [12.0 if one.ordered else 1.0 / max(1.0 - 1.0 / one.width, 0.5) for one in dimensions]
    return np.asarray(np.sqrt(np.repeat(squares, [one.width for one in dimensions])))
