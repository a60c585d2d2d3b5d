"""DP-SGD without a model: what a run costs, for designs of a search that will be run elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from dphypo.mechanisms import Mechanism, SampledGaussian
from dphypo.mechanisms.sampled_gaussian import match_noise

if TYPE_CHECKING:
    import dp_accounting


@dataclass(frozen=True, kw_only=True)
class Training(Mechanism):
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
        _ = self.run

    @property
    def run(self) -> SampledGaussian:
        """What one run costs."""
        return SampledGaussian.of(
            records=self.records,
            batch_size=self.batch_size,
            epochs=self.epochs,
            noise_multiplier=self.noise_multiplier,
            fraction=self.fraction,
        )

    @property
    def steps(self) -> int:
        """The number of steps of a run."""
        return self.run.steps

    @property
    def event(self) -> dp_accounting.DpEvent:
        """So many Poisson-sampled Gaussian mechanisms."""
        return self.run.event

    @property
    def relation(self) -> dp_accounting.NeighboringRelation:
        """Adding or removing one record."""
        import dp_accounting

        return dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE

    def at(self, *, match: bool = False, **changes: Any) -> Training:
        """A copy with other fields: ``training.at(fraction=0.1, match=True)`` is a short run with matched noise."""
        if match:
            ratio = changes.get("fraction", self.fraction) / self.fraction
            changes["noise_multiplier"] = match_noise(changes.get("noise_multiplier", self.noise_multiplier), ratio)
        return replace(self, **changes)

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> NoReturn:
        raise NotImplementedError("this mechanism only states what a run costs: there is nothing to train")
