"""A random forest as the search rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dphypo import _validate
from dphypo.samplers.history import Array, History
from dphypo.samplers.observations import collapsed
from dphypo.samplers.units import Units, seen, softmax

if TYPE_CHECKING:
    from dphypo.space import Candidates, Grid

_ROWS = 1000  # distinct points at most, for histories of any length


@dataclass(frozen=True)
class Forest:
    """Algorithm 2 with a random forest in place of the Gaussian process: μ and σ are taken over its trees.

    A forest has no notion of distance, so it suits spaces of many categories and conditions. It needs scikit-learn
    (``pip install dphypo[sklearn]``), imported when weights are first asked for.

    Args:
        tau: weight τ of the spread σ in the score s = μ + τσ.
        beta: inverse temperature β of the softmax over standardised scores.
        trees: how many trees.
        seed: of the forest; together with the history it decides the weights.

    >>> Forest(trees=50)
    Forest(tau=1.0, beta=3.0, trees=50, seed=0)

    References:
        Hutter, Hoos, Leyton-Brown: Sequential model-based optimization for general algorithm configuration, 2011.
    """

    history_only: ClassVar[bool] = True
    tau: float = 1.0
    beta: float = 3.0
    trees: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        _validate.non_negative(tau=self.tau)
        _validate.non_negative(beta=self.beta)
        _validate.integer(at_least=1, trees=self.trees)
        _validate.integer(at_least=0, seed=self.seed)

    def weights(self, candidates: Candidates | Grid, history: History) -> Array:
        """The softmax of μ + τσ times the prior mass; before the first run, the prior."""
        masses = np.asarray(candidates.masses, dtype=np.float64)
        if len(history) == 0:
            return masses.copy()
        values = seen(history, Units.RANKS).values
        rows = collapsed(history.features, values, _ROWS)
        # Rounded, so that the order in which repeats were added up cannot turn a tie between two splits.
        means = np.round(rows.means(values), 12)
        mean, spread = self._posterior(history.features[rows.first], means, rows.counts, candidates.features)
        return softmax(mean + self.tau * spread, self.beta, masses)

    def _posterior(self, features: Array, means: Array, counts: Array, points: Array) -> tuple[Array, Array]:
        from sklearn.ensemble import RandomForestRegressor

        forest = RandomForestRegressor(self.trees, random_state=self.seed, n_jobs=1)
        forest.fit(features, means, sample_weight=counts)
        single = np.ascontiguousarray(points, dtype=np.float32)  # the precision of the trees' thresholds
        predictions = np.stack([tree.predict(single, check_input=False) for tree in forest.estimators_])
        return predictions.mean(axis=0), predictions.std(axis=0)
