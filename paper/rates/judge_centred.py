"""The scale of the inputs about the mean against that of norms alone, and against the known rate.

``python -m paper rates-judge-centred``: twenty seeds, and all records that do not train are tests (PLAN.md, "The scale
about the mean", and its second decision).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from dphypo.search import rates
from dphypo.search.rates import noise_of_scale
from paper.rates.judge import KEYS, SGD, _lines, _name, _once, interval, mechanism, tuned
from paper.rates.judge_large import mean
from paper.rates.judge_shapes import OUT as SHAPED
from paper.rates.landscapes import FILE, accuracies, sigma
from paper.rates.tasks import Task, task

OUT, AGAIN = FILE.with_name("judged-centred.jsonl"), FILE.with_name("repeated-centred.jsonl")
FRESH, FRESH_AGAIN = FILE.with_name("judged-fresh.jsonl"), FILE.with_name("repeated-fresh.jsonl")
LITTLE, LITTLE_AGAIN = FILE.with_name("judged-little.jsonl"), FILE.with_name("repeated-little.jsonl")
WAYS = ("tune", "norms", "known rate")
LEAST = 0.001
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
_FRESH = (
    ("satellite", "linear", 1000, 0.5), ("satellite", "linear", 1000, 3), ("satellite", "mlp", 1000, 1),
    ("foods", "linear", 1000, 1), ("bookings", "linear", 1000, 0.5), ("deliveries", "linear", 1000, 1),
    ("words", "linear", 1000, 2), ("crashes", "linear", 1000, 8), ("crashes", "mlp", 1000, 2),
    ("foods", "linear", 3000, 3), ("foods", "mlp", 3000, 8), ("satellite", "linear", 4500, 8),
    ("satellite", "mlp", 4500, 3), ("words", "linear", 3000, 0.5), ("deliveries", "linear", 7000, 3),
    ("bookings", "linear", 10_000, 1), ("bookings", "mlp", 10_000, 3), ("chemistry", "linear", 10_000, 1),
    ("crashes", "linear", 20_000, 1), ("novels", "linear", 20_000, 3), ("words", "linear", 22_000, 8),
    ("chemistry", "linear", 26_000, 3), ("movies", "linear", 54_000, 3), ("newcomers", "linear", 50_000, 1),
    ("newcomers", "linear", 100_000, 3), ("foods-encoded", "linear", 1000, 1), ("foods-encoded", "linear", 3000, 3),
)  # fmt: skip
"""Cells of the second decision, on tasks that nothing had seen."""
_LITTLE = (
    *((name, "linear", 1000, 0.5) for name in (
        "satellite", "deliveries", "movies", "bookings", "chemistry",
        "newcomers", "novels", "foods", "words", "crashes",
    )),
    ("satellite", "mlp", 1000, 0.5), ("movies", "mlp", 1000, 0.5),
)  # fmt: skip
"""Cells with few records and little ε, where norms alone had been bought."""


def cells(file: Path = OUT) -> list[dict[str, Any]]:
    """What is judged, in the order of the plan."""
    named = {FRESH: _FRESH, FRESH_AGAIN: _FRESH, LITTLE: _LITTLE, LITTLE_AGAIN: _LITTLE}.get(file, _CELLS)
    return [dict(zip(KEYS, one, strict=True)) for one in named]


def before() -> Iterator[dict[str, Any]]:
    """What ``judged-shapes.jsonl`` has of these cells: there *tune* bought norms alone."""
    named = {"tune": "norms", "known rate": "known rate"}
    wanted = [*map(_name, cells())]
    for line in _lines(SHAPED):
        if line["way"] in named and _name(line) in wanted:
            yield {**line, "way": named[line["way"]]}


def judged(cell: dict[str, Any], folder: Path, seeds: Sequence[int]) -> dict[str, Any]:
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
    return {"drift": known.value, "scale": round(data.scale, 4), "norm": round(data.norm, 4), "accuracies": found}


def write(folder: Path, seconds: float = float("inf")) -> None:
    """Judge the fresh cells that are not in the files yet, until the time is over, and repeat what is below.

    Those of the second decision were made with a SPREAD_ABOUT of 0.18, and so two of them with norms.
    """
    torch.set_num_threads(1)
    end = time.time() + seconds
    for file, again, seeds in ((FRESH, FRESH_AGAIN, (1000, 2000)), (LITTLE, LITTLE_AGAIN, (3000, 4000))):
        first, further = (range(start, start + 20) for start in seeds)
        for cell in cells(file):
            for way in WAYS:
                named = {**cell, "way": way}
                _once(file, named, partial(judged, named, folder, first), end)
        ways = WAYS[:2] if file == FRESH else WAYS[:1]
        for row, way in [(row, way) for way in ways for row in rows(file) if below(row, way)]:
            for one in (way, "known rate"):
                named = {**{key: row[key] for key in KEYS}, "way": one}
                _once(again, named, partial(judged, named, folder, further), end)


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
    order = [*map(_name, cells(file))]
    return sorted(found, key=lambda row: order.index(_name(row)))


def below(row: dict[str, Any], way: str = "tune") -> bool:
    """Whether a way is below the known rate by more than the interval."""
    return bool(row[way] < row["known rate"] - interval(row["seeds"][way], row["seeds"]["known rate"]))


def twice(way: str) -> list[dict[str, Any]]:
    """The fresh cells in which a way is below the known rate, and again with other seeds."""
    again = {(*_name(line), line["way"]): line["accuracies"] for line in _lines(FRESH_AGAIN)}
    found = []
    for row in rows(FRESH):
        seeds = {one: again.get((*_name(row), one)) for one in (way, "known rate")}
        if below(row, way) and all(seeds.values()):
            means = {one: mean(each) for one, each in seeds.items() if each}
            row = {**row, **means, "seeds": seeds}
            found.append({**row, "half": interval(*(each for each in seeds.values() if each))})
    return found


def adopted() -> bool:
    """Whether the rule of the plan says that the library buys the scale about the mean."""
    found = rows(FRESH)
    gain = float(np.mean([row["tune"] - row["norms"] for row in found]))
    return gain >= -LEAST and not any(below(row) for row in twice("tune"))
