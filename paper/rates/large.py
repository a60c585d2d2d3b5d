"""Linear models on large tables, where noise no longer limits the rate: ``python -m paper rates-large``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dphypo.torch import DPSGD
from paper.rates.landscapes import EPOCHS, FILE, SCALES, SEEDS, sigma
from paper.rates.tasks import network, task

OUT = FILE.with_name("large.jsonl")
TASKS = {"rodents": 30_000, "adult": 28_000, "votes": 40_000, "stops": 47_000, "wages": 53_000, "schooling": 57_000}
WAYS = ("now", "last eighth", "decreasing")
KEYS = ("task", "records", "epsilon", "way")


def cells() -> Iterator[dict[str, Any]]:
    """What is trained, as PLAN.md says."""
    for epsilon in (3, 8, 1):
        for name, records in TASKS.items():
            for way in WAYS:
                yield {"task": name, "network": "linear", "records": records, "epsilon": epsilon, "way": way}


def landscape(cell: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The accuracies of a cell at all its drifts."""
    data = task(cell["task"], folder)
    records = min(cell["records"], len(data.inputs))
    noise, size, steps = sigma(records, cell["epsilon"])
    inputs, labels = torch.from_numpy(data.test_inputs), torch.from_numpy(data.test_labels)

    def score(model: torch.nn.Module) -> float:
        return float((model(inputs).argmax(1) == labels).double().mean())

    made = DPSGD(
        model=lambda: network("linear", data), data=(data.inputs[:records], data.labels[:records]), score=score,
        noise_multiplier=noise, epochs=EPOCHS, device="cpu", schedule="linear" if cell["way"] == "decreasing" else None,
    )  # fmt: skip
    average = 1 - 8 / steps if cell["way"] == "last eighth" else 0.97
    params = [{"drift": one, "clipping": "normalise", "average": average} for one in SCALES for _ in range(SEEDS)]
    found = [one.score for one in made.many(params, seeds=list(range(SEEDS)) * len(SCALES))]
    accuracies = np.round(np.reshape(np.nan_to_num(np.array(found, dtype=float)), (-1, SEEDS)), 4).tolist()
    facts = {"noise": round(noise, 5), "batch": size, "steps": steps, "scale": round(data.scale, 4)}
    facts |= {"norm": round(data.norm, 4), "fitted": records}
    return {**cell, **facts, "grid": SCALES, "accuracies": accuracies}


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
            print(*(found[key] for key in KEYS), np.round(np.mean(found["accuracies"], axis=1), 3).tolist(), flush=True)
