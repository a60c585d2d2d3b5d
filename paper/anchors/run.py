"""Run the frozen plan on one device: ``python -m paper.anchors.run --data data --out results --device cuda``.

It needs PyTorch, numpy and scipy, and neither the library nor an accountant. The file of a task is written after every
way to tune, so that what is done is kept if time runs out, and what is in it is not made again.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from paper.anchors import tasks
from paper.anchors.probes import probes
from paper.anchors.structure import Structure
from paper.anchors.tasks import Task
from paper.anchors.trainer import Trainer
from paper.anchors.ways import KINDS, Bench
from paper.data.sets import load
from paper.train.landscape import provenance

PLANS = Path(__file__).with_name("plans.json")


class Trainers:
    """The trainer of a task for any share of records that score; features are made once."""

    def __init__(self, task: Task, folder: Path, device: str, seed: int) -> None:
        images = load(task.data, folder)
        self._records, self._device = len(images.train), device
        if task.model == "cnn":
            from paper.anchors.scatter_cnn import network

            self._trainer: Any = network(task, images, 0.0, device, seed)
        elif task.model == "wide":
            from paper.anchors.wide import wide

            self._trainer = wide(images, 0.0, device)
        else:
            self._trainer = tasks.linear(task, images, 0.0, device, seed)

    def at(self, share: float) -> Trainer:
        """With this share of the records on the scoring side."""
        scores = torch.as_tensor(tasks.sides(self._records, share), device=self._device)
        made: Trainer = replace(self._trainer, scores=scores)
        return made


def run(name: str, number: int, way: dict[str, Any], plans: dict[str, Any], trainers: Trainers, path: Path) -> None:
    """One way to tune a task; what it reached is added to the file."""
    declared = plans["tasks"][name]
    task, full = Task(**declared["task"]), Structure(**declared["structure"])
    structure = Structure(**way["structure"]) if "structure" in way else full
    result: dict[str, Any] = {"task": name, "ways": {}}
    if path.exists():
        result = json.loads(path.read_text())
    if way["name"] in result["ways"]:
        return
    began, share, searches = time.time(), way.get("share", 0.0), way.get("searches", task.searches)
    seed = plans["seed"] + task.seed + 1000 * (number + 1)
    bench = Bench(task, structure, trainers.at(share), share, seed, way.get("factor", 1.0))
    bench.most = 96 if task.model == "linear" else 1
    found = (probes if way["kind"] == "probes" else KINDS[way["kind"]])(bench, way, searches)
    released = found.pop("released")
    found["picked"] = found["picked"].round(6).tolist()
    row = {
        "mean": round(float(released.mean()), 5), "worst": round(float(released.min()), 4),
        "half": round(1.96 * float(released.std(ddof=1)) / len(released) ** 0.5, 5) if len(released) > 1 else None,
        "compute": round(bench.examples / searches / full.steps / (full.batch or task.records), 3),
        "seconds": round(time.time() - began, 1),
    }  # fmt: skip
    print(name, way["name"], row, flush=True)
    result["ways"][way["name"]] = {**row, "released": released.round(4).tolist(), **found}
    result["provenance"] = json.loads(provenance(seed=plans["seed"]))
    path.write_text(json.dumps(result) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Published accuracies with the tuning paid for.")
    parser.add_argument("tasks", nargs="*", help="by default all of the plan")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--plans", type=Path, default=PLANS)
    parser.add_argument("--seconds", type=float, default=600.0, help="begin nothing new after so long")
    options = parser.parse_args()
    plans = json.loads(options.plans.read_text())
    torch.backends.cuda.matmul.allow_tf32 = True
    until = time.time() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    names = options.tasks or list(plans["tasks"])
    for name in names:
        task = Task(**plans["tasks"][name]["task"])
        trainers = Trainers(task, options.data, options.device, plans["seed"] + task.seed)
        for number, way in enumerate(plans["tasks"][name]["ways"]):
            if time.time() < until:
                run(name, number, way, plans, trainers, options.out / f"anchors-{name}.json")


if __name__ == "__main__":
    main()
