"""The rate that decreases as ``rates-shapes`` chose, on tables that judged others before and on new ones.

``python -m paper rates-judge-shapes``: twenty seeds, and all records that do not train are tests (PLAN.md, "Third
version").
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dphypo.search.rates import LITTLE_NOISE
from paper.rates.judge import FACTORS, KEYS, MORE_SEEDS, SGD, _lines, _name, _once, interval, mechanism, tuned
from paper.rates.judge_large import FIVE, FRESH, SECOND, mean
from paper.rates.landscapes import FILE, accuracies, sigma
from paper.rates.tasks import Task, task

OUT = FILE.with_name("judged-shapes.jsonl")
NEW = {"pizzas": 41_000, "mortgages": 100_000, "bribes": 100_000, "views": 36_000}
"""Tables that nothing had seen when the third version was frozen, and how many of their records train."""
BOTH = ("tune", "known rate")
QUIET = ("to zero", "scale told", "hindsight, constant", "hindsight")
"""What is also made where ρ is 20 or more: the shape of the second version, and the new one, the scale told. A
hindsight is the best of seven rates."""


def cells() -> Iterator[dict[str, Any]]:
    """What is judged: first where it failed, then what is new."""
    before: list[dict[str, Any]] = [
        dict(zip(KEYS, (name, "linear", records, epsilon), strict=True)) for name, records, epsilon in FIVE
    ]
    before += [cell for cell in (*FRESH, *SECOND) if cell["network"] == "linear"]
    new: list[dict[str, Any]] = [
        {"task": name, "network": "linear", "records": records, "epsilon": epsilon}
        for epsilon in (3, 8)
        for name, records in NEW.items()
    ]
    every = sorted(
        before + new, key=lambda cell: (natural(cell) < LITTLE_NOISE, cell["task"] not in ("fertility", "soldiers"))
    )
    quiet = [cell for cell in every if natural(cell) >= LITTLE_NOISE]
    for some, ways in ((quiet, BOTH), (quiet[:2], QUIET[:2]), (every, BOTH), (quiet, QUIET)):
        for cell in some:
            yield from ({**cell, "way": way} for way in ways)


def natural(cell: dict[str, Any]) -> float:
    """ρ of one run with the whole total."""
    noise, size, steps = sigma(cell["records"], cell["epsilon"])
    return float(size / (noise * steps**0.5))


def judged(cell: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One way of a cell."""
    data, records, way = task(cell["task"], folder), cell["records"], cell["way"]
    inputs = np.concatenate((data.test_inputs, data.inputs[records:]))
    labels = np.concatenate((data.test_labels, data.labels[records:]))
    data = Task(data.inputs[:records], data.labels[:records], inputs, labels)
    if way == "tune":
        return {"tests": len(labels), **tuned(data, cell, None, MORE_SEEDS)}
    known = mechanism(data, cell).known(data.scale)
    assert known is not None
    run = partial(accuracies, data, "linear", records, sigma(records, cell["epsilon"])[0])
    if way.startswith("hindsight"):
        every = [{**SGD, "drift": known.value * factor} for factor in FACTORS for _ in range(2)]
        schedule = "constant" if way.endswith("constant") else None
        found = run(every, list(range(100, 102)) * len(FACTORS), schedule=schedule)
        return {"accuracies": np.reshape(found, (-1, 2)).tolist()}
    schedule = {"to zero": "linear", "scale told": None}.get(way, "constant")
    found = run([{**SGD, "drift": known.value}] * len(MORE_SEEDS), MORE_SEEDS, schedule=schedule)
    return {"drift": known.value, "natural": round(natural(cell), 1), "accuracies": found}


def write(folder: Path, seconds: float = float("inf")) -> None:
    """Judge what is not in the file yet, until the time is over."""
    torch.set_num_threads(1)
    end = time.time() + seconds
    for cell in cells():
        _once(OUT, cell, partial(judged, cell, folder), end)


def rows() -> list[dict[str, Any]]:
    """One cell a row: the mean of each way, the interval of *tune* and the known rate, and ρ."""
    made: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in _lines(OUT):
        row = made.setdefault(_name(line), {key: line[key] for key in KEYS})
        row[line["way"]] = mean(line["accuracies"])
        row[f"{line['way']}, seeds"] = line["accuracies"]
        row |= {key: line[key] for key in ("natural", "tests") if key in line}
    found = [row for row in made.values() if all(way in row for way in BOTH)]
    for row in found:
        row["half"] = interval(*(row[f"{way}, seeds"] for way in BOTH))
        row["new"] = row["task"] in NEW
    return sorted(found, key=lambda row: (row["natural"] < LITTLE_NOISE, row["new"], row["task"], row["epsilon"]))
