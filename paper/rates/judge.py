"""The new ``tune`` against the old one and others, on tasks that nothing was fitted to : rates-judge."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import loguniform

from dphypo.entropy import Seeded
from dphypo.integrations.torch import DPSGD
from dphypo.search import Stages
from dphypo.search.tune import plan_tuning
from dphypo.space import Space
from paper.rates.landscapes import DELTA, EPOCHS, FILE, accuracies, sigma
from paper.rates.tasks import Task, network, task

OUT = FILE.with_name("judged.jsonl")
SEEDS, FACTORS = 3, [float(4**power) for power in np.arange(-1.5, 1.6, 0.5)]
LARGE = 30_000
BEFORE = Space({"learning_rate": loguniform(0.1, 30), "clipping": ["normalise"], "average": [0.97]})
"""What was searched before, where no space was given."""
_PLAN = (
    ("digits", ("linear", "mlp"), (1300,), (0.5, 1, 3, 8)),
    ("spam", ("linear", "mlp"), (1000, 3000), (1, 3)),
    ("spam-encoded", ("linear",), (1000, 3000), (0.5, 1, 3, 8)),
    ("spam-encoded", ("mlp",), (1000, 3000), (1, 3)),
    ("diamonds", ("linear", "mlp"), (1000, 3000, 10_000), (1, 3)),
    ("diamonds", ("linear",), (49_000,), (1, 3)),
    ("flights", ("linear", "mlp"), (1000, 10_000), (1, 3)),
    ("flights", ("linear",), (100_000,), (1, 3)),
    ("fashion", ("linear", "mlp"), (1000, 3000), (1, 3)),
    ("fashion", ("linear",), (10_000,), (1, 3)),
    ("fashion", ("cnn",), (1000,), (1, 3)),
    ("fashion", ("linear",), (60_000,), (1,)),
    ("fashion-scattered", ("linear",), (1000, 3000), (1, 3)),
    ("fashion-scattered", ("linear",), (10_000,), (1,)),
)
_WIDTHS = {"fashion": 784, "fashion-scattered": 3969, "spam": 512, "spam-encoded": 384}
KEYS = ("task", "network", "records", "epsilon")


def cells() -> list[dict[str, Any]]:
    """The cells, cheap ones first; among cells of about one cost in an order that is random and fixed."""
    made = [
        {"task": name, "network": net, "records": records, "epsilon": epsilon}
        for name, networks, sizes, epsilons in _PLAN
        for net in networks
        for records in sizes
        for epsilon in epsilons
    ]
    random = np.random.default_rng(0)

    def cost(cell: dict[str, Any]) -> tuple[int, float]:
        width = _WIDTHS.get(cell["task"], 64) * {"linear": 1, "mlp": 8, "cnn": 200}[cell["network"]] + 500
        return int(np.log2(width * cell["records"]) / 3), float(random.random())

    return sorted(made, key=cost)


def mechanism(data: Task, cell: dict[str, Any], **given: Any) -> DPSGD:
    """The training of a cell, with scores on private records."""
    records = cell["records"]
    return DPSGD(
        model=lambda: network(cell["network"], data), data=(data.inputs[:records], data.labels[:records]),
        score="accuracy", epochs=EPOCHS, device="cpu", **given,
    )  # fmt: skip


def tuned(data: Task, cell: dict[str, Any], space: Space | None, seeds: int) -> dict[str, Any]:
    """Test accuracies of what ``tune`` releases; without a space it is the mechanism's own, and ``tune`` decides."""
    made = mechanism(data, cell)
    search = "always" if space is not None else "auto"
    space = made.default_space() if space is None else space
    tuning = plan_tuning(space, made, epsilon=cell["epsilon"], delta=DELTA, search=search)
    inputs, labels = torch.from_numpy(data.test_inputs), torch.from_numpy(data.test_labels)
    found = []
    for seed in range(seeds):
        stages = Stages.of(tuning.declare(space, DELTA, private=False), journal=None, entropy=Seeded(seed))
        model = stages.run(progress=False).model
        found.append(0.0 if model is None else round(float((model(inputs).argmax(1) == labels).double().mean()), 4))
    return {"accuracies": found, "runs": tuning.survey.runs, "price": round(tuning.price, 4)}


def judged(cell: dict[str, Any], folder: Path) -> dict[str, Any]:
    """All ways on one cell."""
    data, records = task(cell["task"], folder), cell["records"]
    seeds = 2 if records >= LARGE else SEEDS
    noise, size, steps = sigma(records, cell["epsilon"])
    known = mechanism(data, cell).known(data.scale)
    assert known is not None
    sgd: dict[str, Any] = {"clipping": "normalise", "average": 0.97}
    every = [{"drift": known.value * factor, **sgd} for factor in FACTORS for _ in range(2)]
    found = accuracies(data, cell["network"], records, noise, every, list(range(100, 102)) * len(FACTORS))
    ways = {
        "hindsight": {"accuracies": np.reshape(found, (-1, 2)).tolist()},
        "known rate": {
            "accuracies": accuracies(
                data, cell["network"], records, noise, [{"drift": known.value, **sgd}] * seeds, range(seeds)
            )
        },
        "Adam": {
            "accuracies": accuracies(
                data, cell["network"], records, noise,
                [{"optimizer": "adam", "learning_rate": 1e-3, "clipping": "normalise"}] * seeds, range(seeds),
            )
        },
    }  # fmt: skip
    ways["tune"] = tuned(data, cell, None, seeds)
    ways["before"] = tuned(data, cell, BEFORE, seeds)
    facts = {"noise": round(noise, 5), "batch": size, "steps": steps, "scale": round(data.scale, 4)}
    return {**cell, **facts, "drift": known.value, "ways": ways}


def write(folder: Path, out: Path = OUT, seconds: float = float("inf")) -> None:
    """Judge the cells that are not in the file yet, until the time is over."""
    torch.set_num_threads(1)
    out.parent.mkdir(parents=True, exist_ok=True)
    end = time.time() + seconds
    lines = out.read_text().splitlines() if out.exists() else []
    done = {tuple(json.loads(line)[key] for key in KEYS) for line in lines}
    for cell in cells():
        if time.time() > end:
            return
        if tuple(cell[key] for key in KEYS) not in done:
            with warnings.catch_warnings(action="ignore"):
                found = judged(cell, folder)
            with out.open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(*(cell[key] for key in KEYS), flush=True)


def rows(path: Path = OUT) -> Iterator[dict[str, Any]]:
    """What was judged, one cell a row: the mean of each way, and the best of the rates in hindsight."""
    for line in path.read_text().splitlines():
        cell = json.loads(line)
        ways = cell["ways"]
        means = {name: float(np.mean(way["accuracies"])) for name, way in ways.items() if name != "hindsight"}
        means["hindsight"] = float(np.max(np.mean(ways["hindsight"]["accuracies"], axis=1)))
        both = [np.array(ways[name]["accuracies"]) for name in ("tune", "known rate")]
        half = 1.96 * float(np.sqrt(sum(one.var(ddof=1) / len(one) for one in both)))
        yield {**{key: cell[key] for key in KEYS}, **means, "half": half, "runs": ways["tune"]["runs"]}
