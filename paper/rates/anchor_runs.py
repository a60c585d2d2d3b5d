"""The linear anchor of MNIST, trained by ``tune`` as it is: ``python -m paper rates-anchor-runs``.

Features are those of the anchor, and so is the private mean that is taken away from them: it is charged. ``tune`` has
what is left of ε = 3. Two structures: the library's default (batches of 1 024, 20 epochs), and the anchor's (all
records in each of 800 steps, momentum 0.9). Everything else is the default, with no space and no scale given.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from torch import nn

from dphypo.entropy import Seeded
from dphypo.search import Stages
from dphypo.search.declaration import total_in_gaussians
from dphypo.search.tune import plan_tuning
from dphypo.torch import DPSGD
from paper.anchors.normalise import Normaliser, recipe
from paper.anchors.run import PLANS
from paper.anchors.tasks import TASKS
from paper.data.sets import load
from paper.rates.landscapes import FILE

OUT = FILE.with_name("anchor-runs.json")
STRUCTURES: dict[str, dict[str, Any]] = {
    "default": {"epochs": 20},
    "anchor": {"epochs": 800, "batch_size": 60_000, "fixed": {"momentum": 0.9}},
}
SEEDS = {"default": 10, "anchor": 3}


def left_over(epsilon: float, delta: float, noise: float) -> float:
    """The ε that is left for a search beside one Gaussian sum with this noise multiplier.

    Everything here is dominated by a Gaussian mechanism, or is one, so that squares of their μ add up.
    """
    rest = math.sqrt(total_in_gaussians(epsilon, delta) ** 2 - noise**-2)
    return float(brentq(lambda one: total_in_gaussians(one, delta) - rest, 0.1, epsilon, xtol=1e-9))


def features(folder: Path, name: str = "mnist") -> tuple[Any, Any, Any, Any]:
    """Rows and labels of the private records and of the test; kept in the folder."""
    kept, images = folder / f"anchor-{name}.npz", load(name, folder)
    if not kept.exists():
        task, seed = TASKS[name], json.loads(PLANS.read_text())["seed"]
        normaliser = Normaliser(recipe(task.recipe), task.statistics, "cpu", seed + task.seed).fitted(images.train)
        np.savez(kept, train=normaliser.of(images.train).flatten(1), test=normaliser.of(images.test).flatten(1))
    with np.load(kept) as found:
        rows, tests = found["train"], found["test"]
    return rows, images.train_labels.astype(np.int64), tests, images.test_labels.astype(np.int64)


def write(folder: Path) -> dict[str, Any]:
    """Train what is not in the file yet."""
    torch.set_num_threads(1)
    rows, labels, tests, truth = features(folder)
    found: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    epsilon = left_over(3.0, 1e-5, TASKS["mnist"].statistics)
    for name, structure in STRUCTURES.items():
        made = DPSGD(
            model=lambda: nn.Linear(rows.shape[1], 10), data=(rows, labels), score="accuracy", device="cpu", **structure
        )
        row = found.setdefault(name, {"epsilon": round(epsilon, 5), "accuracies": [], "seconds": []})
        with warnings.catch_warnings(action="ignore"):
            space = made.default_space()
            tuning = plan_tuning(space, made, epsilon=epsilon, delta=1e-5)
            row |= {"runs": tuning.survey.runs, "compute": round(tuning.survey.compute, 3)}
            for seed in range(len(row["accuracies"]), SEEDS[name]):
                began = time.time()
                stages = Stages.of(tuning.declare(space, 1e-5, private=False), journal=None, entropy=Seeded(seed))
                model = stages.run(progress=False).model
                assert model is not None
                right = model(torch.from_numpy(tests)).argmax(1) == torch.from_numpy(truth)
                row["accuracies"].append(round(float(right.double().mean()), 4))
                row["seconds"].append(round(time.time() - began, 1))
                OUT.write_text(json.dumps(found) + "\n")
                print(name, row["accuracies"][-1], row["seconds"][-1], flush=True)
    return found
