"""Batch size and steps in the space: which settings were trained, and the landscape of all of them.

Every setting has the noise with which one full run costs ε = 4.25 at δ = 1e-5; a run of a fraction f of its steps has
1/√f times that. All runs are tested on both halves of the test pictures.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from paper.data import points
from paper.data.sets import Images
from paper.train.landscape import gradients_for, provenance
from paper.train.run import Data, Settings, right, train

EPSILON = 4.25
FRACTIONS = (0.05, 0.1, 0.2, 1.0)
SEED = 30_000


@dataclass(frozen=True)
class Setting:
    """An expected batch and how often a full run goes through the records."""

    batch: int
    epochs: float

    def steps(self, records: int, fraction: float = 1.0) -> int:
        """Steps of a run of a fraction, rounded up.

        >>> Setting(1024, 10).steps(60_000), Setting(1024, 10).steps(60_000, 0.05)
        (586, 30)
        """
        return math.ceil(fraction * math.ceil(self.epochs * records / self.batch) - 1e-9)


SETTINGS = tuple(Setting(batch, epochs) for epochs in (10, 15) for batch in (256, 512, 1024, 2048, 4096))
# Of the paper's grid: learning rates from 0.01 on (below, nothing is learnt), six clipping norms.
PAIRS = points.Grid(points.MNIST.first[6:], points.MNIST.second[[0, 2, 5, 9, 14, 19]]).pairs


def noises(records: int) -> dict[Setting, float]:
    """The noise of a full run alone."""
    from paper.simulate.survey_costs import Steps, noise

    return {one: noise(Steps(one.batch / records, one.steps(records)), EPSILON) for one in SETTINGS}


@torch.no_grad()
def train_settings(images: Images, out: Path, device: str, levels: dict[Setting, float], deadline: float) -> None:
    """Train every setting, fraction and pair once; ``correct`` (settings, fractions, halves, pairs)."""
    half = len(images.test) // 2
    data = Data.of(images, device)
    gradients = gradients_for(data)
    correct = np.zeros((len(SETTINGS), len(FRACTIONS), 2, len(PAIRS)), dtype=np.uint16)
    started = time.time()
    first = Images(images.train, images.train_labels, images.test[:half], images.test_labels[:half])
    halves = [Data.of(first, device), Data.of(images.second_half(), device)]
    for s, setting in enumerate(SETTINGS):
        for f, fraction in enumerate(FRACTIONS):
            if time.time() > deadline:
                print("not enough time", flush=True)
                return
            begun = time.time()
            level = levels[setting] / fraction**0.5
            steps = setting.steps(len(images.train), fraction)
            settings = Settings(PAIRS[:, 0], PAIRS[:, 1], np.full(len(PAIRS), level), steps, setting.batch)
            models, _ = train(data, settings, SEED + 10 * s + f, gradients=gradients)
            for h, part in enumerate(halves):
                correct[s, f, h] = right(part, models, gradients)
            print(f"{setting} {fraction} {steps} steps {time.time() - begun:.1f} s {correct[s, f].max(1)}", flush=True)
        np.savez_compressed(
            out, pairs=PAIRS, settings=np.array([[one.batch, one.epochs] for one in SETTINGS]),
            fractions=np.array(FRACTIONS), noises=np.array([levels[one] for one in SETTINGS]), correct=correct,
            tests=half, provenance=provenance(seed=SEED, seconds=round(time.time() - started, 1)),
        )  # fmt: skip
