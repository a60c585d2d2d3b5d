"""How the rate of a linear model with little noise should decrease: ``python -m paper rates-shapes``.

Fitted tasks alone, by the simulation of :mod:`paper.rates.large`: all shapes and drifts see the same batches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dphypo.mechanisms import SampledGaussian
from dphypo.mechanisms.sampled_gaussian import rate_of_drift
from dphypo.search.rates import ABOUT_THE_MEAN, MOVEMENT
from paper.rates.landscapes import FILE, sigma
from paper.rates.large import KEYS, exponential, trained
from paper.rates.large import OUT as LARGE
from paper.rates.tasks import task

OUT = FILE.with_name("shapes.jsonl")
FACTORS = [float(f"{2**power:.4g}") for power in np.arange(-1, 3.01, 0.5)]
"""Of the known drift, the scale told."""
TRIED = [1.0, 1.25, 1.5, round(3**0.5, 3), 2.0]
"""Factors among which one is chosen."""
ALIKE = 0.0005
SEEDS, OF_PICTURES, LEAST, MORE = 12, 4, 20.0, (("mnist", 50_000, 3), ("mnist", 50_000, 8))


def falling(done: float, last: float, end: float) -> float:
    """Constant, then over the last share of the steps in proportion to those that are left, to ``end``."""
    return 1.0 if done <= 1 - last else end + (1 - end) * (1 - done) / last


SHAPES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "to zero": lambda done: 1.0 - done,
    **{f"to zero over the last {last:g}": partial(falling, last=last, end=0.0) for last in (0.5, 0.25, 0.1)},
    **{f"to {end:g}": partial(falling, last=1.0, end=end) for end in (0.1, 0.25)},
}


def cells() -> Iterator[dict[str, Any]]:
    """The cells of ``rates-large`` with a ρ of 20 and more, and two on pictures."""
    for line in LARGE.read_text().splitlines():
        cell = json.loads(line)
        if cell["batch"] / (cell["noise"] * cell["steps"] ** 0.5) >= LEAST:
            yield {key: cell[key] for key in KEYS}
    yield from (dict(zip(KEYS, one, strict=True)) for one in MORE)


def landscape(cell: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The accuracies of a cell for each shape, seed and factor of the known drift."""
    data, records = task(cell["task"], folder), cell["records"]
    noise, size, steps = sigma(records, cell["epsilon"])
    run = SampledGaussian(rate=size / records, steps=steps, noise_multiplier=noise)
    known = MOVEMENT["normalise"][0] / data.scale
    seeds = OF_PICTURES if cell["task"] == "mnist" else SEEDS
    rates = torch.tensor([
        rate_of_drift(known * factor, run, batch_size=size, schedule=shape)
        for shape in SHAPES.values() for factor in FACTORS
    ])  # fmt: skip

    def schedule(done: float) -> Tensor:
        return torch.tensor([shape(done) for shape in SHAPES.values()]).repeat_interleave(len(FACTORS))

    each = [trained(data, records, run, rates, seed, {"": exponential}, schedule)[""] for seed in range(seeds)]
    found = np.round(each, 4).reshape(seeds, len(SHAPES), len(FACTORS)).transpose(1, 0, 2)
    facts = {"noise": round(noise, 5), "batch": size, "steps": steps, "classes": data.classes}
    facts |= {"scale": round(data.scale, 4), "norm": round(data.norm, 4)}
    return {**cell, **facts, "shapes": dict(zip(SHAPES, found.tolist(), strict=True))}


def write(folder: Path, out: Path = OUT) -> None:
    """Train what is not in the file yet."""
    torch.set_num_threads(1)
    lines = out.read_text().splitlines() if out.exists() else []
    done = [tuple(json.loads(line)[key] for key in KEYS) for line in lines]
    for cell in cells():
        if tuple(cell.values()) not in done:
            found = landscape(cell, folder)
            with out.open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(*cell.values(), flush=True)


def gains() -> dict[str, dict[str, list[float]]]:
    """For each shape and each factor that was tried, the gain of each task, the scale told, and then bought.

    A gain is what a run is more accurate than one at a constant rate at the known drift, the scale told.
    """
    found = [json.loads(line) for line in OUT.read_text().splitlines()]
    tasks = sorted({cell["task"] for cell in found})

    def gain(cell: dict[str, Any], shape: str, factor: float) -> float:
        means = {name: np.mean(cell["shapes"][name], axis=0) for name in (shape, "constant")}
        return float(np.interp(np.log(factor), np.log(FACTORS), means[shape]) - means["constant"][FACTORS.index(1.0)])

    def by_task(shape: str, factor: float, *, bought: bool) -> list[float]:
        def of(cell: dict[str, Any]) -> float:
            return factor * (cell["scale"] / (ABOUT_THE_MEAN * cell["norm"]) if bought else 1.0)

        return [float(np.mean([gain(cell, shape, of(cell)) for cell in found if cell["task"] == one])) for one in tasks]

    return {
        shape: {
            f"{factor:g}": by_task(shape, factor, bought=False) + by_task(shape, factor, bought=True)
            for factor in TRIED
        }
        for shape in SHAPES
    }


def chosen() -> tuple[str, float]:
    """The shape and the factor by the rule of the plan: the largest least gain, and then the largest mean."""
    found = gains()
    every = {
        (shape, factor): found[shape][factor] for shape in SHAPES if shape != "constant" for factor in found[shape]
    }
    least = max(map(min, every.values()))
    best = max((one for one in every if min(every[one]) >= least - ALIKE), key=lambda one: float(np.mean(every[one])))
    return best[0], float(best[1])
