"""The landscapes that come with the library as public proxies (src/dphypo/design/landscapes), from the committed
trainings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paper.data import points
from paper.data.points import Floats, Grid
from paper.simulate.worlds import FOLDER, GUESSING

TARGET = Path(__file__).parents[2] / "src" / "dphypo" / "planning" / "landscapes"


@dataclass(frozen=True)
class Source:
    """Files of trainings on one grid, by pattern; after how many steps (or rounds) a fraction of a full run ends."""

    patterns: tuple[str, ...]
    grid: Grid
    steps: dict[float, int]
    score_noise: float
    limits: tuple[float, float]


SOURCES = {
    "mnist": Source(
        ("mnist.npz", "mnist-noise*.npz", "mnist-low*.npz"),
        points.MNIST,
        {0.01: 24, 0.03: 71, 0.1: 235, 0.3: 704, 1.0: 2344},
        0.02,
        (0.0, 1.0),
    ),
    "cifar10": Source(
        ("cifar-coarse.npz", "cifar-noise*.npz", "cifar-low*.npz"),
        points.CIFAR_COARSE,
        {0.01: 20, 0.03: 59, 0.1: 196, 0.3: 586, 1.0: 1954},
        0.02,
        (0.0, 1.0),
    ),
    "federated": Source(
        ("federated.npz", "federated-noise*.npz", "federated-low*.npz"),
        points.FEDERATED,
        {0.05: 5, 0.1: 10, 0.3: 30, 1.0: 100},
        0.05,
        (-GUESSING, 0.0),
    ),
}


def make(name: str, target: Path = TARGET) -> Path:
    """Write one landscape: :meth:`dphypo.planning.Landscape.from_arrays` says how its file is read."""
    source = SOURCES[name]
    paths = sorted(path for pattern in source.patterns for path in FOLDER.glob(pattern))
    rows = [
        (fraction, level, values)
        for fraction, steps in source.steps.items()
        for level, values in sorted(_trained(paths, steps).items())
    ]
    low, high = source.limits
    scores = np.stack([values.mean(axis=0) for _, _, values in rows])
    np.savez_compressed(
        target / f"{name}.npz",
        shape=np.array([len(source.grid.first), len(source.grid.second)]),
        score_noise=np.array(source.score_noise),
        limits=np.array([low, high], dtype=np.float64),
        fractions=np.array([fraction for fraction, _, _ in rows]),
        noise_multipliers=np.array([level for _, level, _ in rows]),
        repetitions=np.array([len(values) for _, _, values in rows]),
        scores=np.rint((scores - low) / (high - low) * 65535).astype(np.uint16),
        provenance=np.array(json.dumps({"command": "python -m paper proxies", "from": [path.name for path in paths]})),
    )
    return target / f"{name}.npz"


def _trained(paths: list[Path], steps: int) -> dict[float, Floats]:
    """Scores (repetitions, cells) by noise multiplier after so many steps, larger better, from all files joined."""
    found: dict[float, list[Floats]] = {}
    for path in paths:
        with np.load(path) as content:
            for index in np.flatnonzero(content["steps" if "steps" in content else "rounds"] == steps):
                for number, level in enumerate(content["noise_multipliers"]):
                    found.setdefault(float(level), []).append(_scores(content, (number, int(index))))
    joined = {level: np.concatenate(values) for level, values in found.items()}
    return {level: values for level, values in joined.items() if len(values)}


def _scores(content: Mapping[str, npt.NDArray[Any]], index: tuple[int, int]) -> Floats:
    if "correct" in content:
        return np.asarray(content["correct"][index] / float(content["tests"]))
    loss = np.asarray(content["loss"][index], dtype=np.float64)
    return -np.minimum(loss[~np.isnan(loss).any(axis=1)], GUESSING)  # nan: not trained
