"""What the really trained surveys gave, from the files that the trainings left."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from paper.data.points import Floats
from paper.experiments.survey_plans import FILE, kept
from paper.simulate import worlds

SURVEY, BEST = "survey, 20 runs of 0.1", "best cell"
# In the order of the page: those with private scores were planned after the others had been seen.
EXPERIMENTS = (
    "mnist", "cifar10", "fashion", "mnist, batch and steps", "cifar10, batch and steps", "cifar10, coarse grid",
    "mnist, private scores", "cifar10, private scores", "fashion, private scores", "grey, private scores",
    "mnist, batch and steps, private scores", "mnist, batch and more steps, private scores",
    "cifar10, batch and steps, private scores",
)  # fmt: skip


def measured() -> dict[str, Any]:
    """A row for every way to tune; where batch size and steps were tuned, what was picked; and the held-out tasks."""
    plans = json.loads(FILE.read_text())
    rows, picks = [], []
    loaded = {name: json.loads((worlds.FOLDER / kept(name)).read_text()) for name in EXPERIMENTS}
    for name, content in loaded.items():
        for way, arm in content["arms"].items():
            numbers = {key: arm[key] for key in ("mean", "half", "worst", "compute")}
            rows.append({"experiment": name, "way": way, "searches": len(arm["released"]), **numbers,
                         "noise multiplier": round(arm["declared"]["noise"][0], 4)})  # fmt: skip
            if len(plans[name]["settings"]) > 1:
                picks += [{"experiment": name, "way": way, **one} for one in _picks(plans[name], arm)]
    held = [
        {"experiment": name, "measure": measure, **ratio(loaded[name])}
        for name in ("fashion", "fashion, private scores", "grey, private scores")
        for measure, ratio in (("one program", _ratio), ("same batches", _paired_ratio))
        if measure == "one program" or "judged" in loaded[name]
    ]
    return {"rows": rows, "picks": picks, "held out": held}


def _picks(plan: dict[str, Any], arm: dict[str, Any]) -> list[dict[str, Any]]:
    """How often each setting was picked, and what its last runs reached."""
    pairs = len(plan["rates"]) * len(plan["clips"])
    chosen = np.array(arm["table"]["last"]) // pairs
    released = np.array(arm["released"])
    return [
        {**plan["settings"][number], "picked": count, "mean": round(float(released[chosen == number].mean()), 4)}
        for number, count in sorted(Counter(chosen.tolist()).items())
    ]


def _ratio(content: dict[str, Any]) -> dict[str, float]:
    """Regret of the default survey over that of the best uniform search at three times the compute, by bootstrap."""
    survey, top = (np.array(content["arms"][name]["released"]) for name in (SURVEY, BEST))

    def ratio(drawn: Callable[[Floats], Floats]) -> float:
        reached = float(drawn(top).mean())
        return (reached - float(drawn(survey).mean())) / (reached - _best_uniform(content, drawn))

    return _with_interval(ratio)


def _paired_ratio(content: dict[str, Any]) -> dict[str, float]:
    """The same from picks and best cell that were trained with the same batches; programs and surveys are resampled."""
    picked, top = (np.array(content["judged"][name]) for name in ("picked", BEST))

    def ratio(drawn: Callable[[Floats], Floats]) -> float:
        pairs = drawn(np.column_stack([top, picked]))  # a program each
        regret = float((pairs[:, :1] - drawn(pairs[:, 1:].T).T).mean())
        return regret / (float(pairs[:, 0].mean()) - _best_uniform(content, drawn))

    return _with_interval(ratio)


def _best_uniform(content: dict[str, Any], drawn: Callable[[Floats], Floats]) -> float:
    arms = [arm for name, arm in content["arms"].items() if name.startswith("uniform")]
    return max(float(drawn(np.array(arm["released"])).mean()) for arm in arms)


def _with_interval(ratio: Callable[[Callable[[Floats], Floats]], float], draws: int = 4000) -> dict[str, float]:
    """A ratio of the data as it is, and its 95 % interval when rows are resampled."""
    random = np.random.default_rng(0)
    spread = [ratio(lambda rows: np.asarray(rows[random.integers(0, len(rows), len(rows))])) for _ in range(draws)]
    low, high = np.quantile(spread, [0.025, 0.975])
    as_it_is = ratio(lambda rows: rows)
    return {"ratio": round(as_it_is, 3), "low": round(float(low), 3), "high": round(float(high), 3)}
