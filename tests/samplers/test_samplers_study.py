"""Every search rule inside a study: both directions, a conditional space, failures."""

from __future__ import annotations

import dp_accounting as dp
import numpy as np
import optuna
import pytest
from scipy.stats import loguniform, uniform
from support.slow import mostly_slow

import dphypo
from dphypo.accounting import PureDp
from dphypo.band import KL, Band
from dphypo.entropy import Seeded
from dphypo.laws import Pmf
from dphypo.samplers import GaussianProcess, OptunaSampler
from dphypo.space import Space

SPACE = Space({"rate": loguniform(1e-3, 1.0), "kind": ["a", "b"]}).when("kind", "b", {"decay": uniform()})
RELATION = dp.NeighboringRelation.ADD_OR_REMOVE_ONE


def score(params) -> float:
    if params["rate"] > 0.5:
        raise FloatingPointError("diverged")
    return -abs(np.log10(params["rate"]) + 2) - 0.3 * params.get("decay", 0.5)


@dphypo.mechanism(event=PureDp(0.5), relation=RELATION)
def maximised(params, *, seed):
    return params, score(params)


@dphypo.mechanism(event=PureDp(0.5), relation=RELATION)
def minimised(params, *, seed):
    return params, -score(params)


RULES = {
    "gaussian process": GaussianProcess,
    "paper": GaussianProcess.paper,
    "optuna": lambda: OptunaSampler(optuna.samplers.TPESampler(seed=0)),
}


def released(mechanism, sampler, maximize):
    study = dphypo.Study(
        SPACE, mechanism, Pmf({12: 1.0}), Band(0.5, 4), sampler, KL(),
        delta=1e-6, journal=None, maximize=maximize, candidates=128, entropy=Seeded(4),
    )  # fmt: skip
    return study.run(progress=False)


@pytest.mark.parametrize("rule", mostly_slow(RULES))
def test_a_study_takes_the_rule_and_direction_makes_no_difference(rule):
    up = released(maximised, RULES[rule](), maximize=True)
    down = released(minimised, RULES[rule](), maximize=False)
    assert up.params == down.params
    assert up.score == -down.score
