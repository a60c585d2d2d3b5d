"""A ladder whose third rung of four reaches the target. Everything is at the top, where other processes find it."""

from __future__ import annotations

from functools import cache
from typing import Any

import dp_accounting as dp
from scipy.stats import loguniform

from dphypo.mechanisms import Declared
from dphypo.search import Ladder, Stages
from dphypo.search.declaration import Declaration
from dphypo.search.ladder import Climb, plan_ladder
from dphypo.space import Space

RELATION = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
SPACE = Space({"lr": loguniform(1e-3, 1.0)})
DELTA, EPSILON = 1e-6, 2.0
REACHES, TOTALS = 3, (0.25, 0.5, 1.0, 2.0)


class Training(Declared):
    """A Gaussian mechanism: the less noise, the better its score. Its model lists the noise of those it began from."""

    def at(self, noise_multiplier: float) -> Training:
        return training(noise_multiplier)

    @property
    def noise_multiplier(self) -> float:
        return float(self.event.noise_multiplier)

    def continued(self, kept: float, model: Any = None) -> Training:
        return training(self.noise_multiplier, [] if model is None else [*model["from"], [kept, model["noise"]]])


def training(noise_multiplier: float, begun: Any = ()) -> Training:
    def train(params: Any, *, seed: int) -> Any:
        return {"noise": noise_multiplier, "lr": params["lr"], "from": [*begun]}, -noise_multiplier

    return Training(train, event=dp.GaussianDpEvent(noise_multiplier), relation=RELATION, seeded=True)


train = training(1.0)


@cache
def climb(reaches: int = REACHES) -> Climb:
    """A ladder that stops at this rung; at none if 0."""
    rungs = plan_ladder(SPACE, train, Ladder(0.0, epsilons=TOTALS), epsilon=EPSILON, delta=DELTA).rungs
    target = 0.0 if not reaches else -1.01 * rungs[reaches - 1].mechanism({"lr": 0.1}, seed=0)[0]["noise"]
    return plan_ladder(SPACE, train, Ladder(target, epsilons=TOTALS), epsilon=EPSILON, delta=DELTA)


@cache
def declared(reaches: int) -> Declaration:
    return climb(reaches).declare(SPACE, DELTA)


def make(journal: Any = None, _: Any = None, *, name: str = "ladder", reaches: int = REACHES, **more: Any) -> Stages:
    return Stages.of(declared(reaches), journal=journal, name=name, **more)
