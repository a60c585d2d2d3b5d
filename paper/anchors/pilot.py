"""The structure of full runs, chosen on Fashion-MNIST's training records alone: a part of them is held out and judges.

Every structure of the plan is trained at thirteen learning rates. The one whose smoothed accuracy is highest at its
best learning rate is used for all linear tasks. It is charged to nobody, which the page says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from paper.anchors import tasks
from paper.anchors.structure import Structure
from paper.anchors.ways import Bench, smooth
from paper.data.sets import Images, load


def without_test(images: Images, held_out: int, seed: int) -> Images:
    """Training pictures alone; some of them, at random, stand for the test."""
    order = np.random.default_rng(seed).permutation(len(images.train))
    judge, rest = order[:held_out], order[held_out:]
    return Images(images.train[rest], images.train_labels[rest], images.train[judge], images.train_labels[judge])


def structure_of(stated: dict[str, Any]) -> Structure:
    """Of a plan's values, which hold the factor of short runs as well."""
    return Structure(**{name: value for name, value in stated.items() if name != "factor"})


def pilot(plan: dict[str, Any], folder: Path, device: str, seed: int) -> dict[str, Any]:
    """Curves of every structure, and the name of the best."""
    images = without_test(load("fashion", folder), plan["held out"], seed)
    task = tasks.Task("fashion", len(images.train), 0.0)
    trainer = tasks.linear(task, images, 0.0, device, seed)
    found = {}
    for name, stated in plan["structures"].items():
        structure, times = structure_of(stated), plan["repetitions"]
        bench = Bench(task, structure, trainer, 0.0, seed, tests=plan["held out"])
        rates = structure.pilot_rates
        right = bench.accuracies(bench.runs(np.repeat(rates, times), plan["noise"])).reshape(-1, times)
        best = smooth(right.mean(axis=1))
        found[name] = {"rates": rates.round(6).tolist(), "accuracies": right.round(4).tolist(),
                       "best": round(float(best.max()), 5), "at": round(float(rates[best.argmax()]), 6)}  # fmt: skip
        print("pilot", name, found[name]["best"], "at", found[name]["at"], flush=True)
    return {"structures": found, "chosen": max(found, key=lambda name: found[name]["best"])}
