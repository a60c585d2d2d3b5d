"""Random calls of what people construct: sensible arguments, one or two of which are replaced by hostile ones."""

from __future__ import annotations

import decimal
import random
import tempfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import dp_accounting as dp
import numpy as np
from optuna.samplers import TPESampler
from scipy.stats import loguniform
from support.study_world import EVENT, RELATION, Nearest, train

import dphypo
from dphypo import audit, entropy, executors, journal, laws, noise, samplers, search
from dphypo.accounting import PureDp
from dphypo.band import KL, Band, Greedy, Mixed
from dphypo.executors.executor import Execution
from dphypo.journal.journal import Journal
from dphypo.journal.store import open_store
from dphypo.mechanisms import OwnTraining, SampledGaussian, SmallerBatches
from dphypo.optuna import OptunaSurvey
from dphypo.search import release
from dphypo.sklearn import Schema
from dphypo.torch import split_by_hash

SPACE = dphypo.Space({"lr": loguniform(1e-3, 1.0), "depth": [1, 2, 3]})
LAW = dphypo.Pmf({2: 0.5, 3: 0.5})
STAGE = dphypo.Stage(train, LAW)
RUN = SampledGaussian.of(records=1000, batch_size=100, epochs=2, noise_multiplier=1.0)
GUARANTEE = dphypo.account(PureDp(0.1), dphypo.Pmf({1: 1.0}))
CERTIFICATE = GUARANTEE.certificate(1e-6)


def _train(params: Any, *, seed: int, run: Any) -> tuple[float, float]:
    return 1.0, 1.0


def _fresh() -> Path:
    """A file that does not exist, in a folder of its own that goes with the process."""
    return Path(tempfile.mkdtemp(dir=_FOLDER.name)) / "ledger.db"


_FOLDER = tempfile.TemporaryDirectory(prefix="dphypo-fuzz-")


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
            "projection": Greedy(),
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
            "stages": [dphypo.Survey(train, 2), STAGE],
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
            "projection": KL(),
            "candidates": 64,
            "grid": {"lr": 4},
        },
    ),
    "PriorAround": (dphypo.PriorAround, {"spread": 0.1, "floor": 0.1}),
    "Space": (dphypo.Space, {"parameters": {"lr": loguniform(1e-3, 1.0), "depth": [1, 2]}}),
    "Space of one": (lambda lr: dphypo.Space({"lr": lr}), {"lr": [1, 2]}),
    "Space.grid": (SPACE.grid, {"lr": 4}),
    "Space.around": (SPACE.around, {"params": {"lr": 0.1, "depth": 2}, "spread": 0.1, "floor": 0.1}),
    "Space.candidates": (SPACE.candidates, {"n": 4, "entropy": entropy.Seeded(1)}),
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
    "SampledGaussian": (SampledGaussian, {"rate": 0.01, "steps": 100, "noise_multiplier": 1.0}),
    "Survey": (
        dphypo.Survey,
        {"mechanism": train, "runs": 3, "proposer": None, "pick": None, "prior": dphypo.PriorAround()},
    ),
    "SurveyPlan": (dphypo.SurveyPlan, {"runs": 8, "fraction": 0.1, "proposer": None}),
    "LastRun": (dphypo.LastRun, {"mechanism": train}),
    "open_store": (open_store, {"where": None}),
    "execution": (
        lambda **options: Execution(**options).open(train).__enter__(),
        {"workers": 1, "executor": "in_process"},
    ),
    "Seeded": (entropy.Seeded, {"seed": 3}),
    "load_release": (dphypo.load_release, {"folder": "/nowhere"}),
    "Certificate": (dphypo.Certificate.from_dict, {"document": {"format": "x"}}),
    "GaussianProcess": (samplers.GaussianProcess, {}),
    "Ledger.open": (
        lambda **given: journal.Ledger.open(**{"path": _fresh(), **given}),
        {"epsilon": 2.0, "delta": 1e-6, "relation": RELATION, "name": "ledger"},
    ),
    "Ledger.open at": (journal.Ledger.open, {"path": "/nowhere/ledger.db", "epsilon": 2.0, "delta": 1e-6}),
    "Ledger": (journal.Ledger, {"path": "/nowhere/ledger.db", "name": "ledger"}),
    "Ledger.reserve": (
        lambda **given: journal.Ledger.open(_fresh(), epsilon=9.0, delta=1e-6).reserve(**given),
        {"guarantee": GUARANTEE, "name": "search", "key": "key", "delta": 1e-6},
    ),
    "Study with a ledger": (
        lambda **given: dphypo.Study(SPACE, train, LAW, delta=1e-6, journal=None, **given),
        {"ledger": None, "lag": 0, "lost": "again", "data_name": "data", "policy": "anything", "first_from_prior": 1},
    ),
    "Study.run": (
        lambda **given: dphypo.Study(SPACE, train, LAW, delta=1e-6, journal=None).run(**given),
        {"progress": False, "workers": 1, "executor": "in_process", "start_method": "spawn"},
    ),
    "Journal": (lambda name: Journal(open_store(None), name), {"name": "study"}),
    "open_journal": (dphypo.open_journal, {"journal": "/nowhere/x.db", "name": "study"}),
    "verify": (dphypo.verify, {"certificate": "/nowhere.json", "key": None}),
    "Certificate.load": (dphypo.Certificate.load, {"path": "/nowhere.json"}),
    "calibrate": (
        dphypo.calibrate,
        {"make_event": dp.GaussianDpEvent, "runs": LAW, "band": (1, 1), "epsilon": 1.0, "delta": 1e-6},
    ),
    "SampledGaussian.of": (
        SampledGaussian.of,
        {"records": 1000, "batch_size": 100, "noise_multiplier": 1.0, "epochs": 2.0, "fraction": 0.5},
    ),
    "OwnTraining": (
        OwnTraining,
        {"train": _train, "run": RUN, "score_event": EVENT, "split": "same", "fraction": 1.0},
    ),
    "SmallerBatches": (SmallerBatches, {}),
    "OptunaSurvey": (
        OptunaSurvey,
        {
            "run": RUN,
            "epsilon": 2.0,
            "delta": 1e-6,
            "durations": "public",
            "scores": "public",
            "runs": 3,
            "fraction": 0.1,
            "score_event": None,
            "reports": 0,
            "last_runs": 1,
            "ledger": None,
        },
    ),
    "Row": (release.Row, {"params": {"lr": 0.1}, "score": 0.5}),
    "SurveyTable": (lambda **given: len(release.SurveyTable(**given)), {"rows": (release.Row({"lr": 0.1}, 0.5),)}),
    "SurveyTable.from_dict": (release.SurveyTable.from_dict, {"data": {"rows": [], "maximize": True}}),
    "Release.save": (
        lambda folder, **given: search.Release(**given, certificate=CERTIFICATE).save(folder),
        {"params": {"lr": 0.1}, "model": [1.0], "score": 0.5, "folder": "/nowhere/at/all\0"},
    ),
    "GaussianProcess with": (samplers.GaussianProcess, {"tau": 1.0, "beta": 4.0, "start": 2}),
    "OptunaSampler": (samplers.OptunaSampler, {"sampler": TPESampler(), "proposals": 1, "fraction": 0.2}),
    "Mixed": (Mixed, {"nu": 0.5}),
    "noisy_count": (
        lambda **given: noise.noisy_count(**given, words=noise.Words(b"k" * 32)),
        {"count": 3, "sigma": 2.0},
    ),
    "noisy_sum": (
        lambda **given: noise.noisy_sum(**given, words=noise.Words(b"k" * 32)),
        {"values": [0.1, 0.2], "bound": 1.0, "sigma": 2.0},
    ),
    "Words": (noise.Words, {"key": b"k" * 32}),
    "split_by_hash": (
        split_by_hash,
        {"inputs": np.arange(6.0).reshape(3, 2), "targets": np.arange(3), "share": 0.2, "key": "key"},
    ),
    "Schema": (Schema, {"columns": {"age": (18, 90), "work": ["office", "outside"]}}),
    "Execution": (Execution, {"workers": 1, "start_method": "spawn", "executor": None}),
    "Ray": (executors.Ray, {"host": "", "num_cpus": 1}),
    "audit_observations": (
        audit.audit_observations,
        {"here": [0, 1] * 20, "there": [0, 0] * 20, "delta": 1e-3, "claimed": 1.0, "confidence": 0.99},
    ),
    "bernoulli": (lambda probability: entropy.bernoulli(probability, entropy.SYSTEM), {"probability": 0.5}),
    "below": (lambda bound: entropy.below(bound, entropy.SYSTEM), {"bound": 5}),
    "uniforms": (lambda count: entropy.uniforms(count, entropy.SYSTEM), {"count": 5}),
    "Outcome.of": (dphypo.Outcome.of, {"returned": (1.0, 0.5)}),
    "Outcome.failed": (dphypo.Outcome.failed, {"reason": "failed"}),
    "Survey with": (
        dphypo.Survey,
        {"mechanism": train, "runs": 3, "models": False, "durations": "secret", "lag": None, "prior": None},
    ),
    "SurveyPlan with": (
        dphypo.SurveyPlan,
        {"short": None, "last": None, "score": False, "models": False},
    ),
    "PoissonSampled": (
        lambda q, noise: dphypo.account(dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(noise)), LAW),
        {"q": 0.1, "noise": 2.0},
    ),
}


ABSENT = {  # what they name is not there
    *("Ledger.open at", "Ledger", "open_journal", "Certificate.load", "load_release"),
    *("Certificate", "Release.save"),
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
