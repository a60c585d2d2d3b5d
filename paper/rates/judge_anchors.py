"""``tune`` as it is on the linear anchors, everything charged: ``python -m paper rates-judge-anchors``.

One run a line, with the structure that PLAN.md fixes. The Gaussian sums that normalise the features are those of
ANCHORS.md. What they cost is taken from the total, and ``tune`` has the rest.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dphypo.accounting import Composition
from dphypo.search.tune import plan_tuning
from paper.anchors.charges import DELTA, EPSILON, Part
from paper.anchors.normalise import Normaliser, recipe
from paper.anchors.run import PLANS
from paper.anchors.tasks import TASKS
from paper.data.sets import load
from paper.rates.judge import _lines, _once, interval, mechanism, tuned
from paper.rates.landscapes import FILE
from paper.rates.tasks import Task
from paper.report.markdown import markdown

OUT = FILE.with_name("judged-anchors.jsonl")
BATCH, PIECE, SEEDS = 8192, 1024, range(5)
STEPS = {"mnist": 800, "fashion": 800, "cifar10": 400}


def features(name: str, folder: Path) -> Task:
    """The normalised features of a task; they take up to half an hour the first time, and are then kept."""
    images = load(TASKS[name].data, folder)
    kept = [folder / f"anchors-{name}-{part}.npy" for part in ("train", "test")]
    if not kept[1].exists():
        seed = json.loads(PLANS.read_text())["seed"]
        made = Normaliser(recipe(TASKS[name].recipe), TASKS[name].statistics, "cpu", seed).fitted(images.train)
        for path, pictures in zip(kept, (images.train, images.test), strict=True):
            np.save(path, made.of(pictures).flatten(1).numpy())
    train, test = (np.load(path, mmap_mode="c") for path in kept)
    return Task(train, images.train_labels.astype(np.int64), test, images.test_labels.astype(np.int64))


def structure(name: str) -> dict[str, Any]:
    """What a user states of a run: batches, steps, momentum, and a mean over about the last eighth of the steps."""
    steps, records = STEPS[name], TASKS[name].records
    return {
        "records": records, "batch_size": BATCH, "epochs": steps * BATCH / records, "physical_batch_size": PIECE,
        "average": 1 - 8 / steps, "fixed": {"momentum": 0.9},
    }  # fmt: skip


def left(name: str, data: Task, cell: dict[str, Any]) -> tuple[float, float]:
    """The ε that the sums leave to ``tune``, and what all of it costs together."""
    made, task = mechanism(data, cell, **structure(name)), TASKS[name]
    sums = Composition((Part(task.statistics, "both", count=recipe(task.recipe).sums).term(),))
    epsilon = EPSILON
    while True:
        tuning = plan_tuning(made.default_space(), made, epsilon=epsilon, delta=DELTA, search="auto")
        both = Composition.of(sums, tuning.guarantee).epsilon(DELTA)
        if both <= EPSILON:
            return epsilon, both
        epsilon = round(math.floor(1000 * (epsilon - (both - EPSILON))) / 1000, 3)


def trained(named: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One release on a task."""
    data = features(named["task"], folder)
    cell = {"network": "linear", "records": len(data.inputs)}
    rest, both = left(named["task"], data, cell)
    began = time.time()
    found = tuned(data, {**cell, "epsilon": rest}, None, [named["seed"]], **structure(named["task"]))
    return {"rest": rest, "total": round(both, 4), **found, "seconds": round(time.time() - began)}


def write(folder: Path, seconds: float = float("inf")) -> None:
    """Train what is not in the file yet, until the time is over: three seeds of every task, and then one at a time."""
    torch.set_num_threads(1)
    end = time.time() + seconds
    rounds = [SEEDS[:3], *((seed,) for seed in SEEDS[3:])]
    for some in rounds:
        for name in STEPS:
            for seed in some:
                named = {"task": name, "seed": seed}
                _once(OUT, named, partial(trained, named, folder), end)


def rows() -> Iterator[dict[str, Any]]:
    """One task a row: accuracies beside those of "ours" in ANCHORS.md, and the interval of the difference."""
    for name in STEPS:
        some = [line for line in _lines(OUT) if line["task"] == name]
        if len(some) < 2:
            continue
        path = FILE.parents[1] / "anchors" / f"anchors-{name}.json"
        ours = json.loads(path.read_text())["ways"]["ours"]["released"]
        reached = [value for line in some for value in line["accuracies"]]
        most = {key: max(line[key] for line in some) for key in ("compute", "runs", "total", "price")}
        yield {
            "task": name, "seeds": len(reached), "mean": float(np.mean(reached)), "worst": min(reached), **most,
            "own half": 1.96 * float(np.std(reached, ddof=1)) / math.sqrt(len(reached)),
            "ours": float(np.mean(ours)), "half": interval(reached, ours),
        }  # fmt: skip


def falls(row: dict[str, Any]) -> bool:
    """Whether a row is below that of ANCHORS.md by more than the interval."""
    return bool(row["mean"] < row["ours"] - row["half"])


def shown(row: dict[str, Any]) -> str:
    """The mean and its interval."""
    return f"{row['mean']:.4f} ± {row['own half']:.4f}"


def beside() -> str:
    """What was reached, beside "ours" of ANCHORS.md."""
    lines = [
        [
            TASKS[row["task"]].data, shown(row), f"{row['worst']:.4f}", f"{row['seeds']}", f"{row['runs']}",
            f"{row['compute']:.2f}", f"{row['total']:.3f}", f"{row['ours']:.4f}",
            f"{row['mean'] - row['ours']:+.4f} ± {row['half']:.4f}", "yes" if falls(row) else "no",
        ]
        for row in rows()
    ]  # fmt: skip
    heads = ["task", "tune", "worst", "seeds", "short runs", "compute", "ε, all charged", "ours", "difference", "falls"]
    return markdown(heads, lines)
