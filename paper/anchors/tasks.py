"""The tasks: features of a data set, batch size, steps and the space of learning rates, all fixed beforehand.

Batch sizes, features and ε are those of Tramèr and Boneh (2021), or near them, and not tuned here. Nearly every
gradient is longer than the clipping norm of one, so gradients are as good as normalised and one dimension is left, the
learning rate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paper.anchors import scattering
from paper.anchors.linear import Linear
from paper.anchors.trainer import Floats
from paper.data.sets import Bytes, Images

CLIP = 1.0
MOMENTUM = 0.9
AVERAGE = 0.98  # of the weights, kept at each step of a full run
RATES: Floats = np.logspace(-2, 1, 61)
GROUPS = 27
SPLIT = 20_240  # stands for the key of the hash that puts records on a side


@dataclass(frozen=True)
class Task:
    """A data set with what all ways to tune share.

    Args:
        data: its name in ``paper.data.sets``.
        records: how many private records, a public number.
        batch: the expected size of a batch.
        steps: of a full run.
        statistics: noise multiplier of the two sums that normalise each channel; None for group normalisation alone.
        published: what was reported without charging for the tuning.
    """

    data: str
    records: int
    published: float
    batch: int = 8192
    steps: int = 400
    statistics: float | None = None
    model: str = "linear"


TASKS = {
    "mnist": Task("mnist", 60_000, 0.987),
    "fashion": Task("fashion", 60_000, 0.897),
    "cifar10": Task("cifar10", 50_000, 0.670, statistics=20.0),
    "cifar10-cnn": Task("cifar10", 50_000, 0.693, statistics=20.0, model="cnn"),
}


def pixels(pictures: Bytes, device: str) -> Tensor:
    """Bytes as numbers from 0 to 1."""
    return torch.as_tensor(pictures, device=device).float() / 255


def channels(images: Images, device: str, chunk: int = 512) -> tuple[Tensor, Tensor]:
    """Scattering features of the private records and of the test, each picture's groups normalised by themselves."""
    found = []
    for pictures in (images.train, images.test):
        parts = [
            scattering.group_normalised(scattering.features(part, chunk), GROUPS * pictures.shape[1])
            for part in torch.split(pixels(pictures, device), 4 * chunk)
        ]
        found.append(torch.cat(parts))
    return found[0], found[1]


def private_statistics(features: Tensor, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Mean and deviation of every channel, from two Gaussian sums over all records.

    A record gives the mean of each of its channels, and of their squares, each vector cut off at a norm of √channels:
    group normalisation leaves values of about one. Adding or removing a record changes either sum by at most that, so
    each sum is a Gaussian mechanism with the given noise multiplier.
    """
    count, width = features.shape[:2]
    bound = width**0.5
    generator = torch.Generator(features.device).manual_seed(seed)
    sums = []
    for power in (1, 2):
        rows = (features**power).mean(dim=(2, 3))
        rows = rows * (bound / rows.norm(dim=1, keepdim=True)).clamp_max(1.0)
        normal = torch.randn(width, generator=generator, device=features.device)
        sums.append((rows.sum(dim=0) + noise * bound * normal) / count)
    return sums[0], (sums[1] - sums[0] ** 2).clamp_min(0.01).sqrt()


def sides(records: int, share: float) -> npt.NDArray[np.bool_]:
    """Which records score: each by itself, with probability ``share``."""
    return np.asarray(np.random.default_rng(SPLIT).random(records) < share)


def flat(features: Tensor) -> Tensor:
    """Rows with a one at the end, for the bias."""
    rows = features.flatten(1)
    return torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)


def linear(task: Task, images: Images, share: float, device: str, seed: int) -> Linear:
    """The trainer of linear models on a task's features."""
    train, test = channels(images, device)
    if task.statistics is not None:
        mean, spread = (one.view(1, -1, 1, 1) for one in private_statistics(train, task.statistics, seed))
        train, test = (train - mean) / spread, (test - mean) / spread
    labels, test_labels = (
        torch.as_tensor(one, device=device).long() for one in (images.train_labels, images.test_labels)
    )
    scores = torch.as_tensor(sides(len(train), share), device=device)
    return Linear(flat(train), labels, scores, flat(test), test_labels)
