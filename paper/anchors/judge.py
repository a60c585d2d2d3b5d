"""Transfer rules judged on trained curves: how much accuracy of a full run the survey's pick loses.

Surveys of eight short runs over the learning rates of a curve are simulated: a score is that of one trained repetition,
drawn at random, plus noise of a private score. What is picked is the best posterior mean, and what it loses is the best
of the full curve (smoothed, over all repetitions) less that curve at the pick. ``python -m paper.anchors.judge FOLDER``
prints a table.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from paper.anchors.trainer import Floats
from paper.simulate.survey_optimiser import Optimiser, Surveys, even

SEARCHES, COUNT, NOISE, SEED = 400, 8, 0.003, 41
RULES = ("table", "rehearsal, memories shrunk", "rehearsal")


def smooth(curve: Floats) -> Floats:
    """Averaged with neighbours a factor of √2 away."""
    return np.convolve(np.pad(curve, 1, mode="edge"), [0.25, 0.5, 0.25], mode="valid")


def losses(full: Floats, short: Floats) -> Floats:
    """What each simulated survey loses; ``full`` and ``short`` are (repetitions, rates)."""
    random = np.random.default_rng(SEED)
    features = np.linspace(0, 1, full.shape[1])[:, None]
    found = Surveys(features, Optimiser(start=COUNT // 2), SEARCHES)
    shift = random.random((SEARCHES, 1))
    for number in range(COUNT):
        cells = even(features, number, shift) if number < COUNT // 2 else found.next_cells()
        scores = short[random.integers(0, len(short), SEARCHES), cells]
        found.observe(cells, scores + NOISE * random.standard_normal(SEARCHES))
    reached = smooth(full.mean(axis=0))
    return np.asarray(reached.max() - reached[found.best_mean()])


def drift(full: Floats, short: Floats, rates: Floats) -> float:
    """The best λ of short runs over that of full ones."""

    def top(curve: Floats) -> float:
        values = smooth(smooth(curve))
        place = int(np.clip(values.argmax(), 1, len(values) - 2))
        left, here, right = values[place - 1 : place + 2]
        shift = 0.5 * (left - right) / min(left - 2 * here + right, -1e-9)
        return math.log(rates[place]) + 0.5 * math.log(2) * float(np.clip(shift, -1, 1))

    return math.exp(top(short.mean(axis=0)) - top(full.mean(axis=0)))


def judged(found: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each optimiser, fraction and rule."""
    rows = []
    for optimiser, curves in found["curves"].items():
        rates, full = np.array(found["plan"]["optimisers"][optimiser]["rates"]), np.array(curves["full"])
        for fraction in found["plan"]["fractions"]:
            for rule in (one for one in RULES if f"{one}, {fraction:g}" in curves):
                short = np.array(curves[f"{rule}, {fraction:g}"])
                lost, moved = losses(full, short), drift(full, short, rates)
                rows.append({
                    "optimiser": optimiser, "fraction": fraction, "rule": rule, "drift": round(moved, 2),
                    "loss": round(float(lost.mean()), 4), "half": round(1.96 * float(lost.std()) / SEARCHES**0.5, 4),
                    "worst twentieth": round(float(np.quantile(lost, 0.95)), 4),
                    "best, short": round(float(short.mean(axis=0).max()), 3),
                    "best, full": round(float(full.mean(axis=0).max()), 3),
                })  # fmt: skip
    return rows


def main(folder: Path) -> None:
    for path in sorted(folder.glob("curves-*.json")):
        for row in judged(json.loads(path.read_text())):
            print(path.stem.removeprefix("curves-"), *(f"{name} {value}" for name, value in row.items()), sep=" | ")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
