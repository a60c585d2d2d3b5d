"""A small real mechanism for surveys: the noisy mean of private numbers, read off by gradient steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import dp_accounting as dp
import numpy as np
from scipy.stats import loguniform

from dphypo.accounting import Split
from dphypo.accounting.composition import Sides
from dphypo.mechanisms import Mechanism, Outcome, Plain
from dphypo.space import Space

ADD = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
APART = Split("numbers that score, by a hash of each").sides
RECORDS = 400
PRIVATE = np.random.default_rng(5).normal(0.7, 0.2, RECORDS)
SPACE = Space({"lr": loguniform(1e-3, 10.0)})


@dataclass(frozen=True)
class Descent(Mechanism):
    """Noisy gradient steps towards the mean of private numbers, each clipped to [−1, 1]; scored on public ones.

    With ``batch`` in the space a step takes a Poisson sample; each batch size may have noise of its own.
    """

    noise_multiplier: Any = 4.0
    steps: int = 100
    fraction: float = 1.0
    score_noise_multiplier: Any = None
    score_records: int | None = None
    batch: int = RECORDS
    fails: bool = False
    relation: Any = ADD
    split: Sides | None = APART
    monotone: frozenset[str] = frozenset()
    saver: Any = field(default_factory=Plain)
    seeded: bool = True

    def at(self, *, match: bool = False, **changes: Any) -> Descent:
        changed = replace(self, **changes)
        if not match:
            return changed
        scale = 1 / math.sqrt(changed.fraction)
        noise = self.noise_multiplier
        matched = {key: s * scale for key, s in noise.items()} if isinstance(noise, Mapping) else noise * scale
        return replace(changed, noise_multiplier=matched)

    def kinds(self, space: Space) -> list[Any]:
        if "batch" not in space.names:
            return []
        (parameter,) = (one for one in space.parameters if one.name == "batch")
        return [_Kind(self, batch) for batch in parameter.dimension.choices]  # type: ignore[attr-defined]

    def _noise(self, batch: int) -> float:
        noise = self.noise_multiplier
        return float(noise[batch] if isinstance(noise, Mapping) else noise)

    def compute(self, params: Mapping[str, Any]) -> float:
        """Examples that a run processes."""
        return float(self.made * params.get("batch", self.batch))

    @property
    def made(self) -> int:
        return max(1, math.ceil(self.steps * self.fraction))

    def event(self, params: Mapping[str, Any]) -> dp.DpEvent:
        batch = params.get("batch", self.batch)
        step: dp.DpEvent = dp.GaussianDpEvent(self._noise(batch))
        if batch < RECORDS:
            step = dp.PoissonSampledDpEvent(batch / RECORDS, step)
        return dp.SelfComposedDpEvent(step, self.made)

    @property
    def score_event(self) -> dp.DpEvent | None:
        if self.score_noise_multiplier is None:
            return None
        return dp.GaussianDpEvent(1e3 if self.score_noise_multiplier == "calibrate" else self.score_noise_multiplier)

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Outcome:
        if self.fails:
            raise RuntimeError(f"a record is {PRIVATE[0]}")
        rng = np.random.default_rng(seed)
        batch = params.get("batch", self.batch)
        weight = 0.0
        for _ in range(self.made):
            chosen = PRIVATE[rng.random(RECORDS) < batch / RECORDS]
            gradient = np.clip(weight - chosen, -1, 1).sum() + self._noise(batch) * rng.normal()
            weight -= params["lr"] * gradient / batch
            weight = float(np.clip(weight, -1e6, 1e6))
        return Outcome({"weight": weight, "lr": params["lr"], "steps": self.made}, -abs(weight - 0.7))


@dataclass(frozen=True)
class _Kind:
    mechanism: Descent
    key: int

    def event(self, noise: float) -> dp.DpEvent:
        return self.mechanism.at(noise_multiplier={self.key: noise}).event({"batch": self.key})
