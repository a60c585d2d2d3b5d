"""Accuracy by learning rate on the tasks that the prior is fitted to: ``python -m paper rates-landscapes``."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dphypo.accounting.calibrate import equal_noise, run_alone
from dphypo.mechanisms import SampledGaussian
from dphypo.torch import DPSGD
from dphypo.training.cost import batch_size, exact
from paper.rates.tasks import Task, network, task

FILE = Path(__file__).parents[1] / "results" / "rates" / "landscapes.jsonl"
FACTS = FILE.with_name("tasks.json")
DELTA, EPOCHS, SEEDS = 1e-5, 20, 2
SCALES = [float(f"{10**power:.4g}") for power in np.arange(-1.75, 1.01, 0.25)]
ADAM = [float(f"{10**power:.4g}") for power in np.arange(-4, -0.99, 0.25)]
FITTED = ("mnist", "adult", "loans", "tweets", "mnist-scattered")
QUIET = (("loans", 7500, 8), ("tweets", 10_000, 8), ("adult", 28_000, 2), ("adult", 28_000, 8), ("mnist", 50_000, 8))
"""Linear models with so little noise that something else may limit the rate."""


def cells() -> Iterator[dict[str, Any]]:
    """What is trained, as PLAN.md says."""
    for name, records, epsilon in QUIET:
        yield {"task": name, "network": "linear", "records": records, "epsilon": epsilon, "way": "quiet"}
    for name in FITTED:
        networks = ["linear"] if name == "mnist-scattered" else ["linear", "mlp"]
        for net in [*networks, *(["cnn"] if name == "mnist" else [])]:
            for records, epsilon in ((1000, 1), (1000, 4), (3000, 1), (3000, 4), (10_000, 2)):
                if net == "cnn" and records == 10_000:
                    continue
                most = 7500 if name == "loans" and records == 10_000 else records
                yield {"task": name, "network": net, "records": most, "epsilon": epsilon, "way": "normalise"}
                if records == 3000:
                    yield {"task": name, "network": net, "records": most, "epsilon": epsilon, "way": "clip"}
                    yield {"task": name, "network": net, "records": most, "epsilon": epsilon, "way": "adam"}


@functools.cache
def sigma(records: int, epsilon: float, epochs: float = EPOCHS, delta: float = DELTA) -> tuple[float, int, int]:
    """The noise of one run that costs ε, its batch size and its steps."""
    size = batch_size(records)

    def run(noise: float) -> SampledGaussian:
        return SampledGaussian.of(records=records, batch_size=size, epochs=epochs, noise_multiplier=noise)

    alone = run_alone(lambda noise: exact(run(noise)), DPSGD.relation)
    noise = equal_noise({None: alone}, epsilon=epsilon, delta=delta)[None]
    return noise, size, run(1.0).steps


def accuracies(
    task: Task, net: str, records: int, noise: float, params: Sequence[dict[str, Any]], seeds: Sequence[int],
    *, schedule: str | None = "constant",
) -> list[float]:  # fmt: skip
    """The test accuracy of each run, many at a time."""
    inputs, labels = torch.from_numpy(task.test_inputs), torch.from_numpy(task.test_labels)

    def score(model: torch.nn.Module) -> float:
        return float((model(inputs).argmax(1) == labels).double().mean())

    made = DPSGD(
        model=lambda: network(net, task), data=(task.inputs[:records], task.labels[:records]), score=score,
        noise_multiplier=noise, epochs=EPOCHS, device="cpu", schedule=schedule,
    )  # fmt: skip
    outcomes = []
    for start in range(0, len(params), 12):
        outcomes += made.many(params[start : start + 12], seeds=seeds[start : start + 12])
    return [0.0 if one.score is None or np.isnan(one.score) else round(float(one.score), 4) for one in outcomes]


def landscape(cell: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The accuracies of a cell at all its rates."""
    data, records = task(cell["task"], folder), cell["records"]
    noise, size, steps = sigma(records, cell["epsilon"])
    if cell["way"] == "adam":
        grid, rates = ADAM, ADAM
        given: dict[str, Any] = {"optimizer": "adam", "clipping": "normalise"}
    else:
        grid, rates = SCALES, [c * size / (noise * steps**0.5) for c in SCALES]
        given = {"clipping": "clip" if cell["way"] == "clip" else "normalise", "average": 0.97}
    params = [{"learning_rate": rate, **given} for rate in rates for _ in range(SEEDS)]
    found = accuracies(data, cell["network"], records, noise, params, list(range(SEEDS)) * len(rates))
    means = np.reshape(found, (-1, SEEDS)).tolist()
    facts = {"noise": round(noise, 5), "batch": size, "steps": steps, "scale": round(data.scale, 4)}
    return {**cell, **facts, "grid": grid, "accuracies": means}


def facts(folder: Path) -> dict[str, dict[str, Any]]:
    """What the fit needs to know of each task besides its landscapes."""

    def of(data: Task) -> dict[str, Any]:
        known = {"scale": round(data.scale, 4), "norm": round(data.norm, 4), "taken": round(data.taken, 4)}
        return {"shape": data.inputs.shape[1:], "classes": data.classes, **known}

    return {name: of(task(name, folder)) for name in FITTED}


def write(folder: Path, out: Path = FILE) -> None:
    """Train what is not in the file yet."""
    torch.set_num_threads(1)
    out.parent.mkdir(parents=True, exist_ok=True)
    if not FACTS.exists():
        FACTS.write_text(json.dumps(facts(folder), indent=1) + "\n")
    lines = out.read_text().splitlines() if out.exists() else []
    keys = ("task", "network", "records", "epsilon", "way")
    done = {tuple(json.loads(line)[key] for key in keys) for line in lines}
    for cell in sorted(cells(), key=lambda one: (one["network"] == "cnn", one["way"] != "normalise", one["records"])):
        if tuple(cell[key] for key in keys) not in done:
            found = landscape(cell, folder)
            with out.open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(*(found[key] for key in keys), max(map(np.mean, found["accuracies"])), flush=True)
