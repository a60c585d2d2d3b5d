"""``tune`` on large tasks, where it searches, and other optimisers on small ones: rates-judge-large.

One way of a cell a line, as PLAN.md says ("Frozen"), in the order in which they are made.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paper.rates.judge import BEFORE, FACTORS, MORE_SEEDS, SEEDS, SGD, _lines, _name, _once, mechanism, tuned
from paper.rates.landscapes import FILE, accuracies, sigma
from paper.rates.tasks import Task, task
from paper.rivals import hyfree, linear_scaling

OUT = FILE.with_name("judged-large.jsonl")
SINGLE = ("known rate", "never", "tune")
TWENTY = ("tune, twenty", "known rate, twenty", "never, twenty")
AGAIN = ("known rate, all tests", "never, all tests")
"""With twenty seeds, and all records that do not train as tests."""
FIVE = (
    ("diamonds", 49_000, 3),
    ("diamonds", 49_000, 1),
    ("flights", 100_000, 3),
    ("flights", 100_000, 1),
    ("fashion", 60_000, 1),
)
"""The large cells that were judged before."""
FRESH: tuple[dict[str, Any], ...] = tuple(
    {"task": name, "network": net, "records": records, "epsilon": epsilon}
    for name, net, records, epsilon in (
        ("shuttle", "linear", 54_000, 3), ("letters", "linear", 16_000, 3), ("fertility", "linear", 100_000, 3),
        ("shuttle", "linear", 54_000, 1), ("letters", "linear", 16_000, 1), ("fertility", "linear", 100_000, 1),
        ("letters", "mlp", 16_000, 3), ("shuttle", "mlp", 54_000, 3),
    )
)  # fmt: skip
SECOND: tuple[dict[str, Any], ...] = tuple(
    {"task": name, "network": "linear", "records": records, "epsilon": epsilon}
    for name, records in (("soldiers", 100_000), ("lectures", 65_000))
    for epsilon in (3, 1)
)
"""Tasks that nothing had seen when the second version was frozen."""
SMALL: tuple[dict[str, Any], ...] = tuple(
    {"task": name, "network": net, "records": records, "epsilon": epsilon}
    for name, net, records in (
        ("digits", "linear", 1300), ("digits", "mlp", 1300), ("diamonds", "linear", 1000), ("diamonds", "mlp", 1000),
        ("flights", "linear", 1000), ("spam", "linear", 1000), ("spam", "mlp", 1000), ("diamonds", "linear", 3000),
    )
    for epsilon in (1, 3)
)  # fmt: skip
OTHERS: dict[str, dict[str, Any]] = {
    "clip": {"clipping": "clip", "average": 0.97},
    "adam": {"optimizer": "adam", "clipping": "normalise"},
}
ALWAYS: tuple[dict[str, Any], ...] = tuple(
    {"task": name, "network": net, "records": records, "epsilon": 3}
    for name, net, records in (
        ("digits", "linear", 1300), ("digits", "mlp", 1300), ("spam", "linear", 3000), ("diamonds", "linear", 10_000),
        ("fashion", "linear", 10_000),
    )
)  # fmt: skip


def cells() -> Iterator[dict[str, Any]]:
    """What is made of the first version, cheap and important things first, and then of the second."""
    five = [{"task": name, "network": "linear", "records": records, "epsilon": eps} for name, records, eps in FIVE]
    yield from ({**five[0], "way": way} for way in TWENTY[:2])
    for cell in five:
        yield from ({**cell, "way": way} for way in ("tune", "never"))
    for cell in FRESH:
        yield from ({**cell, "way": way} for way in (*SINGLE, "before", "hindsight", "Adam"))
        if cell["network"] == "linear" and cell["epsilon"] == 3:
            yield {**cell, "way": "hindsight, decreasing"}
    for cell in ALWAYS:
        yield {**cell, "way": "always"}
    for cell in SMALL:
        for name in OTHERS:
            yield from ({**cell, "way": f"{name}: {way}"} for way in ("known rate", "hindsight", "default"))
    yield from second()
    for cell in FRESH:
        yield from ({**cell, "way": way} for way in ("HyFreeDP", "Panda"))


def second() -> Iterator[dict[str, Any]]:
    """What is made of the second version."""
    linear = [{"task": name, "network": "linear", "records": records, "epsilon": eps} for name, records, eps in FIVE]
    for cell in (*SECOND, linear[0], *FRESH, *linear[1:]):
        yield {**cell, "way": "second: tune"}
    yield {**linear[0], "way": "never, twenty"}
    for way in AGAIN:
        yield {**FRESH[2], "way": way}
    for cell in SECOND:
        yield from ({**cell, "way": way} for way in ("known rate", "hindsight"))
    for cell in (*ALWAYS, *SECOND[:1], linear[0], linear[1], FRESH[0], FRESH[1]):
        yield {**cell, "way": "second: always"}


def judged(cell: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One way of a cell."""
    data, records, net, way = task(cell["task"], folder), cell["records"], cell["network"], cell["way"]
    if way in AGAIN:
        inputs = np.concatenate((data.test_inputs, data.inputs[records:]))
        labels = np.concatenate((data.test_labels, data.labels[records:]))
        data = Task(data.inputs[:records], data.labels[:records], inputs, labels)
    way = way.removeprefix("second: ")
    noise, size, steps = sigma(records, cell["epsilon"])
    seeds = MORE_SEEDS if way in (*TWENTY, *AGAIN) else range(SEEDS)
    run = partial(accuracies, data, net, records, noise)
    facts = {"noise": round(noise, 5), "batch": size, "steps": steps, "scale": round(data.scale, 4)}
    first = way.split(",")[0]
    if first in ("tune", "never", "always"):
        search = "auto" if first == "tune" else first
        return {**facts, **tuned(data, cell, None, seeds, search)}
    if way == "before":
        return {**facts, **tuned(data, cell, BEFORE, seeds)}
    if way == "HyFreeDP":
        return hyfree(data, net, records, cell["epsilon"], seeds, batch=size, steps=steps)
    if way == "Panda":
        return linear_scaling(data, net, records, cell["epsilon"], seeds)
    if way == "Adam":
        given = {"optimizer": "adam", "learning_rate": 1e-3, "clipping": "normalise"}
        return {**facts, "accuracies": run([given] * len(seeds), seeds)}
    name, _, which = way.rpartition(": ")
    given = OTHERS.get(name, SGD)
    known = mechanism(data, cell).known_at(given, data.scale)
    assert known is not None
    if which == "default":  # 0.1, as in Opacus's examples, or Adam's own
        return {"accuracies": run([{**given, "learning_rate": 0.1 if name == "clip" else 1e-3}] * len(seeds), seeds)}
    if which.startswith("known rate"):
        found = run([{**given, "drift": known.value}] * len(seeds), seeds)
        return {**facts, "drift": known.value, "accuracies": found}
    every = [{**given, "drift": known.value * factor} for factor in FACTORS for _ in range(2)]
    schedule = "linear" if which.endswith("decreasing") else "constant"
    found = run(every, list(range(100, 102)) * len(FACTORS), schedule=schedule)
    return {"accuracies": np.reshape(found, (-1, 2)).tolist()}


def write(folder: Path, seconds: float = float("inf")) -> None:
    """Judge what is not in the file yet, until the time is over."""
    torch.set_num_threads(1)
    end = time.time() + seconds
    with warnings.catch_warnings(action="ignore"):
        for cell in cells():
            _once(OUT, cell, partial(judged, cell, folder), end)


def found() -> dict[tuple[Any, ...], dict[str, Any]]:
    """For each cell its ways: accuracies of every seed, or of two seeds at each rate in hindsight."""
    made: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in _lines(OUT):
        made.setdefault(_name(line), {})[line["way"]] = line["accuracies"]
    return made


def mean(accuracies: Sequence[Any]) -> float:
    """The mean over seeds; of the rates in hindsight, that of the best."""
    each = np.asarray(accuracies, dtype=float)
    return float(each.mean() if each.ndim == 1 else each.mean(1).max())
