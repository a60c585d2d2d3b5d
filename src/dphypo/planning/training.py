"""DP-SGD without a model: what a run costs, for designs of a search that will be run elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from dphypo import _validate
from dphypo.mechanisms import Plain, Split

if TYPE_CHECKING:
    import dp_accounting


@dataclass(frozen=True, kw_only=True)
class Training:
    """A run of DP-SGD as far as its privacy goes: a mechanism that can be accounted for, not run.

    Args:
        records: the number of private records, as a public constant.
        batch_size: the expected size of a Poisson batch.
        epochs: of a full run.
        noise_multiplier: standard deviation of the noise over the clipping norm.
        fraction: how much of its epochs a run trains.

    >>> Training(records=60_000, batch_size=256, epochs=10).at(fraction=0.1).steps
    235
    """

    records: int
    batch_size: int
    epochs: float
    noise_multiplier: float = 1.0
    fraction: float = 1.0

    def __post_init__(self) -> None:
        _validate.integer(at_least=1, batch_size=self.batch_size)
        if self.batch_size > _validate.integer(at_least=1, records=self.records):
            raise _validate.fail("batch_size", self.batch_size, f"it must be at most the {self.records} records")
        _validate.positive(epochs=self.epochs)
        _validate.positive(noise_multiplier=self.noise_multiplier)
        _validate.within(0.0, 1.0, closed="right", fraction=self.fraction)

    @property
    def steps(self) -> int:
        """The number of steps of a run."""
        return math.ceil(self.epochs * self.fraction * self.records / self.batch_size)

    @property
    def event(self) -> dp_accounting.DpEvent:
        """So many Poisson-sampled Gaussian mechanisms."""
        import dp_accounting

        step = dp_accounting.GaussianDpEvent(self.noise_multiplier)
        sampled = dp_accounting.PoissonSampledDpEvent(self.batch_size / self.records, step)
        return dp_accounting.SelfComposedDpEvent(sampled, self.steps)

    @property
    def relation(self) -> dp_accounting.NeighboringRelation:
        """Adding or removing one record."""
        import dp_accounting

        return dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE

    @property
    def score_event(self) -> None:
        """None: the score looks at public records."""

    @property
    def split(self) -> Split:
        return Split.DISJOINT

    @property
    def monotone(self) -> frozenset[str]:
        return frozenset()

    @property
    def saver(self) -> Plain:
        return Plain()

    def at(self, **changes: Any) -> Training:
        """A copy with other fields: ``training.at(fraction=0.1, noise_multiplier=2.0)``."""
        return replace(self, **changes)

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> NoReturn:
        raise NotImplementedError("this mechanism only states what a run costs: there is nothing to train")
