"""Persons beside views of the same number: `python -m benchmarks.persons` prints CPU seconds of a run, and their ratio.

Both train with batches of 64 records and eight rows each: drawn rows of a person, or views of one row. They are made in
turns; the ratio is the median of those of the turns, the times are the smallest.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from torch import nn

from dphypo.torch import DPSGD

ROWS, EACH, TIMES = 4000, 8, 15


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def convolutional() -> nn.Module:
    first = nn.Conv2d(1, 16, 3, padding=1)
    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)), first, nn.ReLU(), nn.Flatten(), nn.Linear(1024, 10))


def main() -> None:
    random = np.random.default_rng(0)
    inputs, labels = random.normal(size=(ROWS, 64)).astype(np.float32), random.integers(0, 10, ROWS)
    few, options = ROWS // EACH, {"noise_multiplier": 1.0, "epochs": 4, "batch_size": 64, "device": "cpu"}
    for model in (perceptron, convolutional):
        given: dict[str, Any] = {"model": model, "score": lambda model: 0.0, **options}
        made = {
            "views": DPSGD(data=(inputs[:few], labels[:few]), views=EACH, **given),
            "persons": DPSGD(data=(inputs, labels), person=np.arange(ROWS) // EACH, rows_per_person=EACH, **given),
        }
        taken: dict[str, list[float]] = {name: [] for name in made}
        for seed in range(TIMES):
            for name, one in made.items():
                start = time.process_time()
                one({}, seed=seed)
                taken[name].append(time.process_time() - start)
        views, persons = (min(taken[name]) for name in ("views", "persons"))
        ratio = statistics.median(np.divide(taken["persons"], taken["views"]))
        print(f"{model.__name__}: views {views:.3f} s, persons {persons:.3f} s, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
