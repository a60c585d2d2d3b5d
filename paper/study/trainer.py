"""The runs of a round, trained as one vectorised program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from dphypo.mechanism import Outcome
from paper.data import Images
from paper.study.search import Run
from paper.train.landscape import gradients_for
from paper.train.run import Data, Settings, right, train

SCORE_NOISE = 0.02  # deviation of what is added to a score, as a private score would have; as in the simulations


class Trainer:
    """Trains runs and scores them on one half of the test pictures; the model it returns is its accuracy on the other.

    The models of a round share batches; see :mod:`paper.study`.
    """

    def __init__(self, images: Images, device: str, seed: int) -> None:
        half = len(images.test) // 2
        self._scored, self._held_out = (
            Data.of(Images(images.train, images.train_labels, images.test[part], images.test_labels[part]), device)
            for part in (slice(0, half), slice(half, None))
        )
        self._gradients = gradients_for(self._scored)
        self._seed = seed

    @torch.no_grad()
    def __call__(self, runs: Sequence[Run], size: int, number: int) -> list[Outcome]:
        """The outcomes of ``runs``, trained among ``size`` models: the last one is repeated."""
        rows = np.array([self._row(run) for run in runs])
        rows = np.concatenate([rows, np.repeat(rows[-1:], size - len(rows), axis=0)])
        one = runs[0].training
        settings = Settings(rows[:, 0], rows[:, 1], rows[:, 2], one.steps, one.batch)
        models, _ = train(self._scored, settings, self._seed + number, gradients=self._gradients)
        shown, other = (
            right(part, models, self._gradients) / len(part.test) for part in (self._scored, self._held_out)
        )
        return [
            Outcome({"held_out": float(other[n])}, float(shown[n]) + _score_noise(run.trial.seed))
            for n, run in enumerate(runs)
        ]

    def _row(self, run: Run) -> tuple[float, float, float]:
        params = run.trial.params
        return params["learning_rate"], params["clip"], run.training.noise_multiplier


def _score_noise(seed: int) -> float:
    return SCORE_NOISE * float(np.random.default_rng(seed).standard_normal())
