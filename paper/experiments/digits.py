"""The handwritten digits with private scores, through ``dphypo.tune``: the demo of the library, many times over."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from scipy.stats import loguniform
from sklearn.datasets import load_digits
from torch import nn

import dphypo
from dphypo.entropy import Seeded
from dphypo.search import Stages
from dphypo.search.tune import plan_tuning
from dphypo.torch import DPSGD, PrivateAccuracy, PublicAccuracy, split_by_hash

DELTA, REPETITIONS = 1e-5, 20
SPACES = {
    "SGD": dphypo.Space({"learning_rate": loguniform(0.01, 10), "max_grad_norm": loguniform(0.1, 10)}),
    "Adam": dphypo.Space({"learning_rate": loguniform(1e-4, 0.1), "max_grad_norm": loguniform(0.1, 10)}),
}


def network() -> nn.Module:
    """That of the demo."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def declare(optimiser: str) -> tuple[DPSGD, PublicAccuracy]:
    """The training of the demo with either optimiser, and the accuracy on digits that are held out."""
    pixels, labels = load_digits(return_X_y=True)
    private, held_out = split_by_hash((pixels / 16).astype(np.float32), labels, key="held out")
    train, score = split_by_hash(private, key="score")
    ranked = PrivateAccuracy(score, noise_multiplier="calibrate", records=280)
    mechanism = DPSGD(
        model=network, data=train, records=1150, score=ranked,
        noise_multiplier="calibrate", epochs=20, batch_size=128, optimizer=optimiser.lower(),
    )  # fmt: skip
    return mechanism, PublicAccuracy(held_out)


def tuned(optimiser: str, epsilon: float, repetitions: int = REPETITIONS) -> dict[str, Any]:
    """Held-out accuracies of what ``dphypo.tune`` releases, by its own defaults."""
    torch.set_num_threads(1)
    mechanism, held_out = declare(optimiser)
    space = SPACES[optimiser]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuning = plan_tuning(space, mechanism, epsilon=epsilon, delta=DELTA)
        found = []
        for seed in range(repetitions):
            stages = Stages.of(tuning.declare(space, DELTA, private=False), journal=None, entropy=Seeded(seed))
            found.append(float(held_out(stages.run(progress=False).model)))
            print(optimiser, epsilon, seed, round(found[-1], 4), flush=True)
    plan = tuning.survey
    return {
        "optimiser": optimiser, "epsilon": epsilon, "runs": plan.runs, "fraction": plan.fraction,
        "compute": round(tuning.compute, 3), "price": round(tuning.price, 4), "accuracies": found,
        "mean": round(float(np.mean(found)), 4),
        "half": round(1.96 * float(np.std(found, ddof=1)) / len(found) ** 0.5, 4), "worst": round(min(found), 4),
    }  # fmt: skip


def measured() -> dict[str, Any]:
    """Both optimisers at ε = 8."""
    return {"rows": [tuned(optimiser, 8.0) for optimiser in SPACES]}
