"""RATES.md from what was trained, and the digits of the README: rates-page, rates-digits."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

from dphypo.entropy import Seeded
from dphypo.integrations.torch import DPSGD, PublicAccuracy
from dphypo.search import Stages
from dphypo.search.tune import plan_tuning
from paper.rates import fit
from paper.rates.judge import BEFORE, cells, rows
from paper.rates.landscapes import DELTA, FILE

PAGE, TEMPLATE = Path(__file__).parents[1] / "RATES.md", Path(__file__).with_name("RATES.in.md")
DIGITS = FILE.with_name("digits.json")
WAYS = ("before", "tune", "known rate", "Adam", "hindsight")


def digits(repetitions: int = 20) -> dict[str, Any]:
    """The ten lines of the README many times over: the old way to search, and the new default."""
    pixels, labels = load_digits(return_X_y=True)
    private, public = (pixels[:1500] / 16, labels[:1500]), (pixels[1500:] / 16, labels[1500:])

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    made = DPSGD(model=network, data=private, score="accuracy", epochs=20, device="cpu")
    found: dict[str, Any] = {}
    for name, space, search in (("before", BEFORE, "always"), ("tune", made.default_space(), "auto")):
        with warnings.catch_warnings(action="ignore"):
            tuning = plan_tuning(space, made, epsilon=4.0, delta=DELTA, search=search)
            each = [
                Stages.of(tuning.declare(space, DELTA, private=False), journal=None, entropy=Seeded(seed))
                for seed in range(repetitions)
            ]
            scores = [float(PublicAccuracy(public)(one.run(progress=False).model)) for one in each]
        found[name] = {"mean": round(float(np.mean(scores)), 4), "worst": round(min(scores), 4), "of": repetitions}
        DIGITS.write_text(json.dumps(found) + "\n")
    return found


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    made = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in made)


def rules() -> str:
    """The rules that were compared, each judged on tasks that were left out of its fit."""
    found = json.loads(fit.OUT.read_text())["rules"]
    lines = [[name, f"{one['mean']:.4f}", f"{one['worst']:.3f}", f"{one['spread']:.2f}"] for name, one in found.items()]
    return table(["rule", "mean regret", "worst", "spread of ln c"], lines)


def judged() -> str:
    """One row a cell."""
    found = sorted(rows(), key=lambda row: (row["task"], row["network"], row["records"], row["epsilon"]))
    lines = [
        [row["task"], row["network"], f"{row['records']}", f"{row['epsilon']:g}", *(f"{row[way]:.3f}" for way in WAYS)]
        for row in found
    ]
    return table(["task", "network", "records", "ε", *WAYS], lines)


def summary() -> str:
    """Mean regret against hindsight by the number of records, for every way."""
    found = list(rows())
    groups: list[tuple[str, Callable[[int], bool]]] = [
        ("1 000 to 1 300", lambda size: size < 2000),
        ("3 000", lambda size: 2000 <= size < 9000),
        ("10 000 and more", lambda size: size >= 9000),
    ]
    lines = []
    for name, inside in groups:
        some = [row for row in found if inside(row["records"])]
        if some:
            means = [float(np.mean([row["hindsight"] - row[way] for row in some])) for way in WAYS[:-1]]
            worst = max(row["hindsight"] - row["tune"] for row in some)
            lines.append([name, f"{len(some)}", *(f"{one:.4f}" for one in means), f"{worst:.3f}"])
    return table(["records", "cells", *WAYS[:-1], "tune, worst"], lines)


def facts() -> str:
    """What the plan asks, in sentences."""
    found = list(rows())
    below = [row for row in found if row["tune"] < row["known rate"] - max(row["half"], 1e-9)]
    beaten = sum(row["tune"] >= row["before"] for row in found)
    worst = max(found, key=lambda row: row["hindsight"] - row["tune"])
    where = f"{worst['task']}, {worst['network']}, {worst['records']} records, ε = {worst['epsilon']:g}"
    searched = sum(row["runs"] > 0 for row in found)
    named = "; ".join(
        f"{row['task']}, {row['network']}, {row['records']}, ε = {row['epsilon']:g}: {row['tune']:.3f} against "
        f"{row['known rate']:.3f} ± {row['half']:.3f}"
        for row in below
    )
    return "\n".join(
        [
            f"- {len(found)} of the {len(cells())} planned cells were made in the time there was, cheap ones first.",
            f"- `tune` is at least as accurate as before in {beaten} of them, and searched in {searched}.",
            f"- It is below the known rate by more than the interval in {len(below)} cells"
            + (f" ({named})." if below else "."),
            f"- Its worst cell is {where}: {worst['tune']:.3f}, where the best rate in hindsight has "
            f"{worst['hindsight']:.3f}. Before, it had {worst['before']:.3f}.",
        ]
    )


def write() -> None:
    """Fill in the template."""
    text = TEMPLATE.read_text(encoding="utf-8")
    prior = json.loads(fit.OUT.read_text())
    twenty = json.loads(DIGITS.read_text())
    made = {"rules": rules, "judged": judged, "summary": summary, "facts": facts}
    for name, function in made.items():
        text = text.replace(f"<!-- {name} -->", function())
    found = {name: one["mean"] if "left out" in name else one for name, one in prior.items()}
    found |= {f"{way} {key}": one[key] for way, one in twenty.items() for key in one}
    for name, value in found.items():
        text = text.replace(f"<!-- {name} -->", f"{value}")
    PAGE.write_text(text, encoding="utf-8")
