"""What the real searches released (``python -m paper study`` and ``staged-study``, on a GPU), in a few numbers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from paper.points import Floats
from paper.worlds import FOLDER


def measured() -> dict[str, Any]:
    """Both comparisons: means, and differences to the best uniform arm paired by repetition, with 95 % intervals."""
    return {name: _summary(json.loads((FOLDER / f"{name}.json").read_text())) for name in ("study", "staged-study")}


def _summary(found: dict[str, Any]) -> dict[str, Any]:
    if any(row["unfinished"] for row in found["arms"].values()):
        raise ValueError("some searches are unfinished: leaving them out would leave out long ones")
    accuracies = {name: np.array(row["accuracy of the releases"]) for name, row in found["arms"].items()}
    uniform = max((name for name in accuracies if name.startswith("uniform")), key=lambda name: accuracies[name].mean())
    best = found.get("best cell", {}).get("mean")
    rows = {
        name: {
            "noise multipliers": [stage["noise multiplier"] for stage in found["arms"][name]["stages"]],
            "epsilon": found["arms"][name]["epsilon"],
            "compute": found["arms"][name]["mean compute in full runs"],
            **_interval(values),
            "median": round(float(np.median(values)), 5),
            "least": round(float(values.min()), 5),
            "against uniform": _interval(values - accuracies[uniform]),
            **({} if best is None else {"regret": round(best - float(values.mean()), 5)}),
        }
        for name, values in accuracies.items()
    }
    kept = ("epsilon", "delta", "score noise", "repetitions", "note", "best cell", "seconds")
    return {**{key: found[key] for key in kept if key in found}, "best uniform arm": uniform, "arms": rows}


def _interval(values: Floats) -> dict[str, float]:
    half = 1.96 * values.std(ddof=1) / len(values) ** 0.5
    return {"mean": round(float(values.mean()), 5), "half": round(float(half), 5)}
