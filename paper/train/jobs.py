"""Which landscapes are trained: data set, points, noise multipliers, steps, repetitions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paper.data import points
from paper.data.points import Floats


@dataclass(frozen=True)
class Job:
    """``repetitions`` models at every point and noise multiplier, tested after each of ``evaluate_after`` steps."""

    data: str
    pairs: Floats  # (points, 2): learning rate, clipping norm
    noise_multipliers: tuple[float, ...]
    evaluate_after: tuple[int, ...]
    repetitions: int
    seed: int
    models: int = 640  # trained at once, at most
    second_half: bool = False  # tested on the second half of the test pictures alone, as the real searches are

    @property
    def steps(self) -> int:
        return self.evaluate_after[-1]


# An epoch of MNIST is 60000/256 = 234.4 steps, of CIFAR-10 50000/256 = 195.3; ten epochs are 2344 and 1954.
_MNIST, _CIFAR = (71, 235, 704, 2344), (59, 196, 586, 1954)
# The paper trains 50 points an arm. The first 50 of this design are those; the others check the fit.
_DESIGN = points.CIFAR.design(160)
_LOW, _LOWER = (1.0, 1.5, 2.0, 3.0), (4.5, 6.5, 9.0)

JOBS = {
    "mnist": Job("mnist", points.MNIST.pairs, (0.71, 0.64), _MNIST, 5, seed=1_000),
    "mnist-low": Job("mnist", points.MNIST.pairs, _LOW, (24, 71, 235), 3, seed=2_000),
    "mnist-low-2": Job("mnist", points.MNIST.pairs, _LOWER, (24, 71, 235), 3, seed=2_100),
    "mnist-noise": Job("mnist", points.MNIST.pairs, (0.5, 0.57, 0.85, 1.05, 1.3, 1.7), _MNIST, 1, seed=3_000),
    "mnist-noise-2": Job("mnist", points.MNIST.pairs, (2.3, 3.2), _MNIST, 1, seed=3_100),
    "mnist-noise-3": Job("mnist", points.MNIST.pairs, (0.85, 1.05), _MNIST, 1, seed=3_200),
    "mnist-second-half": Job("mnist", points.MNIST.pairs, (0.6896, 0.7286), (2344,), 2, seed=3_300, second_half=True),
    "cifar-design": Job("cifar10", points.CIFAR.pairs[_DESIGN], (0.65, 0.6), _CIFAR, 1, 4_000, 320),
    "cifar-coarse": Job("cifar10", points.CIFAR_COARSE.pairs, (0.65, 0.6), _CIFAR, 3, 5_000, 320),
    "cifar-low": Job("cifar10", points.CIFAR_COARSE.pairs, _LOW, (20, 59, 196), 3, 6_000, 320),
    "cifar-low-2": Job("cifar10", points.CIFAR_COARSE.pairs, _LOWER, (20, 59, 196), 3, 6_100, 320),
    "cifar-noise": Job("cifar10", points.CIFAR_COARSE.pairs, (0.5, 0.55, 0.75, 0.9), _CIFAR, 1, 7_000, 320),
    "cifar-noise-2": Job("cifar10", points.CIFAR_COARSE.pairs, (1.1, 1.4, 1.9, 2.6), _CIFAR, 1, 7_100, 320),
    "cifar-noise-3": Job("cifar10", points.CIFAR_COARSE.pairs, (0.75, 0.9), _CIFAR, 1, 7_200, 320),
}


@dataclass(frozen=True)
class FederatedJob:
    """As :class:`Job`, for the federated task and its rounds, at every cell of its grid."""

    noise_multipliers: tuple[float, ...]
    evaluate_after: tuple[int, ...]
    repetitions: int
    seed: int


FEDERATED_JOBS = {
    "federated": FederatedJob((1.0,), (100,), 3, seed=9_000),
    "federated-noise": FederatedJob((2.0, 1.0, 2.8, 4.0, 1.4, 5.6, 0.85), (5, 10, 30, 100), 2, seed=10_000),
    "federated-low": FederatedJob((8.0, 11.3, 16.0, 22.0), (5, 10, 30), 2, seed=11_000),
}


def parts(job: Job) -> list[tuple[int, Floats, list[tuple[int, int]]]]:
    """The trainings in parts of at most ``job.models``: repetition, (n, 3) hyperparameters, (noise, point) indices.

    >>> [len(part[2]) for part in parts(JOBS["mnist"])]
    [640, 640, 640, 640, 640]
    """
    cells = [(s, i) for s in range(len(job.noise_multipliers)) for i in range(len(job.pairs))]
    count = -(-len(cells) // job.models)
    result = []
    for repetition in range(job.repetitions):
        for chosen in np.array_split(np.arange(len(cells)), count):
            part = [cells[n] for n in chosen]
            rows = np.array([[*job.pairs[i], job.noise_multipliers[s]] for s, i in part])
            result.append((repetition, rows, part))
    return result
