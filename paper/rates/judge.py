"""The new ``tune`` against the old one and others, on tasks that nothing was fitted to: rates-judge.

``judged.jsonl`` has the ways of the first plan, one cell a line. ``added.jsonl`` has what was added to the plan later,
one way of a cell a line, and ``repeated.jsonl`` the cells that were repeated with more seeds. "tune" in these is that
of the time: it bought the norms alone. ``now.jsonl`` and ``repeated-now.jsonl`` have ``tune`` as it is.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import loguniform

from dphypo.entropy import Seeded
from dphypo.search import Stages
from dphypo.search.tune import plan_tuning
from dphypo.space import Space
from dphypo.torch import DPSGD
from paper.rates.landscapes import DELTA, EPOCHS, FILE, accuracies, sigma
from paper.rates.tasks import Task, network, task
from paper.rivals import hyfree, linear_scaling

OUT, ADDED, REPEATED, NOW, REPEATED_NOW = (
    FILE.with_name(f"{name}.jsonl") for name in ("judged", "added", "repeated", "now", "repeated-now")
)
SEEDS, FACTORS = 3, [float(4**power) for power in np.arange(-1.5, 1.6, 0.5)]
LARGE = 30_000
SGD: dict[str, Any] = {"clipping": "normalise", "average": 0.97}
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
LATER = ("HyFreeDP", "Panda")
MORE_SEEDS = range(1000, 1020)


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
        score="accuracy", device="cpu", **{"epochs": EPOCHS, **given},
    )  # fmt: skip


def tuned(
    data: Task, cell: dict[str, Any], space: Space | None, seeds: Sequence[int], search: str | None = None, **given: Any
) -> dict[str, Any]:
    """Test accuracies of what ``tune`` releases; without a space it is the mechanism's own, and ``tune`` decides."""
    made = mechanism(data, cell, **given)
    search = search or ("always" if space is not None else "auto")
    space = made.default_space() if space is None else space
    tuning = plan_tuning(space, made, epsilon=cell["epsilon"], delta=DELTA, search=search)
    inputs, labels = torch.from_numpy(data.test_inputs), torch.from_numpy(data.test_labels)
    found, drifts = [], []
    for seed in seeds:
        stages = Stages.of(tuning.declare(space, DELTA, private=False), journal=None, entropy=Seeded(seed))
        release = stages.run(progress=False)
        model = release.model
        found.append(0.0 if model is None else round(float((model(inputs).argmax(1) == labels).double().mean()), 4))
        drifts.append((release.params or {}).get("drift"))
    facts = {"price": round(tuning.price, 4), "compute": round(tuning.survey.compute, 3)}
    return {"accuracies": found, "drifts": drifts, "runs": tuning.survey.runs, **facts}


def judged(cell: dict[str, Any], folder: Path) -> dict[str, Any]:
    """All ways on one cell."""
    data, records = task(cell["task"], folder), cell["records"]
    seeds = 2 if records >= LARGE else SEEDS
    noise, size, steps = sigma(records, cell["epsilon"])
    known = mechanism(data, cell).known(data.scale)
    assert known is not None
    every = [{"drift": known.value * factor, **SGD} for factor in FACTORS for _ in range(2)]
    found = accuracies(data, cell["network"], records, noise, every, list(range(100, 102)) * len(FACTORS))
    ways = {
        "hindsight": {"accuracies": np.reshape(found, (-1, 2)).tolist()},
        "known rate": {
            "accuracies": accuracies(
                data, cell["network"], records, noise, [{"drift": known.value, **SGD}] * seeds, range(seeds)
            )
        },
        "Adam": {
            "accuracies": accuracies(
                data, cell["network"], records, noise,
                [{"optimizer": "adam", "learning_rate": 1e-3, "clipping": "normalise"}] * seeds, range(seeds),
            )
        },
    }  # fmt: skip
    ways["tune"] = tuned(data, cell, None, range(seeds))
    ways["before"] = tuned(data, cell, BEFORE, range(seeds))
    facts = {"noise": round(noise, 5), "batch": size, "steps": steps, "scale": round(data.scale, 4)}
    return {**cell, **facts, "drift": known.value, "ways": ways}


def later(cell: dict[str, Any], way: str, folder: Path) -> dict[str, Any]:
    """One way that was added to the plan."""
    data, records, epsilon, net = task(cell["task"], folder), cell["records"], cell["epsilon"], cell["network"]
    seeds = range(2 if records >= LARGE else SEEDS)
    if way == "tune":
        return tuned(data, cell, None, seeds)
    if way == "HyFreeDP":
        _, size, steps = sigma(records, epsilon)
        return hyfree(data, net, records, epsilon, seeds, batch=size, steps=steps)
    return linear_scaling(data, net, records, epsilon, seeds)


def repeat(cell: dict[str, Any], folder: Path) -> dict[str, Any]:
    """``tune`` as it is, and the known rate, with more seeds."""
    data, records = task(cell["task"], folder), cell["records"]
    known = mechanism(data, cell).known(data.scale)
    assert known is not None
    params = [{"drift": known.value, **SGD}] * len(MORE_SEEDS)
    alone = accuracies(data, cell["network"], records, sigma(records, cell["epsilon"])[0], params, MORE_SEEDS)
    return {"known rate": alone, "tune": tuned(data, cell, None, MORE_SEEDS)["accuracies"]}


def write(folder: Path, seconds: float = float("inf")) -> None:
    """Judge what is not in the files yet, until the time is over."""
    torch.set_num_threads(1)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    end = time.time() + seconds
    for cell in cells():
        _once(OUT, cell, partial(judged, cell, folder), end)
    for way in LATER:
        for cell in sorted(cells(), key=lambda one: (one["network"] == "cnn", one["records"])):
            if (way, cell["network"]) != ("Panda", "cnn"):
                _once(ADDED, {**cell, "way": way}, partial(later, cell, way, folder), end)
    for cell in sorted(cells(), key=_work):
        _once(NOW, cell, partial(later, cell, "tune", folder), end)
    for row in below():
        cell = {key: row[key] for key in KEYS}
        _once(REPEATED_NOW, cell, partial(repeat, cell, folder), end)


def _work(cell: dict[str, Any]) -> int:
    """About how long a run of a cell takes: features that take long to make come last."""
    return int(cell["records"] * {"linear": 1, "mlp": 2, "cnn": 100}[cell["network"]]) + 10**6 * (
        cell["task"] in ("fashion-scattered", "spam-encoded")
    )


def _once(file: Path, named: dict[str, Any], make: Callable[[], dict[str, Any]], end: float) -> None:
    """Add a line to a file if it has none of this name, and there is time."""
    if time.time() < end and named not in [{key: line[key] for key in named} for line in _lines(file)]:
        with warnings.catch_warnings(action="ignore"):
            found = {**named, **make()}
        with file.open("a") as out:
            out.write(json.dumps(found) + "\n")
        print(*named.values(), flush=True)


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _name(cell: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(cell[key] for key in KEYS)


def rows() -> Iterator[dict[str, Any]]:
    """What was judged, one cell a row: the mean of each way, and the best of the rates in hindsight.

    *norms* is ``tune`` as it was when the cells were judged, and *tune* as it is.
    """
    added: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in _lines(ADDED):
        added.setdefault(_name(line), {})["norms" if line["way"] == "tune" else line["way"]] = line
    for line in _lines(NOW):
        added[_name(line)]["tune"] = line
    for cell in _lines(OUT):
        first = {name: way for name, way in cell["ways"].items() if name != "tune"}
        ways = {**first, **added.get(_name(cell), {})}
        means = {name: float(np.mean(way["accuracies"])) for name, way in ways.items() if name != "hindsight"}
        means["hindsight"] = float(np.max(np.mean(ways["hindsight"]["accuracies"], axis=1)))
        halves = {
            way: interval(ways[way]["accuracies"], ways["known rate"]["accuracies"])
            for way in ("norms", "tune")
            if way in ways
        }
        facts = {"half": halves, "runs": {way: ways[way]["runs"] for way in halves}}
        yield {**{key: cell[key] for key in KEYS}, **means, **facts}


def interval(*ways: Sequence[float]) -> float:
    """1.96 standard errors of the difference of two ways."""
    return 1.96 * math.sqrt(sum(float(np.var(one, ddof=1)) / len(one) for one in ways))


def below(way: str = "tune") -> list[dict[str, Any]]:
    """Cells in which a way is below the known rate by more than the interval."""
    return [row for row in rows() if way in row and row[way] < row["known rate"] - max(row["half"][way], 1e-9)]


def worst() -> dict[str, Any]:
    """The cell in which ``tune`` loses most to the best rate in hindsight."""
    return max((row for row in rows() if "tune" in row), key=lambda row: row["hindsight"] - row["tune"])


def repeated(way: str = "tune") -> Iterator[dict[str, Any]]:
    """Cells that were repeated, with the means of a way and the known rate, and the interval of their difference."""
    for line in _lines(REPEATED_NOW if way == "tune" else REPEATED):
        ways = {way: line["tune"], "known rate": line["known rate"]}
        means = {name: float(np.mean(one)) for name, one in ways.items()}
        yield {**{key: line[key] for key in KEYS}, **means, "half": {way: interval(*ways.values())}}
