"""Accuracy against the learning rate in full and short runs, to judge transfer rules: several tasks, two optimisers.

For every rule the short runs are made as the rule says, at the same λ (the full run's learning rate), so a rule is good
if its short runs are best where full runs are. ``python -m paper.anchors.curves --out results --device cuda`` trains
them; :mod:`paper.anchors.judge` simulates surveys on them. What is trained is in ``curves.json``, frozen before.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paper.anchors import tasks
from paper.anchors.trainer import Floats, Records, Runs
from paper.data.sets import load
from paper.train.descent import Memories
from paper.train.landscape import gradients_for, provenance
from paper.train.run import Data, Settings, right, train

FILE = Path(__file__).with_name("curves.json")
Accuracies = Callable[[Floats, float, int, Memories, int], Floats]
"""Of runs at learning rates with a noise, a number of steps, memories and a seed: accuracy on the test."""


def convolutional(data: str, folder: Path, device: str, batch: int, most: int) -> Accuracies:
    """The network of DP-HyPO's paper from pixels; models of a group share their Poisson batches."""
    pictures = Data.of(load(data, folder), device)
    gradients = gradients_for(pictures)

    @torch.no_grad()
    def accuracies(rates: Floats, noise: float, steps: int, memories: Memories, seed: int) -> Floats:
        found = []
        for number, begin in enumerate(range(0, len(rates), most)):
            part = rates[begin : begin + most]
            ones = np.ones(len(part))
            settings = Settings(part, ones, noise * ones, steps, batch, memories)
            models, _ = train(pictures, settings, seed + number, gradients=gradients)
            found.append(right(pictures, models, gradients) / len(pictures.test))
        return np.concatenate(found)

    return accuracies


def scattered(data: str, folder: Path, device: str, batch: int, most: int) -> Accuracies:
    """A linear model on scattering features; every run has batches of its own."""
    task = replace(tasks.TASKS[data], recipe="groups" if data == "fashion" else "channels")  # of the second plan
    trainer = tasks.linear(task, load(data, folder), 0.0, device, 0)
    rate = batch / len(trainer.features)

    def accuracies(rates: Floats, noise: float, steps: int, memories: Memories, seed: int) -> Floats:
        ones = np.ones(len(rates))
        runs = Runs(rates, ones, noise * ones, steps, rate, batch, Records.ALL, seed, memories)
        groups = [runs.part(slice(begin, begin + most), seed + begin) for begin in range(0, len(runs), most)]
        right = [trainer.correct(trainer.train(group), test=True) for group in groups]
        return np.concatenate(right) / len(trainer.test)

    return accuracies


def digits(data: str, folder: Path, device: str, batch: int, most: int) -> Accuracies:
    """The small network of ``python -m paper transfer`` on made-up clusters or scikit-learn's digits."""
    from paper.experiments import transfer

    def accuracies(rates: Floats, noise: float, steps: int, memories: Memories, seed: int) -> Floats:
        return transfer.accuracies("given", rates, 1.0, noise, steps, seed, data, memories)

    return accuracies


KINDS = {"convolutional": convolutional, "scattered": scattered, "digits": digits}


def trained(name: str, plan: dict[str, Any], folder: Path, device: str) -> dict[str, Any]:
    """All curves of one task, a row for each repetition."""
    began = time.time()
    accuracies = KINDS[plan["kind"]](plan["data"], folder, device, plan["batch"], plan["most"])
    found: dict[str, Any] = {"plan": plan, "curves": {}}
    for which, (optimiser, one) in enumerate(plan["optimisers"].items()):
        rates, seed = np.array(one["rates"]), plan["seed"] + 10_000 * which
        rows: dict[str, Any] = {}
        for place, (words, run) in enumerate(one["runs"].items()):
            memories, times = Memories(*run["memories"]), plan["repetitions"]
            groups = [np.tile(rates * run["factor"], times)]
            if plan["kind"] == "digits":  # which trains every rate at once, one repetition a time
                groups = np.split(groups[0], times)
            got = [
                accuracies(part, run["noise"], run["steps"], memories, seed + 1000 * place + number)
                for number, part in enumerate(groups)
            ]
            rows[words] = np.concatenate(got).reshape(times, -1).round(4).tolist()
            print(name, optimiser, words, np.mean(rows[words], axis=0).round(3).tolist(), flush=True)
        found["curves"][optimiser] = rows
    return found | {"seconds": round(time.time() - began, 1), "provenance": json.loads(provenance())}


def main() -> None:
    parser = argparse.ArgumentParser(description="Curves on which transfer rules are judged.")
    parser.add_argument("tasks", nargs="*", help="by default all of the plan")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    plans = json.loads(FILE.read_text())
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.tasks or plans:
        found = trained(name, plans[name], options.data, options.device)
        (options.out / f"curves-{name}.json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
