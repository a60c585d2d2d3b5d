"""One run of the real studies: DP-SGD on the paper's network, at a cell of its grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import dp_accounting

from dphypo import Space
from dphypo.mechanism import Split
from dphypo.savers import Plain
from paper import points

# Sixteen learning rates and twenty clipping norms, ordered, equally likely: the cells of the landscapes.
SPACE = Space({"learning_rate": points.MNIST.first.tolist(), "clip": points.MNIST.second.tolist()})


@dataclass(frozen=True)
class Training:
    """A ``dphypo`` mechanism: ``steps`` of DP-SGD with Poisson batches. It is trained in rounds, not by a call.

    >>> Training(60_000, 235, 2.0).at(noise_multiplier=1.5).event.event.event.noise_multiplier
    1.5
    """

    records: int
    steps: int
    noise_multiplier: float
    batch: int = 256
    relation: dp_accounting.NeighboringRelation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    score_event: None = None  # the test pictures are public
    split: Split = Split.DISJOINT
    monotone: frozenset[str] = frozenset()
    saver: Plain = field(default_factory=Plain)

    @property
    def event(self) -> dp_accounting.DpEvent:
        noise = dp_accounting.GaussianDpEvent(self.noise_multiplier)
        one = dp_accounting.PoissonSampledDpEvent(self.batch / self.records, noise)
        return dp_accounting.SelfComposedDpEvent(one, self.steps)

    def at(self, *, noise_multiplier: float) -> Training:
        """The same with other noise, as ``dphypo.calibrate_stages`` asks for it."""
        return replace(self, noise_multiplier=noise_multiplier)

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Any:
        raise NotImplementedError("the runs of many searches are trained together, and told")
