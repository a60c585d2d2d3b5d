"""What a search rule is allowed to know: the finished runs, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

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
