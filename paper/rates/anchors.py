"""The linear rows of ANCHORS.md at the rate that public values give: ``python -m paper rates-anchors``.

Nothing is trained. One run was trained at each of 21 rates when the anchors were ("best in hindsight", three times), so
the known rate is computed, and what such a run reaches is read off that curve. Gradients were clipped to 1 there. That
is not to normalise them once most records are learnt (``judge_anchors.py``). A scale is told, or bought: then it is the
norm of the features times a constant, although the features of the anchors are centred already.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dphypo.search.rates import ABOUT_THE_MEAN, MOVEMENT
from paper.anchors.normalise import Normaliser, recipe
from paper.anchors.run import PLANS
from paper.anchors.tasks import TASKS
from paper.data.sets import load
from paper.rates.landscapes import FILE

OUT = FILE.with_name("anchors.json")
NAMES = {"mnist": "MNIST", "fashion": "Fashion-MNIST", "cifar10": "CIFAR-10"}
PICTURES = 500  # from which the scale is taken


def scales(name: str, folder: Path) -> dict[str, float]:
    """The scale of a task's features about their mean, and what is assumed of it if norms are bought."""
    pictures = load(TASKS[name].data, folder).train[:PICTURES]
    rows = Normaliser(recipe(TASKS[name].recipe), 0.0, "cpu", 0).fitted(pictures).of(pictures).flatten(1).double()
    norm = float(rows.norm(dim=1).log().mean().exp())
    return {"told": float((rows - rows.mean(0)).square().sum(1).mean().sqrt()), "bought": ABOUT_THE_MEAN * norm}


def row(name: str, folder: Path) -> dict[str, Any]:
    """The known rate of a task, and the accuracy there."""
    declared = json.loads(PLANS.read_text())["tasks"][name]
    (alone,) = (way["noise"] for way in declared["ways"] if way["name"] == "untuned")
    shape = declared["structure"]
    unit = declared["task"]["records"] * (1 - shape["first"]) / (alone * shape["steps"])  # B(1 − μ)/(σ√T), σ = alone·√T
    ways = json.loads((FILE.parents[1] / "anchors" / f"anchors-{name}.json").read_text())["ways"]
    hindsight = ways["best in hindsight, not charged"]
    rates, curve = hindsight["curve"]
    found = {}
    for how, scale in scales(name, folder).items():
        rate = float(f"{MOVEMENT['normalise'][0] / scale:.2g}") * unit
        found[how] = {
            "rate": round(rate, 3),
            "accuracy": round(float(np.interp(math.log(rate), np.log(rates), curve)), 4),
        }
    deviation = float(np.std(hindsight["released"], ddof=1))
    ours = {"ours": ways["ours"]["mean"], "half": ways["ours"]["half"], "compute": ways["ours"]["compute"]}
    return {**found, **ours, "hindsight": hindsight["mean"], "best rate": hindsight["picked"][0], "run": deviation}


def write(folder: Path) -> dict[str, Any]:
    """The rows of all linear anchors."""
    torch.set_num_threads(1)
    found = {name: row(name, folder) for name in NAMES}
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    return found
