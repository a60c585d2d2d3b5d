"""Designs drawn at random: whatever is asked for, the certified total is not above it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import dp_accounting as dp
import numpy as np
from scipy.stats import loguniform

import dphypo
from dphypo import planning
from dphypo.accounting import Composition, Split
from dphypo.accounting.profiles import round_epsilon
from dphypo.errors import UnreachableError
from dphypo.mechanisms import OwnTraining, SampledGaussian
from dphypo.search.declaration import Declaration
from dphypo.search.tune import plan_tuning

SPACE = dphypo.Space({"learning_rate": loguniform(1e-2, 10)})
APART = Split("records whose number ends in 9 score").sides
Random = np.random.Generator


def certified(random: Random) -> tuple[str, float, float]:
    """A random design: its name, the total that it was asked for and the one that it would be certified with.

    A design that no noise pays for is refused before anything runs: it costs nothing.
    """
    kind = list(_KINDS)[random.integers(len(_KINDS))]
    epsilon, delta = float(np.exp(random.uniform(np.log(0.3), np.log(12)))), float(random.choice([1e-5, 1e-6]))
    try:
        with warnings.catch_warnings(action="ignore"):  # of δ beside few records, and of the noise of scores
            found = _KINDS[kind](random, epsilon, delta)
    except UnreachableError:
        return kind, epsilon, 0.0
    total = found.certificate.epsilon if isinstance(found, Declaration) else round_epsilon(found.epsilon(delta))
    return kind, epsilon, total


def _run(random: Random) -> SampledGaussian:
    records, epochs = int(random.integers(300, 20_000)), int(random.integers(1, 15))
    batch = int(random.integers(10, max(records // 4, 11)))
    return SampledGaussian.of(records=records, batch_size=batch, epochs=epochs, noise_multiplier=1.0)


def _never(params: object, *, seed: int, run: object) -> Any:
    raise AssertionError("designs are not run")


def _own(random: Random) -> OwnTraining:
    score = dp.GaussianDpEvent(float(random.uniform(2, 60))) if random.random() < 0.7 else None
    split = APART if random.random() < 0.7 else None
    public = "public" if score is None else None
    return OwnTraining(_never, _run(random), scores=public, score_event=score, split=split)


def _plan(random: Random, *, score: bool) -> dphypo.SurveyPlan:
    runs = int(random.integers(1, 30)) if random.random() < 0.6 else None
    fraction = float(random.uniform(0.03, 1)) if random.random() < 0.4 else None
    same: Callable[[Any], Any] | None = (lambda full: full) if random.random() < 0.3 else None
    return dphypo.SurveyPlan(runs=runs, fraction=fraction, score=score, last=same)


def _tuned_own(random: Random, epsilon: float, delta: float) -> Declaration:
    mechanism = _own(random)
    score = bool(random.random() < 0.5) and (mechanism.score_event is None or mechanism.split is not None)
    found = plan_tuning(SPACE, mechanism, epsilon=epsilon, delta=delta, survey=_plan(random, score=score))
    return found.declare(SPACE, delta)


def _tuned_torch(random: Random, epsilon: float, delta: float) -> Declaration:
    from torch import nn

    from dphypo.torch import DPSGD

    count = int(random.integers(400, 6000))
    y = random.integers(0, 2, count)
    data = random.normal(size=(count, 3)).astype(np.float32), y
    sizes = {"batch_size": [32, 64]} if random.random() < 0.3 else {}
    space = dphypo.Space({"learning_rate": loguniform(1e-2, 10), **sizes})
    mechanism = DPSGD(
        model=lambda: nn.Linear(3, 2), data=data, score="accuracy", epochs=int(random.integers(2, 15)), batch_size=64
    )
    plan = _plan(random, score=bool(random.random() < 0.6))
    found = plan_tuning(space, mechanism, epsilon=epsilon, delta=delta, survey=plan)
    return found.declare(space, delta)


def _study(random: Random, epsilon: float, delta: float) -> Declaration:
    run, law = _run(random), dphypo.Geometric(mean=float(random.uniform(2, 20)))
    band = (1.0, 1.0) if random.random() < 0.7 else (0.5, 2.0)
    found = dphypo.calibrate(
        lambda noise: run.at(noise_multiplier=noise).event, law, band, epsilon=epsilon, delta=delta
    ).noise_multiplier
    mechanism = OwnTraining(_never, run.at(noise_multiplier=found), scores="public")
    options: dict[str, Any] = {"delta": delta, "epsilon": epsilon, "journal": None, "policy": "anything"}
    return dphypo.Study(SPACE, mechanism, law, band, **options).declaration


def _optuna(random: Random, epsilon: float, delta: float) -> Composition:
    from dphypo.optuna import OptunaSurvey

    own = _own(random)
    public = "public" if own.score_event is None else None
    options: dict[str, Any] = {"runs": int(random.integers(1, 30)), "score_event": own.score_event, "split": own.split}
    counts = {"reports": int(random.integers(0, 3)), "last_runs": int(random.integers(1, 3))}
    survey = OptunaSurvey(
        own.run, epsilon=epsilon, delta=delta, durations="public", scores=public, progress=False, **options, **counts
    )
    return survey.guarantee


def _compared(random: Random, epsilon: float, delta: float) -> Composition:
    wanted = list(planning.designs(float(random.uniform(1, 8)), 500, (), ()))
    chosen = wanted[random.integers(len(wanted))]
    mechanism = OwnTraining(_never, _run(random), scores="public")
    return planning.spend(chosen, mechanism, SPACE, epsilon=epsilon, delta=delta).guarantee


_KINDS: dict[str, Callable[[Random, float, float], Declaration | Composition]] = {
    "tune(OwnTraining)": _tuned_own,
    "tune(DPSGD)": _tuned_torch,
    "Study": _study,
    "OptunaSurvey": _optuna,
    "plan": _compared,
}
