"""A set of candidates for one run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dphypo.space.unit import Array, read_only

if TYPE_CHECKING:
    from dphypo.space.space import Space


@dataclass(frozen=True, eq=False, repr=False)
class Candidates:
    """Points of the unit cube, each one a draw from the prior; parameters and features are computed when asked for.

    Weights w with c/n ≤ w ≤ C/n and sum 1 on a fresh set give a draw whose density against the prior lies in [c, C],
    in any dimension: each point is from the prior given everything before it, whatever the points are jointly.

    >>> from dphypo.entropy import Seeded
    >>> from dphypo.space import Space
    >>> candidates = Space({"batch": [64, 128], "optimizer": ["sgd", "adam"]}).candidates(4, Seeded(1))
    >>> len(candidates), candidates.masses.tolist(), candidates.features.shape
    (4, [0.25, 0.25, 0.25, 0.25], (4, 3))
    >>> candidates.params(0)
    {'batch': 64, 'optimizer': 'adam'}
    """

    space: Space
    unit: Array

    def __len__(self) -> int:
        return len(self.unit)

    @cached_property
    def masses(self) -> Array:
        """The prior masses: 1/n each."""
        return read_only(np.full(len(self), 1 / len(self)))

    @cached_property
    def features(self) -> Array:
        """One row per candidate for a surrogate model."""
        return read_only(self.space.features(self.unit))

    def params(self, index: int) -> dict[str, Any]:
        """The parameters of one candidate."""
        return self.space.from_unit(self.unit[[index]])[0]

    def __repr__(self) -> str:
        return f"Candidates({len(self)} points of {self.unit.shape[1]} parameters)"
