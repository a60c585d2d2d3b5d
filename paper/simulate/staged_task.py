"""The three tasks of the searches in stages: what was trained in full and in part, at any noise multiplier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import dp_accounting
import numpy as np

from paper.data import points
from paper.data.points import Floats, Grid
from paper.simulate import worlds
from paper.simulate.event import dp_sgd
from paper.simulate.task import federated_event
from paper.simulate.worlds import Trained, World


@dataclass(frozen=True)
class StagedTask:
    """A task of which parts of a training were tested too.

    Args:
        event: the privacy of so many steps (rounds) at a noise multiplier: ``event(noise_multiplier, steps)``.
        trained: scores after so many steps, larger is better.
        full: steps of a full training.
        parts: steps of the cheaper trainings, about 1/100, 1/30, 1/10 and 1/3 of a full one.
        noise: the deviation of the noise of every score that a search is shown.
        loss: whether scores are losses, sign turned.
    """

    event: Callable[[float, int], dp_accounting.DpEvent]
    trained: Callable[[int], Trained]
    grid: Grid
    full: int
    parts: tuple[int, ...]
    noise: float = 0.02
    loss: bool = False

    def steps(self, fraction: float) -> int:
        """Of the cheaper trainings, the one nearest to a fraction of a full one.

        >>> TASKS["MNIST"].steps(0.1), TASKS["federated"].steps(0.03)
        (235, 5)
        """
        return min(self.parts, key=lambda steps: abs(np.log(steps / self.full / fraction)))

    def range(self, steps: int) -> tuple[float, float]:
        """The noise multipliers at which a training of so many steps is known: those trained, and 5 % beyond."""
        levels = self.trained(steps).scores
        return min(levels) / 1.05, max(levels) * 1.05

    def levels(self, steps: int) -> Floats:
        """Noise multipliers between which costs are interpolated."""
        low, high = self.range(steps)
        return np.geomspace(low, high, 2 + round(np.log(high / low) / 0.4))

    def world(self, noise_multiplier: float, steps: int | None = None) -> World:
        """The landscape after so many steps (None: all)."""
        mean = self.trained(steps or self.full).at(noise_multiplier)
        return World(worlds.unit_square(self.grid), mean, np.full(len(mean), self.noise))


def _files(*names: str) -> tuple[str, ...]:
    """All landscapes of these names, numbered ones too."""
    found = sorted(path.stem for path in worlds.FOLDER.glob("*.npz"))
    return tuple(file for file in found if any(file == name or file.startswith(name + "-") for name in names))


def _steps(records: int, noise_multiplier: float, steps: int) -> dp_accounting.DpEvent:
    """Of DP-SGD in batches of 256: the first ``steps`` steps."""
    one: dp_accounting.DpEvent = dp_sgd(records, noise_multiplier).event
    return dp_accounting.SelfComposedDpEvent(one, steps)


TASKS = {
    "MNIST": StagedTask(
        partial(_steps, 60_000),
        partial(worlds.trained, ("mnist", *_files("mnist-noise", "mnist-low"))),
        *(points.MNIST, 2344, (24, 71, 235, 704)),
    ),
    "CIFAR-10": StagedTask(
        partial(_steps, 50_000),
        partial(worlds.trained, ("cifar-coarse", *_files("cifar-noise", "cifar-low"))),
        *(points.CIFAR_COARSE, 1954, (20, 59, 196, 586)),
    ),
    "federated": StagedTask(
        federated_event, worlds.federated_trained, points.FEDERATED, 100, (5, 10, 30), noise=0.05, loss=True
    ),
}
