"""What is compared: ways to search, each calibrated to the same total ε. Change the numbers here."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Protocol

import dphypo
from dphypo import PriorAround, Stage, Stages, Study
from dphypo.band import L2, Band
from dphypo.entropy import Entropy
from dphypo.runs import Geometric, Law, NegativeBinomial
from dphypo.samplers import GaussianProcess
from paper.study.training import SPACE, Training

DELTA = 1e-5
FULL_STEPS = 2344  # ten epochs, the unit of compute
ONE_EPOCH = 235


@dataclass(frozen=True)
class Arm:
    """A way to search: one stage makes a ``dphypo.Study``, more of them ``dphypo.Stages``."""

    name: str
    stages: tuple[Stage, ...]

    def calibrated(self, epsilon: float) -> Arm:
        """With the noise of the last stage such that a whole search costs ε."""
        *earlier, last = self.stages
        if earlier:
            return Arm(self.name, tuple(dphypo.calibrate_stages(SPACE, self.stages, epsilon=epsilon, delta=DELTA)))
        training = self.training(1)
        found = dphypo.calibrate(
            lambda noise: training.at(noise_multiplier=noise).event, last.runs, last.band, epsilon=epsilon, delta=DELTA
        )
        return Arm(self.name, (replace(last, mechanism=training.at(noise_multiplier=found.value)),))

    def training(self, stage: int) -> Training:
        """What one run of a stage is; stages count from 1."""
        mechanism = self.stages[stage - 1].mechanism
        assert isinstance(mechanism, Training)
        return mechanism

    def adaptive(self, stage: int) -> bool:
        """Whether a run of a stage depends on those before it."""
        return self.stages[stage - 1].band.C > 1

    def search(self, entropy: Entropy) -> Study | Stages:
        # A sampler remembers its last fit: each search has its own, or they would take it from each other.
        stages = [replace(stage, sampler=deepcopy(stage.sampler)) for stage in self.stages]
        if len(stages) > 1:
            return Stages(SPACE, stages, delta=DELTA, journal=None, entropy=entropy)
        (one,) = stages
        plain = (one.mechanism, one.runs, one.band, one.sampler, one.rule)
        return Study(SPACE, *plain, delta=DELTA, journal=None, entropy=entropy)


class Design(Protocol):
    """Arms to compare at one total ε, for a number of records and an expected batch."""

    @property
    def epsilon(self) -> float: ...

    @property
    def full_steps(self) -> int: ...

    def arms(self, records: int, batch: int) -> list[Arm]: ...


@dataclass(frozen=True)
class Adaptive:
    """Uniform and adaptive searches with the same mean number of runs."""

    epsilon: float = 6.0
    mean: float = 20.0
    full_steps: int = FULL_STEPS

    def arms(self, records: int, batch: int) -> list[Arm]:
        train, law = Training(records, self.full_steps, 1.0, batch), NegativeBinomial(8.0, mean=self.mean)
        return [
            *_uniform(train, [Geometric(mean=self.mean), law]),
            Arm("ours, (0.85, 1.25), shape 8", (Stage(train, law, Band(0.85, 1.25)),)),
            Arm("paper's GP, (0.75, 2), shape 8", (Stage(train, law, Band(0.75, 2), GaussianProcess.paper(), L2()),)),
        ]


@dataclass(frozen=True)
class Staged:
    """Uniform searches and one in two stages, with the same expected compute."""

    epsilon: float = 4.25
    uniform: tuple[Law, ...] = (Geometric(mean=10.0), NegativeBinomial(8.0, mean=10.0))
    first_runs: Law = NegativeBinomial(8.0, mean=30.0)  # noqa: RUF009 - a frozen value
    first_steps: int = ONE_EPOCH
    first_noise: float = 2.0
    prior: PriorAround = PriorAround(spread=0.1, floor=0.1)  # noqa: RUF009
    last_runs: Law = NegativeBinomial(8.0, mean=7.0)  # noqa: RUF009
    full_steps: int = FULL_STEPS

    def arms(self, records: int, batch: int) -> list[Arm]:
        train = Training(records, self.full_steps, 1.0, batch)
        cheap = Training(records, self.first_steps, self.first_noise, batch)
        stages = (Stage(cheap, self.first_runs, prior=self.prior), Stage(train, self.last_runs))
        return [*_uniform(train, self.uniform), Arm("stages", stages)]


def _uniform(train: Training, laws: Sequence[Law]) -> list[Arm]:
    return [Arm(f"uniform, {_named(law)}", (Stage(train, law),)) for law in laws]


def _named(law: Law) -> str:
    """As the laws are called in the tables.

    >>> _named(Geometric(mean=10)), _named(NegativeBinomial(8.0, mean=10)), _named(dphypo.Poisson(10))
    ('geometric T', 'shape 8', 'Poisson T')
    """
    shape = law.to_dict().get("shape")
    if shape is None:
        return f"{type(law).__name__} T"
    return "geometric T" if shape == 1 else f"shape {shape:g}"
