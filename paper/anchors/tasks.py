"""The tasks: data sets, features and how they are normalised; all fixed beforehand.

Features and ε are those of Tramèr and Boneh (2021) and not tuned here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paper.anchors import scattering
from paper.anchors.linear import Linear
from paper.data.sets import Bytes, Images

GROUPS = 27
SPLIT = 20_240  # stands for the key of the hash that puts records on a side


@dataclass(frozen=True)
class Task:
    """A data set with what all ways to tune share.

    Args:
        data: its name in ``paper.data.sets``.
        records: how many private records, a public number.
        published: what was reported without charging for the tuning.
        searches: how many are made in each way to tune.
        statistics: noise multiplier of the two sums by which channels are normalised; None for group normalisation.
        model: "linear" or "cnn".
        structure: the name of the structure of full runs, if it is not the pilot's choice.
    """

    data: str
    records: int
    published: float
    searches: int = 24
    statistics: float | None = None
    model: str = "linear"
    structure: str | None = None


TASKS = {
    "mnist": Task("mnist", 60_000, 0.987, statistics=20.0),
    "fashion": Task("fashion", 60_000, 0.897),
    "cifar10": Task("cifar10", 50_000, 0.670, 16, statistics=20.0),
    "cifar10-cnn": Task("cifar10", 50_000, 0.693, 12, statistics=20.0, model="cnn"),
}
MOMENTUM = "momentum, 800 steps, averaged"
TASKS |= {f"{name}-momentum": replace(TASKS[name], structure=MOMENTUM) for name in ("mnist", "fashion", "cifar10")}


def pixels(pictures: Bytes, device: str) -> Tensor:
    """Bytes as numbers from 0 to 1."""
    return torch.tensor(pictures, device=device).float() / 255


def channels(pictures: Bytes, device: str, chunk: int = 512) -> Tensor:
    """Scattering features, each channel on the scale that it has on pictures of pink noise."""
    mean, spread = (one.repeat(pictures.shape[1]).to(device) for one in pink_statistics(pictures.shape[-1]))
    parts = [scattering.features(part, chunk) for part in torch.split(pixels(pictures, device), 4 * chunk)]
    return (torch.cat(parts) - mean.view(1, -1, 1, 1)) / spread.view(1, -1, 1, 1)


def grouped(pictures: Bytes, device: str, chunk: int = 512) -> Tensor:
    """Scattering features, groups of three channels normalised for each picture by itself."""
    groups = GROUPS * pictures.shape[1]
    parts = torch.split(pixels(pictures, device), 4 * chunk)
    return torch.cat([scattering.group_normalised(scattering.features(part, chunk), groups) for part in parts])


@cache
def pink_statistics(side: int, count: int = 256) -> tuple[Tensor, Tensor]:
    """Mean and deviation of every channel on made-up pictures with the 1/f spectrum of natural ones: public."""
    generator = torch.Generator().manual_seed(0)
    frequency = torch.fft.fftfreq(2 * side) ** 2
    radius = (frequency[:, None] + frequency[None]).sqrt()
    spectrum = torch.where(radius > 0, 1 / radius, 0.0)
    white: Tensor = torch.fft.fft2(torch.randn((count, 2 * side, 2 * side), generator=generator))
    pink: Tensor = torch.fft.ifft2(white * spectrum)
    values = pink.real[:, :side, :side]
    found = scattering.transform((0.5 + 0.25 * values / values.std()).clamp(0, 1))
    return found.mean(dim=(0, 2, 3)), found.std(dim=(0, 2, 3))


MOMENT_BOUNDS = (2.0, 6.0)  # of a record's channel means and mean squares, over the root of their number


def private_statistics(features: Tensor, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Mean and deviation of every channel, from two Gaussian sums over all records.

    A record gives the mean of each of its channels, and of their squares, each vector cut off at a fixed norm. Adding
    or removing a record changes a sum by at most that norm, so each is a Gaussian mechanism with the given multiplier.
    """
    count, width = features.shape[:2]
    generator = torch.Generator(features.device).manual_seed(seed)
    moments = []
    for power, bound in enumerate(MOMENT_BOUNDS, 1):
        most = bound * width**0.5
        rows = torch.cat([(part**power).mean(dim=(2, 3)) for part in torch.split(features, 4096)])
        rows = rows * (most / rows.norm(dim=1, keepdim=True)).clamp_max(1.0)
        normal = torch.randn(width, generator=generator, device=features.device)
        moments.append((rows.sum(dim=0) + noise * most * normal) / count)
    return moments[0], (moments[1] - moments[0] ** 2).clamp_min(0.01).sqrt()


def sides(records: int, share: float) -> npt.NDArray[np.bool_]:
    """Which records score: each by itself, with probability ``share``."""
    return np.asarray(np.random.default_rng(SPLIT).random(records) < share)


def flat(features: Tensor) -> Tensor:
    """Rows with a one at the end, for the bias."""
    rows = features.flatten(1)
    return torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)


def linear(task: Task, images: Images, share: float, device: str, seed: int) -> Linear:
    """The trainer of linear models on a task's features."""
    if task.statistics is None:
        train, test = (grouped(one, device) for one in (images.train, images.test))
    else:
        train, test = (channels(one, device) for one in (images.train, images.test))
        mean, spread = (one.view(1, -1, 1, 1) for one in private_statistics(train, task.statistics, seed))
        train, test = (train - mean) / spread, (test - mean) / spread
    labels, test_labels = (torch.tensor(one, device=device).long() for one in (images.train_labels, images.test_labels))
    scores = torch.as_tensor(sides(len(train), share), device=device)
    kind = torch.float16 if device == "cuda" else torch.float32
    return Linear(flat(train).to(kind), labels, scores, flat(test), test_labels)
