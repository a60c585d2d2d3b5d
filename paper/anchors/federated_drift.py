"""How far the best server learning rate of short federated runs lies from the full run's, beside both transfer rules.

From the committed landscapes (FedAdagrad, 100 rounds, noise matched).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dphypo.mechanisms import NoiseRehearsal, SampledGaussian
from paper.anchors.trainer import Floats
from paper.simulate.staged_task import TASKS

NOISES = (0.85, 1.36, 2.18)
EXPONENT = 0.1  # of Adagrad in the table that the rehearsal replaced
NEAR = 0.06  # in the loss: client learning rates whose best is within this of the best of all


def fed_adagrad(params: Any, gradients: Any, steps: int) -> Floats:
    """The server's optimiser of the task: a step of the update over the root of the sum of squares, plus 1e-3."""
    weights = total = np.zeros(1)
    for gradient in gradients:
        total = total + gradient**2
        weights = weights + params["learning_rate"] * gradient / (np.sqrt(total) + 1e-3)
    return weights


def tops(scores: Floats, rates: Floats) -> Floats:
    """Log of the best rate and its score, for each client learning rate: a parabola through five smoothed points."""
    found, logs = [], np.log(rates)
    for column in scores.T:
        curve = np.convolve(np.pad(column, 1, mode="edge"), [0.25, 0.5, 0.25], mode="valid")
        place = int(np.clip(curve.argmax(), 2, len(curve) - 3))
        near = slice(place - 2, place + 3)
        bend, slope, _ = np.polyfit(logs[near] - logs[place], curve[near], 2)
        found.append((logs[place] + (np.clip(-slope / (2 * bend), -1.2, 1.2) if bend < 0 else 0), curve.max()))
    return np.array(found)


def rows() -> list[dict[str, Any]]:
    """For each noise and length: the measured factor, the rehearsal's and the table's."""
    task, found = TASKS["federated"], []
    shape = (len(task.grid.first), len(task.grid.second))
    for noise in NOISES:
        full = tops(task.trained(task.full).at(noise).reshape(shape), task.grid.first)
        good = full[:, 1] > full[:, 1].max() - NEAR
        for steps in task.parts:
            fraction = steps / task.full
            cut = tops(task.trained(steps).at(noise / math.sqrt(fraction)).reshape(shape), task.grid.first)
            moved = math.exp(float((cut[:, 0] - full[:, 0])[good].mean()))
            run = SampledGaussian(rate=0.1, steps=task.full, noise_multiplier=noise)
            rule = NoiseRehearsal(fed_adagrad, run, noise / 300)({"learning_rate": 1.0}, fraction)["learning_rate"]
            table = fraction**-EXPONENT
            found.append({"noise": noise, "fraction": fraction, "measured": round(moved, 2),
                          "rehearsal": round(rule, 2), "table": round(table, 2)})  # fmt: skip
    return found
