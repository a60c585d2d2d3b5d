"""The tasks: data sets, features and how they are normalised; all fixed beforehand.

Features and ε are those of Tramèr and Boneh (2021) and not tuned here; the wide network's are De and others' (2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paper.anchors.linear import Linear
from paper.anchors.normalise import Normaliser, recipe
from paper.data.sets import Images

SPLIT = 20_240  # stands for the key of the hash that puts records on a side


@dataclass(frozen=True)
class Task:
    """A data set with what all ways to tune share.

    Args:
        data: its name in ``paper.data.sets``.
        records: how many private records, a public number.
        published: what was reported without charging for the tuning.
        searches: how many are made in each way to tune.
        recipe: how features are normalised (:mod:`paper.anchors.normalise`); empty for pixels.
        statistics: noise multiplier of each sum that this takes.
        model: "linear", "cnn" or "wide".
        epsilon: the total.
        ways: the names of the ways to tune that are made; all if empty.
        seed: added to the plan's.
    """

    data: str
    records: int
    published: float
    searches: int = 24
    recipe: str = "groups"
    statistics: float = 20.0
    model: str = "linear"
    epsilon: float = 3.0
    ways: Sequence[str] = ()
    seed: int = 0


# Recipes and structures come from the second pilot (recipe_pilot.py), which saw training records alone.
TASKS = {
    "mnist": Task("mnist", 60_000, 0.987, recipe="groups, centred"),
    "fashion": Task("fashion", 60_000, 0.897, recipe="groups, centred"),
    "cifar10": Task("cifar10", 50_000, 0.670, 16, recipe="channels, centred, mirrored"),
    "cifar10-cnn": Task("cifar10", 50_000, 0.693, 12, recipe="channels, mirrored", model="cnn"),
    "mnist-again": Task("mnist", 60_000, 0.987, 96, "groups, centred", ways=("ours", "untuned, Adam"), seed=500_000),
    "cifar10-wide": Task("cifar10", 50_000, 0.568, 1, recipe="", model="wide", epsilon=1.0),
}


def sides(records: int, share: float) -> npt.NDArray[np.bool_]:
    """Which records score: each by itself, with probability ``share``."""
    return np.asarray(np.random.default_rng(SPLIT).random(records) < share)


def flat(features: Tensor) -> Tensor:
    """Rows with a one at the end, for the bias."""
    rows = features.flatten(1)
    return torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)


def linear(task: Task, images: Images, share: float, device: str, seed: int) -> Linear:
    """The trainer of linear models on a task's features."""
    found = Normaliser(recipe(task.recipe), task.statistics, device, seed).fitted(images.train)
    train, test = (found.of(one) for one in (images.train, images.test))
    labels, test_labels = (torch.tensor(one, device=device).long() for one in (images.train_labels, images.test_labels))
    scores = torch.as_tensor(sides(len(train), share), device=device)
    kind = torch.float16 if device == "cuda" else torch.float32
    return Linear(flat(train).to(kind), labels, scores, flat(test), test_labels)
