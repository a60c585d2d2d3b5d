"""What is compared: ways to search, each calibrated to the same total ε. Change the numbers here."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Protocol

import dphypo
from dphypo import Stage, Stages, Study
from dphypo.band import L2, Band
from dphypo.entropy import Entropy
from dphypo.laws import Geometric, Law, NegativeBinomial, Poisson
from dphypo.planning import TwoStages
from dphypo.samplers import GaussianProcess
from paper.experiments.study.space import SPACE
from paper.experiments.study.training import Training

DELTA = 1e-5
EPOCHS = 10  # of a full run, the unit of compute


@dataclass(frozen=True)
class Arm:
    """A way to search: one stage makes a ``dphypo.Study``, more of them ``dphypo.Stages``."""

    name: str
    stages: tuple[Stage, ...]

    def training(self, stage: int) -> Training:
        """What one run of a stage is; stages count from 1."""
        mechanism = self.stages[stage - 1].mechanism
        assert isinstance(mechanism, Training)
        return mechanism

    def adaptive(self, stage: int) -> bool:
        """Whether a run of a stage depends on those before it."""
        return self.stages[stage - 1].search_policy.adaptive

    def search(self, entropy: Entropy) -> Study | Stages:
        # A sampler remembers its last fit: each search has its own, or they would take it from each other.
        stages = [replace(stage, sampler=deepcopy(stage.sampler)) for stage in self.stages]
        if len(stages) > 1:
            return Stages(SPACE, stages, delta=DELTA, journal=None, entropy=entropy)
        (one,) = stages
        plain = (one.mechanism, one.runs, one.band, one.sampler, one.projection)
        return Study(SPACE, *plain, delta=DELTA, journal=None, entropy=entropy)


class Comparison(Protocol):
    """Arms to compare at one total ε, for a number of records and an expected batch."""

    @property
    def epsilon(self) -> float: ...

    def arms(self, records: int, batch: int) -> list[Arm]: ...


@dataclass(frozen=True)
class Adaptive:
    """Uniform and adaptive searches with the same mean number of runs."""

    epsilon: float = 6.0
    mean: float = 20.0
    epochs: float = EPOCHS

    def arms(self, records: int, batch: int) -> list[Arm]:
        train = Training(records=records, batch_size=batch, epochs=self.epochs)
        law = NegativeBinomial(8.0, mean=self.mean)
        return [
            *_uniform(train, [Geometric(mean=self.mean), law], self.epsilon),
            # From the second run on, as when the committed results were made; the library now starts with the third.
            # They were made with more noise: by the theorem for rules that may know the data.
            _calibrated(
                "ours, (0.85, 1.25), shape 8",
                Stage(train, law, Band(0.85, 1.25), GaussianProcess(start=1)),
                self.epsilon,
            ),
            _calibrated(
                "paper's GP, (0.75, 2), shape 8",
                Stage(train, law, Band(0.75, 2), GaussianProcess.paper(), L2()),
                self.epsilon,
            ),
        ]


@dataclass(frozen=True)
class Staged:
    """Uniform searches and one in two stages, with the same expected compute, in full runs."""

    epsilon: float = 4.25
    compute: float = 10.0
    design: TwoStages = TwoStages()  # noqa: RUF009 - a frozen value
    epochs: float = EPOCHS

    def arms(self, records: int, batch: int) -> list[Arm]:
        train = Training(records=records, batch_size=batch, epochs=self.epochs)
        laws: list[Law] = [
            Geometric(mean=self.compute),
            NegativeBinomial(8.0, mean=self.compute),
            Poisson(self.compute),
        ]
        stages = self.design.stages(SPACE, train, compute=self.compute, epsilon=self.epsilon, delta=DELTA)
        return [*_uniform(train, laws, self.epsilon), Arm("stages", tuple(stages))]


def _calibrated(name: str, stage: Stage, epsilon: float) -> Arm:
    """A search in one stage, with the noise at which it costs ε."""
    train = stage.mechanism
    assert isinstance(train, Training)
    found = dphypo.calibrate(
        lambda noise: train.at(noise_multiplier=noise).event,
        stage.runs,
        stage.band,
        epsilon=epsilon,
        delta=DELTA,
        policy=stage.search_policy.policy,
        first_from_prior=stage.search_policy.counted,
    )
    return Arm(name, (replace(stage, mechanism=train.at(noise_multiplier=found.value)),))


def _uniform(train: Training, laws: Sequence[Law], epsilon: float) -> list[Arm]:
    return [_calibrated(f"uniform, {_named(law)}", Stage(train, law), epsilon) for law in laws]


def _named(law: Law) -> str:
    """As the laws are called in the tables.

    >>> _named(Geometric(mean=10)), _named(NegativeBinomial(8.0, mean=10)), _named(dphypo.Poisson(10))
    ('geometric T', 'shape 8', 'Poisson T')
    """
    shape = law.to_dict().get("shape")
    if shape is None:
        return f"{type(law).__name__} T"
    return "geometric T" if shape == 1 else f"shape {shape:g}"
