"""DP-SGD without data, to plan with: what a run costs, as a mechanism that trains nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dp_accounting

from dphypo.mechanisms import DpSgd, Plain, Saver, Split


@dataclass(frozen=True)
class AsMechanism:
    """A run of DP-SGD as its privacy sees it. It can be planned with, and not run.

    >>> run = AsMechanism(DpSgd.of(records=60_000, batch_size=256, epochs=10, noise_multiplier=0.63))
    >>> run.at(fraction=0.1, match=True).run.steps
    235
    """

    run: DpSgd
    relation: Any = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    score_event: Any = None
    split: Split = Split.DISJOINT
    monotone: frozenset[str] = frozenset()
    saver: Saver = field(default_factory=Plain)

    @property
    def event(self) -> dp_accounting.DpEvent:
        """The event of a run."""
        return self.run.event

    def at(self, **changes: Any) -> AsMechanism:
        """The same training with other noise, or cut short."""
        return AsMechanism(self.run.at(**changes), self.relation, self.score_event, self.split)

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Any:
        raise NotImplementedError("there is nothing to train: this mechanism only states what a run costs")
