"""A survey that Optuna drives, as its tests declare it."""

from __future__ import annotations

import numpy as np
import optuna
from support.plain_run import PlainRun

from dphypo.optuna import OptunaSurvey

RUN = PlainRun()


def survey(**changes):
    scores = {} if "score_event" in changes else {"scores": "public"}
    settings = {"epsilon": 4.0, "delta": 1e-5, "durations": "public", "runs": 8, **scores, **changes}
    return OptunaSurvey(RUN, settings.pop("epsilon"), settings.pop("delta"), **settings)


SURVEY = survey()


def objective(trial):
    lr = trial.suggest_float("lr", 1e-3, 10.0, log=True)
    return -abs(np.log(lr))


def study(**options):
    return optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=1), **options)
