"""The posterior that follows a history: extended run by run, refitted and collapsed on a schedule.

What it computes depends on the history alone. The schedule is a function of the history's length and repeats; a
surrogate made for a history at once and one that grew with it agree up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dphypo.samplers.fit import Data, fit, prior_mode
from dphypo.samplers.history import History
from dphypo.samplers.kernel import Array, Hyperparameters
from dphypo.samplers.observations import Rows, checkpoint, collapsed, distinct
from dphypo.samplers.posterior import Posterior
from dphypo.samplers.units import Units, seen

_FEWEST = 3  # runs that a fit needs
_ROWS = 512  # rows that are kept at a checkpoint
_FIT_ROWS = 200  # rows that the marginal likelihood is computed from


@dataclass(repr=False)
class Surrogate:
    """A posterior, the history it holds, and up to which length it may be extended."""

    features: Array
    scores: Array  # up to the last checkpoint, where they chose the hyperparameters and the rows
    failed: npt.NDArray[np.bool_]
    following: int
    row: npt.NDArray[np.intp]
    posterior: Posterior

    def at(self, candidates: Array, values: Array) -> tuple[Array, Array]:
        """Mean and deviation at the candidates, given a value for every run."""
        return self.posterior.at(candidates, Rows(np.arange(len(self.posterior)), self.row).means(values))

    def holds(self, history: History) -> bool:
        """Whether the history begins with what this was made from."""
        size, fixed = len(self.features), len(self.scores)
        return (
            size <= len(history)
            and np.array_equal(self.features, history.features[:size])
            and np.array_equal(self.scores, history.scores[:fixed], equal_nan=True)
            and np.array_equal(self.failed, history.failed[:fixed])
        )

    def extend(self, history: History, candidates: Array) -> None:
        """Each further run becomes a row of its own."""
        self.posterior.look_at(candidates)
        old, rows = len(self.features), len(self.posterior)
        for features in history.features[old:]:
            self.posterior.extend(features)
        self.row = np.concatenate([self.row, np.arange(rows, len(self.posterior))])
        self.features = history.features.copy()


def advanced(
    surrogate: Surrogate | None,
    history: History,
    candidates: Array,
    units: Units,
    hyperparameters: Hyperparameters | None,
) -> Surrogate:
    """The surrogate for this history: the one given, extended, where that is right; else a new one."""
    if surrogate is None or not surrogate.holds(history) or not _may_extend(surrogate, history, hyperparameters):
        surrogate = _fitted(history, units) if hyperparameters is None else _fixed(history, units, hyperparameters)
    surrogate.extend(history, candidates)
    return surrogate


def _may_extend(surrogate: Surrogate, history: History, hyperparameters: Hyperparameters | None) -> bool:
    if len(history) < surrogate.following:
        return True
    if hyperparameters is None:
        return False
    # With fixed hyperparameters the rows alone matter: start afresh only where repeats make it half as large.
    points = int(distinct(history.features)[-1])
    rows = len(surrogate.posterior) + len(history) - len(surrogate.features)
    if points > _ROWS or 2 * points <= rows:
        return False
    surrogate.following = len(history) + _room(points)
    return True


def _room(points: int) -> int:
    """How many more runs cannot fill the rows, nor double them."""
    return max(1, min(max(16, points), _ROWS + 1 - points))


def _fitted(history: History, units: Units) -> Surrogate:
    last, following = checkpoint(history.features, _ROWS)
    head = _first(history, last)
    values = seen(head, units).values
    if last < _FEWEST:
        return _start(head, values, prior_mode(head.features.shape[1]), following)
    rows = collapsed(head.features, values, _FIT_ROWS)
    data = Data(head.features[rows.first], rows.means(values), rows.counts, rows.scatter(values))
    return _start(head, values, fit(data), following)


def _fixed(history: History, units: Units, hyperparameters: Hyperparameters) -> Surrogate:
    points = int(distinct(history.features)[-1])
    if points > _ROWS:
        last, following = checkpoint(history.features, _ROWS)
    else:
        last, following = len(history), len(history) + _room(points)
    head = _first(history, last)
    return _start(head, seen(head, units).values, hyperparameters, following)


def _start(head: History, values: Array, hyperparameters: Hyperparameters, following: int) -> Surrogate:
    rows = collapsed(head.features, values, _ROWS)
    posterior = Posterior(hyperparameters, head.features[rows.first], rows.counts)
    return Surrogate(head.features.copy(), head.scores.copy(), head.failed.copy(), following, rows.row, posterior)


def _first(history: History, size: int) -> History:
    cut = slice(size)
    return History(
        history.features[cut], history.unit[cut], history.scores[cut], history.failed[cut], history.params[cut]
    )
