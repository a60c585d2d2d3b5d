r"""How much each hyperparameter matters to the scores of a published table.

A Gaussian process is fitted to the scores; f is its posterior mean, with the noise of single runs taken out. With every
hyperparameter drawn by itself, uniformly over what the table covers (numbers on a logarithmic axis by their
logarithm), the variance of f splits as in functional analysis of variance (Sobol' 1993; Hutter, Hoos and Leyton-Brown
2014). Of hyperparameter i,

.. math:: \text{main}_i = \frac{Var(E[f | x_i])}{Var(f)}, \qquad
   \text{total}_i = \frac{E[Var(f | x_{-i})]}{Var(f)}.

The main effect is what i does by itself, the total one what it does together with others too; main ≤ total. Both are
sums over a grid of x_i and a Sobol' sequence of the others, the same for all, so nothing is left to chance. Failed runs
have no score and do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import uniform

from dphypo import _validate
from dphypo.entropy import Seeded
from dphypo.plots.table_columns import Column, Floats, Scale, columns
from dphypo.samplers import GaussianProcess, History, Units
from dphypo.space import Candidates, Space
from dphypo.table import Surveyed

FEWEST = 5  # runs with a score
_GRID, _OTHERS, _PAIR, _FOLDS = 25, 128, 32, 5
_MOST_POINTS = 4096  # that are scored at a time


@dataclass(frozen=True, eq=False)
class Effect:
    """What one hyperparameter does to the score.

    Args:
        column: the hyperparameter.
        main: the share of the variance that it explains by itself.
        total: the share that it explains together with others.
        places: where on its axis the mean score was computed.
        means: the mean score there, over all values of the others.
    """

    column: Column
    main: float
    total: float
    places: Floats
    means: Floats


class Surrogate:
    """A Gaussian process on the scores of a table.

    Args:
        table: what a survey has published; at least five runs with a score.
        space: where scales are read from, as for :func:`columns`.
    """

    def __init__(self, table: Surveyed, space: Space | Mapping[str, Any] | None = None) -> None:
        scores = np.array([np.nan if row.score is None else row.score for row in table.rows])
        scored = np.isfinite(scores)
        if scored.sum() < FEWEST:
            raise _validate.fail("table", f"{int(scored.sum())} runs with a score", f"give at least {FEWEST}")
        self.columns = [column for column in columns(table, space) if column.varies]
        if not self.columns:
            raise _validate.fail("table", table, "no hyperparameter differs between its runs")
        self._space = Space({str(place): _prior(column) for place, column in enumerate(self.columns)})
        unit = _open(np.stack([_inside(column) for column in self.columns], axis=1)[scored])
        params = tuple(self._space.from_unit(unit))
        failed = np.zeros(len(unit), dtype=np.bool_)
        self._history = History(self._space.features(unit), unit, scores[scored], failed, params)
        self._rule = GaussianProcess(units=Units.STANDARD)

    def means(self, unit: Floats) -> Floats:
        """f at points of the unit cube."""
        parts = [unit[start : start + _MOST_POINTS] for start in range(0, len(unit), _MOST_POINTS)]
        found = [self._rule.posterior(Candidates(self._space, _open(part)), self._history)[0] for part in parts]
        return np.concatenate(found)

    @cached_property
    def explained(self) -> float:
        """The share of the variance of the scores that is predicted: each fifth of the runs from the others.

        Where it is small, the scores are noise to the fit, and so are the effects.
        """
        scores, fold = self._history.scores, np.arange(len(self._history)) % _FOLDS
        predicted = np.empty(len(scores))
        for one in range(_FOLDS):
            kept = self._without(fold == one)
            predicted[fold == one] = self._rule.posterior(
                Candidates(self._space, self._history.unit[fold == one]), kept
            )[0]
        spread = float(np.var(scores))
        return max(0.0, 1.0 - float(np.mean((scores - predicted) ** 2)) / spread) if spread > 0 else 0.0

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """What every hyperparameter does, the one that matters most first.

        >>> from dphypo.table import Row
        >>> rng = np.random.default_rng(0)
        >>> points = rng.random((40, 2)).tolist()
        >>> table = Surveyed(tuple(Row({"x": x, "nothing": y}, -((x - 0.5) ** 2)) for x, y in points))
        >>> first, second = Surrogate(table).effects
        >>> first.column.name, first.main > 0.95, second.total < 0.05
        ('x', True, True)
        """
        others = self._others(_OTHERS)
        variance = float(np.var(self.means(self._others(1024))))
        found = []
        for place, column in enumerate(self.columns):
            grid = _grid(column)
            points = np.repeat(others[None], len(grid), axis=0)
            points[:, :, place] = grid[:, None]
            values = self.means(points.reshape(-1, points.shape[2])).reshape(len(grid), len(others))
            main, total = float(np.var(values.mean(axis=1))), float(values.var(axis=0).mean())
            scale = max(variance, total)  # both are of the same f: rounding may not make a share larger than one
            shares = (main / scale, total / scale) if scale > _trace(self._history.scores) else (0.0, 0.0)
            found.append(Effect(column, *shares, _places(column, grid), values.mean(axis=1)))
        return tuple(sorted(found, key=lambda effect: -effect.total))

    def surface(self, first: Column, second: Column) -> tuple[Floats, Floats, Floats]:
        """The mean score over two hyperparameters, averaged over the others: places of both, and a row for each of the
        second's."""
        across, up = _grid(first, _PAIR, ends=True), _grid(second, _PAIR, ends=True)
        others = self._others(_PAIR)
        points = np.broadcast_to(others, (len(up), len(across), *others.shape)).copy()
        points[..., self.columns.index(first)] = across[None, :, None]
        points[..., self.columns.index(second)] = up[:, None, None]
        values = self.means(points.reshape(-1, points.shape[-1])).reshape(points.shape[:-1])
        return _places(first, across), _places(second, up), np.asarray(values.mean(axis=2))

    def _without(self, left: npt.NDArray[np.bool_]) -> History:
        """The runs but for some."""
        whole, kept = self._history, ~left
        params = tuple(one for one, keep in zip(whole.params, kept, strict=True) if keep)
        return History(whole.features[kept], whole.unit[kept], whole.scores[kept], whole.failed[kept], params)

    def _others(self, count: int) -> Floats:
        """Points that fill the unit cube evenly; the same every time."""
        return np.array(self._space.candidates(count, Seeded(0).child("effects")).unit)


def _open(unit: Floats) -> Floats:
    """Points of the unit cube, off its faces."""
    return np.clip(unit, 1e-9, 1 - 1e-9)


def _prior(column: Column) -> Any:
    return list(column.categories) if column.scale is Scale.CATEGORY else uniform()


def _inside(column: Column) -> Floats:
    """The runs of a column as coordinates of the space."""
    if column.scale is Scale.CATEGORY:
        return np.asarray((column.places + 0.5) / len(column.categories))
    return column.to_unit()


def _grid(column: Column, count: int = _GRID, *, ends: bool = False) -> Floats:
    """Coordinates along a column: the middle of every category, or so many evenly spaced ones, with the ends or not."""
    if ends and column.scale is not Scale.CATEGORY:
        return np.linspace(0.0, 1.0, count)
    size = len(column.categories) if column.scale is Scale.CATEGORY else count
    return np.asarray((np.arange(size) + 0.5) / size)


def _places(column: Column, grid: Floats) -> Floats:
    return np.arange(len(grid), dtype=np.float64) if column.scale is Scale.CATEGORY else column.from_unit(grid)


def _trace(scores: Floats) -> float:
    """A variance that is rounding and nothing else."""
    return 1e-10 * float(np.var(scores)) + 1e-300
