"""Which curves are trained to judge transfer rules: written to ``curves.json`` before any of them is.

The rules: the table of exponents that the library had, and its rehearsal on noise
(:class:`dphypo.mechanisms.NoiseRehearsal`). A third, a rehearsal that also shrank the memories of optimisers, was
trained on five of the tasks and given up; what was trained is stated beside the results.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from dphypo.mechanisms import NoiseRehearsal, SampledGaussian
from dphypo.torch.hyperparameters import walk
from paper.anchors.curves import FILE
from paper.anchors.tasks import TASKS
from paper.train.descent import Memories

REPETITIONS = 6
SEED = 282_000
OPTIMISERS: dict[str, tuple[dict[str, Any], Memories]] = {
    "momentum 0.9": ({"optimizer": "sgd", "momentum": 0.9}, Memories(0.9)),
    "Adam": ({"optimizer": "adam"}, Memories(0.9, 0.999)),
}
# Kind, data, batch, steps, noise of a full run, fractions, and the middle learning rate of each optimiser.
WHAT: dict[str, tuple[str, str, int, int, float, tuple[float, ...], tuple[float, float]]] = {
    "clusters": ("digits", "made up", 128, 180, 1.5, (0.3, 0.15), (0.1, 0.014)),
    "digits": ("digits", "digits", 128, 180, 1.5, (0.3, 0.15), (0.14, 0.0175)),
    "mnist-cnn": ("convolutional", "mnist", 1024, 586, 0.8, (0.1, 0.05), (0.1, 0.004)),
    "cifar10-cnn": ("convolutional", "cifar10", 1024, 586, 0.9, (0.1, 0.05), (0.06, 0.003)),
    "fashion-scattering": ("scattered", "fashion", 8192, 400, 3.9, (0.1, 0.05), (1.0, 0.006)),
    "mnist-scattering": ("scattered", "mnist", 8192, 400, 3.9, (0.1, 0.05), (0.7, 0.005)),
    "cifar10-scattering": ("scattered", "cifar10", 8192, 400, 4.7, (0.1, 0.05), (0.5, 0.004)),
}
EXPONENTS = {"momentum 0.9": 0.4, "Adam": 0.6}  # of the table that the library had: η·f^(−a)


def factors(words: str, full: SampledGaussian, fraction: float, batch: int) -> dict[str, float]:
    """Learning rate of a short run over the full run's, by either rule."""
    params = {**OPTIMISERS[words][0], "learning_rate": 1e-3}
    rule = NoiseRehearsal(walk, full, full.noise_multiplier / batch)
    return {
        "table": fraction ** -EXPONENTS[words],
        "rehearsal": rule(params, fraction)["learning_rate"] / 1e-3,
    }


def plan(name: str, number: int) -> dict[str, Any]:
    """One task."""
    kind, data, batch, steps, noise, fractions, middles = WHAT[name]
    records = {"made up": 1437, "digits": 1437}.get(data) or TASKS[data].records
    full = SampledGaussian(rate=batch / records, steps=steps, noise_multiplier=noise)
    optimisers = {}
    for (words, (_, memories)), middle in zip(OPTIMISERS.items(), middles, strict=True):
        runs: dict[str, Any] = {"full": _run(1.0, noise, steps, memories)}
        for fraction in fractions:
            cut = full.at(fraction=fraction, match=True)
            for rule, factor in factors(words, full, fraction, batch).items():
                runs[f"{rule}, {fraction:g}"] = _run(factor, cut.noise_multiplier, cut.steps, memories)
        rates = middle * 2 ** np.arange(-4, 4.01, 0.5)
        optimisers[words] = {"rates": [float(f"{one:.6g}") for one in rates], "runs": runs}
    most = {"convolutional": 104, "scattered": 102, "digits": 17}[kind]
    return {"kind": kind, "data": data, "batch": batch, "most": most, "seed": SEED + 100_000 * number,
            "repetitions": REPETITIONS, "fractions": list(fractions), "optimisers": optimisers}  # fmt: skip


def _run(factor: float, noise: float, steps: int, memories: Memories) -> dict[str, Any]:
    kept = [memories.first] if memories.second is None else [memories.first, memories.second]
    return {"factor": round(factor, 6), "noise": round(noise, 6), "steps": steps, "memories": kept}


def write() -> None:
    """All tasks."""
    FILE.write_text(json.dumps({name: plan(name, number) for number, name in enumerate(WHAT)}, indent=1) + "\n")
