"""The runs of a round, trained as one vectorised program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from dphypo.mechanisms import Outcome
from paper.data.points import Floats
from paper.data.sets import Images
from paper.experiments.study.search import Run
from paper.experiments.study.training import Training
from paper.train.landscape import gradients_for
from paper.train.run import Data, Settings, right, train

SCORE_NOISE = 0.02  # deviation of what is added to a score, as a private score would have; as in the simulations

Row = tuple[float, float, float]  # learning rate, clipping norm, noise multiplier


class Trainer:
    """Trains runs and scores them on one half of the test pictures; the model it returns is its accuracy on the other.

    The models of a round share batches; see :mod:`paper.experiments.study`.
    """

    def __init__(self, images: Images, device: str, seed: int) -> None:
        half = len(images.test) // 2
        self._scored, self._held_out = (
            Data.of(Images(images.train, images.train_labels, images.test[part], images.test_labels[part]), device)
            for part in (slice(0, half), slice(half, None))
        )
        self._gradients = gradients_for(self._scored)
        self._seed = seed

    def __call__(self, runs: Sequence[Run], size: int, number: int) -> list[Outcome]:
        """The outcomes of ``runs``, trained among ``size`` models."""
        shown, other = self._accuracies([self._row(run) for run in runs], runs[0].training, size, number)
        return [
            Outcome({"held_out": float(other[n])}, float(shown[n]) + _score_noise(run.trial.seed))
            for n, run in enumerate(runs)
        ]

    def held_out(self, params: Mapping[str, float], training: Training, size: int, number: int) -> list[float]:
        """Accuracies of ``size`` models of the same hyperparameters on the half that no run is scored on."""
        row = params["learning_rate"], params["clip"], training.noise_multiplier
        return [float(accuracy) for accuracy in self._accuracies([row] * size, training, size, number)[1]]

    @torch.no_grad()
    def _accuracies(self, given: Sequence[Row], training: Training, size: int, number: int) -> tuple[Floats, Floats]:
        """On both halves. The last of the given rows is repeated to make up ``size`` models."""
        rows = np.array([*given, *[given[-1]] * (size - len(given))])
        settings = Settings(rows[:, 0], rows[:, 1], rows[:, 2], training.steps, training.batch_size)
        models, _ = train(self._scored, settings, self._seed + number, gradients=self._gradients)
        shown, other = (
            right(part, models, self._gradients) / len(part.test) for part in (self._scored, self._held_out)
        )
        return shown, other

    def _row(self, run: Run) -> Row:
        params = run.trial.params
        return params["learning_rate"], params["clip"], run.training.noise_multiplier


def _score_noise(seed: int) -> float:
    return SCORE_NOISE * float(np.random.default_rng(seed).standard_normal())
