"""Random calls of what people construct: sensible arguments, one or two of which are replaced by hostile ones."""

from __future__ import annotations

import decimal
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import dp_accounting as dp
import numpy as np
from scipy.stats import loguniform
from support.study_world import EVENT, RELATION, Nearest, train

import dphypo
from dphypo import entropy, executors, journal, laws, samplers
from dphypo.band import KL, Band, Greedy
from dphypo.mechanisms import DpSgd
from dphypo.planning import Design, Landscape

SPACE = dphypo.Space({"lr": loguniform(1e-3, 1.0), "depth": [1, 2, 3]})
LAW = dphypo.Pmf({2: 0.5, 3: 0.5})
STAGE = dphypo.Stage(train, LAW)


def _generator() -> Iterator[int]:
    yield 1


HOSTILE: list[Callable[[], Any]] = [
    (lambda value=value: value)  # type: ignore[misc]
    for value in (
        *(None, True, False, 0, 1, -1, 2, 7, 10**30, -(10**30), 0.0, -0.0, 0.5, -0.5, 1.5, 1e308, 1e-320),
        *(float("nan"), float("inf"), -float("inf"), "3", "", " ", "nan", "minimize", "maximize", "\0", b"x", "é" * 99),
        *(complex(1, 1), Fraction(1, 3), decimal.Decimal("0.1"), decimal.Decimal("NaN"), Ellipsis, int, object()),
        *(np.float64("nan"), np.int64(3), np.bool_(True), np.datetime64("2020-01-01"), Path("/nowhere/x.db"), range(3)),
        *(dphypo.Space, train, LAW, SPACE, EVENT, Greedy(), Band(0.5, 2.0), RELATION, entropy.Seeded(1), STAGE),
        *(lambda: 0, lambda *a, **k: None, {"a": None}, {"lr": None}, {"lr": -1}, {"lr": 10**9}, {1: 2}, {"": [1]}),
        *({"lr": "x"}, {"nope": 3}, ("a",), (1, 2, 3), frozenset({1}), slice(1)),
    )
] + [
    list,
    dict,
    set,
    tuple,
    _generator,
    lambda: np.array([1.0, 2.0]),
    lambda: np.array(["a"], dtype=object),
    lambda: np.zeros((2, 2)),
    lambda: [None],
    lambda: [[1]],
    lambda: ["x"] * 3,
    lambda: [STAGE],
    lambda: [STAGE, None],
]  # fmt: skip

# What is called, and sensible arguments for it.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Study": (
        dphypo.Study,
        {
            "space": SPACE,
            "mechanism": train,
            "runs": LAW,
            "band": Band(0.5, 2.0),
            "sampler": Nearest(),
            "rule": Greedy(),
            "delta": 1e-6,
            "journal": None,
            "name": "study",
            "maximize": True,
            "candidates": 64,
            "grid": None,
            "entropy": entropy.Seeded(1),
        },
    ),
    "Stages": (
        dphypo.Stages,
        {
            "space": SPACE,
            "stages": [STAGE, STAGE],
            "delta": 1e-6,
            "journal": None,
            "name": "stages",
            "maximize": True,
            "entropy": entropy.Seeded(1),
        },
    ),
    "Stage": (
        dphypo.Stage,
        {
            "mechanism": train,
            "runs": LAW,
            "band": Band(1, 1),
            "sampler": None,
            "rule": KL(),
            "prior": dphypo.PriorAround(),
            "release_score": False,
            "candidates": 64,
            "grid": {"lr": 4},
        },
    ),
    "PriorAround": (dphypo.PriorAround, {"spread": 0.1, "floor": 0.1, "shift": {"lr": 0.5}}),
    "Space": (dphypo.Space, {"parameters": {"lr": loguniform(1e-3, 1.0), "depth": [1, 2]}}),
    "Space of one": (lambda lr: dphypo.Space({"lr": lr}), {"lr": [1, 2]}),
    "Space.grid": (SPACE.grid, {"lr": 4}),
    "Space.around": (SPACE.around, {"params": {"lr": 0.1, "depth": 2}, "spread": 0.1, "floor": 0.1}),
    "Space.candidates": (SPACE.candidates, {"count": 4, "entropy": entropy.Seeded(1)}),
    "Geometric": (laws.Geometric, {"mean": 10.0}),
    "Geometric γ": (laws.Geometric, {"gamma": 0.1}),
    "Logarithmic": (laws.Logarithmic, {"mean": 10.0}),
    "NegativeBinomial": (laws.NegativeBinomial, {"shape": 2.0, "mean": 10.0}),
    "Poisson": (laws.Poisson, {"mean": 10.0}),
    "Pmf": (laws.Pmf, {"probabilities": {2: 0.5, 3: 0.5}}),
    "capped": (laws.Geometric(mean=5).capped, {"limit": 10}),
    "from_dict": (laws.from_dict, {"description": laws.Geometric(mean=5).to_dict()}),
    "Band": (Band, {"c": 0.5, "C": 2.0}),
    "PureDp": (dphypo.accounting.PureDp, {"epsilon": 0.5}),
    "ApproximateDp": (dphypo.accounting.ApproximateDp, {"epsilon": 0.5, "delta": 1e-6}),
    "RdpCurve": (dphypo.accounting.RdpCurve, {"orders": [2.0, 4.0, 8.0], "epsilons": [0.1, 0.2, 0.4]}),
    "account": (dphypo.account, {"event": EVENT, "runs": LAW, "band": Band(0.5, 2.0), "relation": RELATION}),
    "mechanism": (
        lambda train, **options: dphypo.mechanism(**options)(train),
        {"train": train.train, "event": EVENT, "relation": RELATION, "score_event": None, "split": "same"},
    ),
    "DpSgd": (DpSgd, {"rate": 0.01, "steps": 100, "noise_multiplier": 1.0}),
    "Design": (
        Design,
        {"fraction": 0.1, "compute_share": 0.5, "split": 0.1, "spread": 0.05, "floor": 0.05},
    ),
    "Landscape": (Landscape, {"shape": (2,), "scores": {1.0: {1.0: [0.0, 1.0]}}, "score_noise": 0.1}),
    "Survey": (dphypo.Survey, {"mechanism": train, "runs": 3, "optimiser": None, "pick": None}),
    "SurveyPlan": (dphypo.SurveyPlan, {"runs": 8, "fraction": 0.1, "optimiser": None}),
    "LastRun": (dphypo.LastRun, {"mechanism": train, "fallback": {"lr": 0.1, "depth": 1}}),
    "open_store": (journal.open_store, {"where": None}),
    "hire": (lambda **options: executors.hire(train, **options).__enter__(), {"workers": 1, "executor": "in_process"}),
    "Seeded": (entropy.Seeded, {"seed": 3}),
    "load_release": (dphypo.load_release, {"folder": "/nowhere"}),
    "Certificate": (dphypo.Certificate.from_dict, {"document": {"format": "x"}}),
    "GaussianProcess": (samplers.GaussianProcess, {}),
    "PoissonSampled": (
        lambda q, noise: dphypo.account(dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(noise)), LAW),
        {"q": 0.1, "noise": 2.0},
    ),
}


def call(rng: random.Random) -> tuple[str, Callable[[], Any]]:
    """One call, and what it is in words."""
    name = rng.choice(list(CALLS))
    function, sensible = CALLS[name]
    arguments = dict(sensible)
    changed = rng.sample(list(arguments), min(rng.choice([1, 1, 2]), len(arguments)))
    for one in changed:
        arguments[one] = rng.choice(HOSTILE)()
    if rng.random() < 0.03 and arguments:
        del arguments[rng.choice(list(arguments))]
    shown = ", ".join(f"{one}={arguments[one]!r:.60}" for one in changed if one in arguments)
    return f"{name}({shown})", lambda: function(**arguments)
