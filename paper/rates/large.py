"""Linear models on large tables, where noise no longer limits the rate: ``python -m paper rates-large``.

They are trained by a simulation, many rates at a time on the same batches: this measures utility, and nothing is
released. All ways but the decreasing rate are means of the same iterates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from dphypo.mechanisms import SampledGaussian
from dphypo.mechanisms.sampled_gaussian import rate_of_drift
from paper.rates.landscapes import FILE, sigma
from paper.rates.tasks import Task, task

OUT = FILE.with_name("large.jsonl")
TASKS = {"rodents": 30_000, "adult": 28_000, "votes": 40_000, "stops": 47_000, "wages": 53_000, "schooling": 57_000}
MORE = (("tweets", 15_000, 8), ("tweets", 15_000, 3), ("loans", 7500, 8), ("mnist", 20_000, 8), ("mnist", 20_000, 3))
"""Fitted tasks with many columns, or few records, and little noise."""
GRID = [float(f"{10**power:.4g}") for power in np.arange(-1.75, 1.76, 0.25)]
SEEDS, DECAY, FEWEST, FRACTION = 2, 0.97, 30, 0.05
KEYS = ("task", "records", "epsilon")
Shares = Callable[[int, int], float]


def eighth(step: int, steps: int) -> float:
    """An exponential mean of about the last eighth of the iterates."""
    return exponential(step, steps, 1 - 8 / steps)


def exponential(step: int, steps: int, decay: float = DECAY) -> float:
    """An exponential mean of the iterates, as ``DPSGD`` takes it."""
    return 1 - min(decay, (2 + step) / (11 + step))


def half(step: int, steps: int) -> float:
    """The mean of the last half."""
    return 1 / max(1, step + 1 - steps // 2)


def trained(
    data: Task, records: int, run: SampledGaussian, rates: Tensor, seed: int, shares: dict[str, Shares],
    schedule: Callable[[float], float | Tensor] = lambda done: 1.0,
) -> dict[str, list[float]]:  # fmt: skip
    """The test accuracy at each rate, for each mean of the iterates."""
    random = torch.Generator().manual_seed(seed)
    inputs = functional.pad(torch.from_numpy(data.inputs[:records]).flatten(1), (0, 1), value=1.0)
    tests = functional.pad(torch.from_numpy(data.test_inputs).flatten(1), (0, 1), value=1.0)
    labels, width = torch.from_numpy(data.labels[:records]), inputs.shape[1]
    begun = (torch.rand(width, data.classes, generator=random) * 2 - 1) / (width - 1) ** 0.5
    weights = begun[:, None].repeat(1, len(rates), 1)  # input, rate, class
    norms, size = inputs.norm(dim=1), run.rate * records
    means = {name: weights.clone() for name in shares}
    for step in range(run.steps):
        chosen = torch.nonzero(torch.rand(records, generator=random) < run.rate)[:, 0]
        batch, targets = inputs[chosen], functional.one_hot(labels[chosen], data.classes)
        errors = torch.softmax((batch @ weights.flatten(1)).view(len(batch), *weights.shape[1:]), -1) - targets[:, None]
        scales = 1 / (errors.norm(dim=2) * norms[chosen, None] + 0.01)
        sums = (batch.T @ (errors * scales[..., None]).flatten(1)).view_as(weights)
        sums += run.noise_multiplier * torch.randn(weights.shape, generator=random)
        weights = weights - (rates * schedule(step / run.steps) / size)[:, None] * sums
        for name, share in shares.items():
            means[name] += (weights - means[name]) * share(step, run.steps)
    truth = torch.from_numpy(data.test_labels)[:, None]
    found = {}
    for name, mean in means.items():
        outputs = (tests @ mean.flatten(1)).view(len(tests), *mean.shape[1:])
        found[name] = (outputs.argmax(2) == truth).double().mean(0).tolist()
    return found


def landscape(cell: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The accuracies of a cell at all its drifts, of full runs and of short ones."""
    data, records = task(cell["task"], folder), cell["records"]
    noise, size, steps = sigma(records, cell["epsilon"])
    run = SampledGaussian(rate=size / records, steps=steps, noise_multiplier=noise)
    fraction = max(FRACTION, FEWEST / steps)
    short = SampledGaussian(rate=run.rate, steps=round(steps * fraction), noise_multiplier=noise / fraction**0.5)
    means: dict[str, Shares] = {"now": exponential, "last eighth": eighth, "last half": half}
    ways: dict[str, list[list[float]]] = {}
    last: dict[str, Shares] = {"decreasing": exponential}
    brief: dict[str, Shares] = {"short": exponential}
    both: dict[str, Shares] = {"short, decreasing": exponential}
    for seed in range(SEEDS):
        for which, mean, schedule in (
            (run, means, None), (run, last, lambda done: 1 - done),
            (short, brief, None), (short, both, lambda done: 1 - done),
        ):  # fmt: skip
            rates = torch.tensor([rate_of_drift(c, which, batch_size=size, schedule=schedule) for c in GRID])
            more = {} if schedule is None else {"schedule": schedule}
            for name, found in trained(data, records, which, rates, seed, mean, **more).items():
                ways.setdefault(name, []).append([round(one, 4) for one in found])
    facts = {"noise": round(noise, 5), "batch": size, "steps": steps, "classes": data.classes}
    facts |= {"scale": round(data.scale, 4), "norm": round(data.norm, 4), "fraction": fraction}
    return {**cell, **facts, "ways": ways}


def cells() -> Iterator[dict[str, Any]]:
    """What is trained, as PLAN.md says."""
    for epsilon in (3, 8):
        for name, records in TASKS.items():
            yield {"task": name, "records": records, "epsilon": epsilon}
    for name, records, epsilon in MORE:
        yield {"task": name, "records": records, "epsilon": epsilon}
    for records, epsilon in ((3000, 4), (10_000, 2), (1000, 4), (3000, 1), (1000, 1)):
        for name in ("rodents", "wages", "stops", "schooling", "adult", "loans", "tweets"):
            yield {
                "task": name,
                "records": 7500 if (name, records) == ("loans", 10_000) else records,
                "epsilon": epsilon,
            }
    for name, records in TASKS.items():
        yield {"task": name, "records": records, "epsilon": 1}


def write(folder: Path, out: Path = OUT) -> None:
    """Train what is not in the file yet."""
    torch.set_num_threads(1)
    lines = out.read_text().splitlines() if out.exists() else []
    done = {tuple(json.loads(line)[key] for key in KEYS) for line in lines}
    for cell in cells():
        if tuple(cell[key] for key in KEYS) not in done:
            found = landscape(cell, folder)
            with out.open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(*(found[key] for key in KEYS))
            for name, each in found["ways"].items():
                print("  ", name, np.round(np.mean(each, axis=0), 3).tolist(), flush=True)
