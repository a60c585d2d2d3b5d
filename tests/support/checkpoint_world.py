"""A survey and a last run with DP-SGD, which tests kill and resume: seeded, so that two ways to the end compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scipy.stats import loguniform
from support.torch_world import dpsgd

import dphypo
from dphypo.entropy import Seeded
from dphypo.search import LastRun, Stages, Survey

STEPS = 12
train = dpsgd(epochs=STEPS / 2, average="last half", fixed={"momentum": 0.9})
long = dpsgd(epochs=60)  # 120 steps


def make(journal: str | Path | None = None, mechanism: Any = train, name: str = "study") -> Stages:
    parts = [Survey(mechanism.at(fraction=0.25), 2), LastRun(mechanism)]
    space = dphypo.Space({"learning_rate": loguniform(0.1, 1)})
    return Stages(space, parts, delta=1e-3, journal=journal, name=name, entropy=Seeded(11))
