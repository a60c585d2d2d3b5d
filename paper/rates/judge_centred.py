"""The scale of the inputs about the mean against that of norms alone, and against the known rate.

``python -m paper rates-judge-centred``: twenty seeds, and all records that do not train are tests (PLAN.md, "The scale
about the mean").
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from dphypo.search import rates
from dphypo.search.rates import noise_of_scale
from paper.rates.judge import KEYS, MORE_SEEDS, SGD, _lines, _name, _once, interval, mechanism, tuned
from paper.rates.judge_large import mean
from paper.rates.judge_shapes import OUT as SHAPED
from paper.rates.landscapes import FILE, accuracies, sigma
from paper.rates.tasks import Task, task

OUT, AGAIN = FILE.with_name("judged-centred.jsonl"), FILE.with_name("repeated-centred.jsonl")
WAYS = ("tune", "norms", "known rate")
FURTHER_SEEDS = range(2000, 2020)
LEAST = 0.002
_CELLS = (
    ("soldiers", "linear", 100_000, 3), ("soldiers", "linear", 100_000, 1), ("fertility", "linear", 100_000, 1),
    ("fertility", "linear", 100_000, 3), ("lectures", "linear", 65_000, 3), ("lectures", "linear", 65_000, 1),
    ("digits", "linear", 1300, 0.5), ("digits", "linear", 1300, 1), ("digits", "linear", 1300, 3),
    ("digits", "mlp", 1300, 1), ("spam", "linear", 1000, 1), ("spam", "linear", 1000, 3), ("spam", "mlp", 1000, 3),
    ("spam", "linear", 3000, 1), ("fashion", "linear", 1000, 1), ("fashion", "linear", 1000, 3),
    ("fashion", "mlp", 1000, 1), ("diamonds", "linear", 1000, 1), ("diamonds", "linear", 10_000, 3),
    ("flights", "linear", 1000, 1), ("fashion-scattered", "linear", 1000, 1), ("fashion-scattered", "linear", 1000, 3),
    ("letters", "linear", 16_000, 3), ("spam-encoded", "linear", 1000, 0.5), ("spam-encoded", "linear", 1000, 1),
    ("diamonds", "linear", 49_000, 3), ("shuttle", "linear", 54_000, 3), ("pizzas", "linear", 41_000, 3),
    ("views", "linear", 36_000, 3), ("bribes", "linear", 100_000, 3), ("mortgages", "linear", 100_000, 3),
)  # fmt: skip


def cells() -> list[dict[str, Any]]:
    """What is judged, in the order of the plan."""
    return [dict(zip(KEYS, one, strict=True)) for one in _CELLS]


def judged(cell: dict[str, Any], folder: Path, seeds: range = MORE_SEEDS) -> dict[str, Any]:
    """One way of a cell."""
    data, records, way, net = task(cell["task"], folder), cell["records"], cell["way"], cell["network"]
    inputs = np.concatenate((data.test_inputs, data.inputs[records:]))
    labels = np.concatenate((data.test_labels, data.labels[records:]))
    data = Task(data.inputs[:records], data.labels[:records], inputs, labels)
    if way == "tune":
        return {"tests": len(labels), **tuned(data, cell, None, seeds)}
    if way == "norms":
        with mock.patch.object(rates, "noise_of_scale", lambda records, total, size: noise_of_scale(records, total)):
            return {"tests": len(labels), **tuned(data, cell, None, seeds)}
    known = mechanism(data, cell).known(data.scale)
    assert known is not None
    params = [{**SGD, "drift": known.value}] * len(seeds)
    found = accuracies(data, net, records, sigma(records, cell["epsilon"])[0], params, seeds)
    return {"drift": known.value, "scale": round(data.scale, 4), "accuracies": found}


def before() -> Iterator[dict[str, Any]]:
    """What ``judged-shapes.jsonl`` has of these cells: there *tune* bought norms alone."""
    named = {"tune": "norms", "known rate": "known rate"}
    wanted = [*map(_name, cells())]
    for line in _lines(SHAPED):
        if line["way"] in named and _name(line) in wanted:
            yield {**line, "way": named[line["way"]]}


def write(folder: Path, seconds: float = float("inf")) -> None:
    """Judge what is not in the files yet, until the time is over."""
    torch.set_num_threads(1)
    end = time.time() + seconds
    done = {(*_name(line), line["way"]) for line in before()}
    for way in WAYS:
        for cell in cells():
            if (*_name(cell), way) not in done:
                _once(OUT, {**cell, "way": way}, partial(judged, {**cell, "way": way}, folder), end)
    for row in repeats(rows()):
        for way in WAYS:
            cell = {**{key: row[key] for key in KEYS}, "way": way}
            _once(AGAIN, cell, partial(judged, cell, folder, FURTHER_SEEDS), end)


def rows(file: Path = OUT) -> list[dict[str, Any]]:
    """One cell a row: the mean of each way, and intervals of *tune* about the others."""
    made: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in [*(before() if file == OUT else ()), *_lines(file)]:
        made.setdefault(_name(line), {key: line[key] for key in KEYS})[line["way"]] = line["accuracies"]
    found = [row for row in made.values() if all(way in row for way in WAYS)]
    for row in found:
        row["seeds"] = {way: row[way] for way in WAYS}
        row["half"] = {way: interval(row["tune"], row[way]) for way in WAYS[1:]}
        row |= {way: mean(row[way]) for way in WAYS}
    order = [*map(_name, cells())]
    return sorted(found, key=lambda row: order.index(_name(row)))


def below(row: dict[str, Any]) -> bool:
    """Whether *tune* is below the known rate by more than the interval."""
    return bool(row["tune"] < row["known rate"] - row["half"]["known rate"])


def repeats(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cells that are repeated: those below the known rate, or below norms alone."""
    return [row for row in found if below(row) or row["tune"] < row["norms"] - max(row["half"]["norms"], LEAST)]
