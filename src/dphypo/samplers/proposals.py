"""Anything that proposes points, as a search rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy.spatial.distance import cdist

from dphypo import _validate
from dphypo.samplers.history import Array, History, scales

if TYPE_CHECKING:
    from dphypo.space import Candidates, Grid

Params: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Proposals:
    """Weights that fall with the distance to proposed points: any ask/tell optimiser becomes a search rule.

    An optimiser that names one point cannot be followed exactly: the band allows no density above C. What it proposes
    becomes a preference among the candidates instead, the nearest first. If a share u of the prior lies nearer to the
    proposals than a candidate does, its weight is its prior mass times exp(−u/``fraction``). Only the order matters to
    ``Greedy``: it puts C on the nearest prior mass p that the band allows, whatever the fraction. Distance is measured
    over all parameters, each in units of its prior's spread.

    Args:
        propose: called with the history, returns parameters or a list of them; an empty list has no preference. It
            must depend on nothing but the history, or a study that is resumed will not repeat itself. An attribute
            ``history_only = True`` of the function, or beside ``__call__`` of its class, declares that.
        fraction: the prior mass about the proposals over which the weight falls by a factor e.

    >>> from scipy.stats import uniform
    >>> from dphypo.samplers import History
    >>> from dphypo.space import Space
    >>> grid = Space({"x": uniform()}).grid(x=5)
    >>> rule = Proposals(lambda history: {"x": 0.9})
    >>> rule.weights(grid, History.empty(features=1, unit=1)).round(3)
    array([0.004, 0.01 , 0.027, 0.074, 0.2  ])
    """

    propose: Callable[[History], Params | Sequence[Params]]
    fraction: float = 0.2

    def __post_init__(self) -> None:
        _validate.positive(fraction=self.fraction)

    def weights(self, candidates: Candidates | Grid, history: History) -> Array:
        """The prior mass times exp(−u/fraction), u the prior mass nearer to the proposals."""
        proposed = self.propose(history)
        points = [proposed] if isinstance(proposed, Mapping) else list(proposed)
        return near(points, candidates, self.fraction)


def near(points: Sequence[Params], candidates: Candidates | Grid, fraction: float) -> Array:
    """The weights of :class:`Proposals` about these points."""
    masses = np.asarray(candidates.masses, dtype=np.float64)
    if not points:
        return masses.copy()
    scale = scales(candidates.space)
    features = candidates.space.encode(points)
    # Rounded, so that points at equal distance are equal and share their place.
    distances = np.round(cdist(candidates.features * scale, features * scale).min(axis=1), 12)
    order = np.argsort(distances, kind="stable")
    before = np.concatenate([[0.0], np.cumsum(masses[order])])
    nearer = before[np.searchsorted(distances[order], distances, side="left")]
    weights: Array = masses * np.exp(-np.minimum(nearer / fraction, 600.0))
    return weights
