"""``tune`` as it is on the linear anchors, everything charged: ``python -m paper rates-judge-anchors``.

One run a line, with the structure that PLAN.md fixes. The Gaussian sums that normalise the features are those of
ANCHORS.md. What they cost is taken from the total, and ``tune`` has the rest.
"""

from __future__ import annotations

import itertools
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
BATCH, PIECE, SEEDS, MOMENTA = 8192, 1024, range(3), (0.9, 0.0)
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


def structure(name: str, momentum: float) -> dict[str, Any]:
    """What a user states of a run: batches and steps; with momentum also a mean over about the last eighth of them."""
    steps, records = STEPS[name], TASKS[name].records
    how = {"records": records, "batch_size": BATCH, "epochs": steps * BATCH / records, "physical_batch_size": PIECE}
    return {**how, "average": 1 - 8 / steps, "fixed": {"momentum": momentum}} if momentum else how


def left(name: str, momentum: float, data: Task, cell: dict[str, Any]) -> tuple[float, float]:
    """The ε that the sums leave to ``tune``, and what all of it costs together."""
    made, task = mechanism(data, cell, **structure(name, momentum)), TASKS[name]
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
    name, momentum = named["task"], named["momentum"]
    data = features(name, folder)
    cell = {"network": "linear", "records": len(data.inputs)}
    rest, both = left(name, momentum, data, cell)
    began = time.time()
    found = tuned(data, {**cell, "epsilon": rest}, None, [named["seed"]], **structure(name, momentum))
    return {"rest": rest, "total": round(both, 4), **found, "seconds": round(time.time() - began)}


def write(folder: Path, seconds: float = float("inf")) -> None:
    """Train what is not in the file yet, until the time is over."""
    torch.set_num_threads(1)
    end = time.time() + seconds
    for momentum in MOMENTA:
        for name in STEPS:
            for seed in SEEDS:
                named = {"task": name, "momentum": momentum, "seed": seed}
                _once(OUT, named, partial(trained, named, folder), end)


def rows() -> Iterator[dict[str, Any]]:
    """One task and structure a row: accuracies beside "ours" in ANCHORS.md, and the interval of the difference."""
    for momentum, name in itertools.product(MOMENTA, STEPS):
        some = [line for line in _lines(OUT) if (line["task"], line["momentum"]) == (name, momentum)]
        if len(some) < 2:
            continue
        path = FILE.parents[1] / "anchors" / f"anchors-{name}.json"
        ours = json.loads(path.read_text())["ways"]["ours"]["released"]
        reached = [value for line in some for value in line["accuracies"]]
        most = {key: max(line[key] for line in some) for key in ("compute", "total")}
        yield {
            "task": name, "momentum": momentum, "seeds": len(reached), **most,
            "mean": float(np.mean(reached)), "worst": min(reached),
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
            row["task"], f"{row['momentum']:g}", shown(row), f"{row['worst']:.4f}", f"{row['seeds']}",
            f"{row['compute']:.2f}", f"{row['total']:.3f}", f"{row['ours']:.4f}",
            f"{row['mean'] - row['ours']:+.4f} ± {row['half']:.4f}", "yes" if falls(row) else "no",
        ]
        for row in rows()
    ]  # fmt: skip
    heads = ["task", "momentum", "tune", "worst", "seeds", "compute", "ε, all charged", "ours", "difference", "falls"]
    return markdown(heads, lines)
