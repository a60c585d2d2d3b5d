"""The second pilot: recipes of features, structures and lengths of surveys, on training records alone.

Ten thousand training records of each data set are held out and judge; no test set is read. What was made is in
``results/anchors/recipes.json``. It is charged to nobody, which the page says.

    python -m paper.anchors.recipe_pilot --data data --out paper/results/anchors --device cuda
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paper.anchors import tasks
from paper.anchors.scatter_cnn import network
from paper.anchors.structure import ADAM_1600 as LONG
from paper.anchors.structure import EIGHTH, Structure
from paper.anchors.tasks import Task
from paper.anchors.ways import Bench, smooth, survey
from paper.data.sets import Images, load
from paper.train.landscape import provenance

SEED, HELD_OUT, NOISE, SHARE = 284_000, 10_000, 1.4, 1 / 6
SCORE_NOISE = 10.0  # of one score on its count; n scores have √n times as much
BASE = Structure(800, average=EIGHTH)
NETWORK = Structure(400, average=EIGHTH, batch=8192)
RECIPES = {
    "fashion": ("groups", "channels", "groups, centred", "channels, centred"),
    "mnist": ("groups", "channels", "groups, centred", "channels, centred"),
    "cifar10": ("channels", "channels, mirrored", "channels, centred, mirrored", "groups, centred, mirrored"),
}
STRUCTURES = {
    "momentum, 400 steps": replace(BASE, steps=400),
    "momentum, 1600 steps": replace(BASE, steps=1600),
    "momentum, averaged over a quarter": replace(BASE, average=0.25),
    "momentum, averaged over a half": replace(BASE, average=0.5),
    "momentum, clipped to 10": replace(BASE, clip=10.0),
    "momentum, clipped to 30": replace(BASE, clip=30.0),
    "Adam, 1600 steps": LONG,
}
# Structure, runs, fraction, and learning rate of short runs over the full run's by the library's rehearsal.
SURVEYS = {
    "momentum, 8 of 0.05": (BASE, 8, 0.05, 1.20984),
    "momentum, 5 of 0.063": (BASE, 5, 0.063, 1.15173),
    "momentum, 12 of 0.041": (BASE, 12, 0.041, 1.25078),
    "Adam, 8 of 0.05": (LONG, 8, 0.05, 4.01192),
}
NETWORKS = {
    "as it was": ("channels", NETWORK, (0.4,)),
    "mirrored": ("channels, mirrored", NETWORK, (0.4, 0.57)),
    "centred, mirrored": ("channels, centred, mirrored", NETWORK, (0.4, 0.57)),
    "mirrored, averaged over a quarter": ("channels, mirrored", replace(NETWORK, average=0.25), (0.57,)),
    "mirrored, 800 steps": ("channels, mirrored", replace(NETWORK, steps=800), (0.2, 0.28)),
}
NETWORK_NOISE = 0.235


def without_test(images: Images, held_out: int, seed: int) -> Images:
    """Training pictures alone; some of them, at random, stand for the test."""
    order = np.random.default_rng(seed).permutation(len(images.train))
    judge, rest = order[:held_out], order[held_out:]
    return Images(images.train[rest], images.train_labels[rest], images.train[judge], images.train_labels[judge])


def curve(bench: Bench, rates: Any, noise: float, times: int) -> dict[str, Any]:
    """Accuracy at every learning rate."""
    right = bench.accuracies(bench.runs(np.repeat(rates, times), noise)).reshape(-1, times)
    best = smooth(right.mean(axis=1)) if len(rates) > 2 else right.mean(axis=1)
    return {"rates": np.round(rates, 6).tolist(), "accuracies": right.round(4).tolist(),
            "best": round(float(best.max()), 5), "at": round(float(rates[best.argmax()]), 6)}  # fmt: skip


def linear_models(name: str, images: Images, device: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every recipe; then structures and surveys on the best of them."""
    found, best, times = {}, None, 2 if name == "cifar10" else 4
    for words in RECIPES[name]:
        task = Task(name, len(images.train), 0.0, recipe=words)
        trainer = tasks.linear(task, images, SHARE, device, SEED)
        bench = Bench(task, BASE, trainer, SHARE, SEED, tests=HELD_OUT)
        found[words] = curve(bench, BASE.pilot_rates, NOISE, times)
        yield f"{name} | {words}", found[words]
        if found[words]["best"] == max(one["best"] for one in found.values()):
            best = bench
    assert best is not None
    for words, (structure, count, fraction, factor) in SURVEYS.items():
        bench = replace(best, structure=structure, factor=factor, seed=SEED + 500)
        way = {"count": count, "fraction": fraction, "noise": 1.01 * NOISE, "score noise": SCORE_NOISE * count**0.5}
        made = survey(bench, way, 24 if name == "cifar10" else 48)
        released, picked = made["released"], made["picked"]
        yield f"{name} | {best.task.recipe} | survey: {words}", {
            "best": round(float(released.mean()), 5), "worst": round(float(released.min()), 4),
            "half": round(1.96 * float(released.std(ddof=1)) / len(released) ** 0.5, 5),
            "at": round(float(np.exp(np.log(picked).mean())), 6), "spread": round(float(np.log(picked).std()), 3),
        }  # fmt: skip
    for words, structure in STRUCTURES.items():
        bench = replace(best, structure=structure, seed=SEED + 900)
        yield f"{name} | {best.task.recipe} | {words}", curve(bench, structure.pilot_rates, NOISE, times)


def networks(images: Images, device: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """One run at each learning rate."""
    for words, (recipe, structure, rates) in NETWORKS.items():
        task = Task("cifar10", len(images.train), 0.0, recipe=recipe, model="cnn")
        bench = Bench(task, structure, network(task, images, SHARE, device, SEED), SHARE, SEED, most=1, tests=HELD_OUT)
        yield f"network | {words}", curve(bench, np.array(rates), NETWORK_NOISE, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Recipes, structures and surveys on training records.")
    parser.add_argument("parts", nargs="*", default=["mnist", "fashion", "network", "cifar10"])
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    found, began = {"provenance": json.loads(provenance(seed=SEED))}, time.time()
    for name in options.parts:
        images = without_test(load("cifar10" if name == "network" else name, options.data), HELD_OUT, SEED)
        made = networks(images, options.device) if name == "network" else linear_models(name, images, options.device)
        for words, one in made:
            print(round(time.time() - began, 1), words, one["best"], "at", one["at"], one.get("half", ""), flush=True)
            found[words] = one
            (options.out / "recipes.json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
