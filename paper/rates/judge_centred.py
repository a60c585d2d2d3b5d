"""The scale of the inputs about the mean against that of norms alone, and against the known rate: what was judged.

The library does not buy that scale (PLAN.md, "The scale about the mean"), so nothing here trains. The commit "rates:
buy the scale of the inputs about the mean" has what did.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paper.rates.judge import KEYS, _lines, _name, interval
from paper.rates.judge_large import mean
from paper.rates.judge_shapes import OUT as SHAPED
from paper.rates.landscapes import FILE

OUT, AGAIN = FILE.with_name("judged-centred.jsonl"), FILE.with_name("repeated-centred.jsonl")
FRESH, FRESH_AGAIN = FILE.with_name("judged-fresh.jsonl"), FILE.with_name("repeated-fresh.jsonl")
LITTLE, LITTLE_AGAIN = FILE.with_name("judged-little.jsonl"), FILE.with_name("repeated-little.jsonl")
WAYS = ("tune", "norms", "known rate")
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
