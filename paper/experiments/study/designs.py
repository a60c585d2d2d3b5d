"""What is compared: ways to search, each calibrated to the same total ε. Change the numbers here."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Protocol

import dphypo
from dphypo import Stage, Study
from dphypo.band import L2, Band
from dphypo.entropy import Entropy
from dphypo.laws import Geometric, Law, NegativeBinomial
from dphypo.samplers import GaussianProcess
from paper.experiments.study.space import SPACE
from paper.experiments.study.training import Training

DELTA = 1e-5
EPOCHS = 10  # of a full run, the unit of compute


@dataclass(frozen=True)
class Arm:
    """A way to search: a ``dphypo.Study``."""

    name: str
    stage: Stage

    @property
    def training(self) -> Training:
        """What one run is."""
        assert isinstance(self.stage.mechanism, Training)
        return self.stage.mechanism

    @property
    def adaptive(self) -> bool:
        """Whether a run depends on those before it."""
        return self.stage.search_policy.adaptive

    def search(self, entropy: Entropy) -> Study:
        # A sampler remembers its last fit: each search has its own, or they would take it from each other.
        one = replace(self.stage, sampler=deepcopy(self.stage.sampler))
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


def _calibrated(name: str, stage: Stage, epsilon: float) -> Arm:
    """A study, with the noise at which it costs ε."""
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
    return Arm(name, replace(stage, mechanism=train.at(noise_multiplier=found.value)))


def _uniform(train: Training, laws: Sequence[Law], epsilon: float) -> list[Arm]:
    return [_calibrated(f"uniform, {_named(law)}", Stage(train, law), epsilon) for law in laws]


def _named(law: Law) -> str:
    """As the laws are called in the tables.

    >>> _named(Geometric(mean=10)), _named(NegativeBinomial(8.0, mean=10))
    ('geometric T', 'shape 8')
    """
    shape = law.to_dict()["shape"]
    return "geometric T" if shape == 1 else f"shape {shape:g}"
