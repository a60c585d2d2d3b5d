"""What the really trained surveys gave, from the files that the trainings left."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np

from paper.data.points import Floats
from paper.experiments.survey_plans import FILE
from paper.simulate import worlds

# In the order of the page: the last two were planned after the others had been seen.
FILES = {
    "mnist": "surveys-mnist",
    "cifar10": "surveys-cifar10",
    "fashion": "surveys-fashion",
    "mnist, batch and steps": "surveys-mnist-batch-and-steps",
    "cifar10, batch and steps": "surveys-cifar10-batch-and-steps",
    "cifar10, coarse grid": "surveys-cifar10-coarse-grid",
}


def measured() -> dict[str, Any]:
    """A row for every way to tune; where batch size and steps were tuned, what was picked; and the held-out task."""
    plans = json.loads(FILE.read_text())
    rows, picks = [], []
    loaded = {name: json.loads((worlds.FOLDER / f"{file}.json").read_text()) for name, file in FILES.items()}
    for name, content in loaded.items():
        for way, arm in content["arms"].items():
            numbers = {key: arm[key] for key in ("mean", "half", "worst", "compute")}
            rows.append({"experiment": name, "way": way, "searches": len(arm["released"]), **numbers,
                         "noise multiplier": round(arm["declared"]["noise"][0], 4)})  # fmt: skip
            if len(plans[name]["settings"]) > 1:
                picks += [{"experiment": name, "way": way, **one} for one in _picks(plans[name], arm)]
    return {"rows": rows, "picks": picks, "held out": _ratio(loaded["fashion"]["arms"])}


def _picks(plan: dict[str, Any], arm: dict[str, Any]) -> list[dict[str, Any]]:
    """How often each setting was picked, and what its last runs reached."""
    pairs = len(plan["rates"]) * len(plan["clips"])
    chosen = np.array(arm["table"]["last"]) // pairs
    released = np.array(arm["released"])
    return [
        {**plan["settings"][number], "picked": count, "mean": round(float(released[chosen == number].mean()), 4)}
        for number, count in sorted(Counter(chosen.tolist()).items())
    ]


def _ratio(arms: dict[str, Any], draws: int = 4000) -> dict[str, float]:
    """Regret of the default survey over that of the best uniform search at three times the compute, by bootstrap."""
    survey, reached, *uniform = (
        np.array(arms[name]["released"])
        for name in ("survey, 20 runs of 0.1", "best cell", "uniform, Poisson T, mean 9", "uniform, shape 8, mean 9")
    )
    random = np.random.default_rng(0)

    def ratio(resample: bool) -> float:
        def mean(values: Floats) -> float:
            return float((random.choice(values, len(values)) if resample else values).mean())

        top = mean(reached)
        return (top - mean(survey)) / (top - max(mean(one) for one in uniform))

    spread = np.quantile([ratio(True) for _ in range(draws)], [0.025, 0.975])
    return {"ratio": round(ratio(False), 3), "low": round(float(spread[0]), 3), "high": round(float(spread[1]), 3)}
