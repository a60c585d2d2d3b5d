"""A survey with a last run, and a study, that the tests of plots and reports share. Both take a second."""

from __future__ import annotations

import math
from typing import Any

import dp_accounting as dp
import numpy as np
from scipy.stats import loguniform

import dphypo
from dphypo.accounting import PureDp
from dphypo.entropy import Seeded
from dphypo.laws import Pmf
from dphypo.search import Study
from dphypo.search.release import Release, Row, SurveyTable
from dphypo.space import Space

RELATION = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
SCRIPT = "<script>alert('x')</script>"
SPACE = Space({"lr": loguniform(1e-3, 10.0), "act": ["relu", "tanh"], SCRIPT: [1, 2]})
SECRET_MESSAGE = "a record <b>was</b> quoted here"


def score(params: dict[str, Any], seed: int) -> float:
    return 0.9 - 0.05 * (math.log10(params["lr"]) + 0.5) ** 2 + 0.01 * np.random.default_rng(seed).normal()


def training(epsilon: float) -> Any:
    @dphypo.mechanism(event=PureDp(epsilon), relation=RELATION)
    def train(params, *, seed):
        if params["lr"] > 4:
            raise RuntimeError(SECRET_MESSAGE)
        return {"weights": np.zeros(3)}, score(params, seed)

    return train


def surveyed_release(data_name: str = "digits") -> Release:
    """A survey of twelve runs and a last run."""
    parts = [dphypo.Survey(training(0.05), 12, proposer=dphypo.samplers.Uniform()), dphypo.LastRun(training(0.5))]
    return dphypo.Stages(SPACE, parts, delta=1e-6, journal=None, data_name=data_name).run(progress=False)


def study(seed: int = 1, journal: Any = None, **changes: Any) -> Study:
    """A study of 13 or 17 runs, by the seed."""
    law = Pmf({13: 0.5, 17: 0.5})
    settings = {"delta": 1e-6, "journal": journal, "entropy": Seeded(seed)} | changes
    return Study(SPACE, training(0.5), law, **settings)


def table(runs: int = 40, *, maximize: bool = True) -> SurveyTable:
    """A table with two numbers, a category and failures: the score is a known function of the first and the third."""
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(runs):
        lr, width, act = 10 ** rng.uniform(-3, 1), int(rng.choice([16, 32, 64])), ["relu", "tanh"][rng.integers(2)]
        value = -((math.log10(lr) + 1) ** 2) + 0.5 * (act == "tanh")
        rows.append(Row({"lr": lr, "width": width, "act": act}, None if lr > 6 else value))
    return SurveyTable(tuple(rows), maximize=maximize)
