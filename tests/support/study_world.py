"""A small search that the tests of the study share. Everything is at the top, where other processes find it."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from typing import Any

import dp_accounting as dp
import numpy as np
from scipy.stats import loguniform

import dphypo
from dphypo.accounting import PureDp
from dphypo.band import Band, Greedy
from dphypo.entropy import Seeded
from dphypo.laws import Pmf
from dphypo.search import Study
from dphypo.space import Space

RELATION = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
EVENT = PureDp(0.5)  # the quickest to account for
SPACE = Space({"lr": loguniform(1e-3, 1.0), "depth": [1, 2, 3]})
LAW = Pmf({1: 0.001, 5: 0.25, 6: 0.25, 7: 0.25, 8: 0.249})  # with T = 1 possible, it is quick to account for
SEED = 14  # six runs, the best in the middle, and two of depth 2


def noise(seed: int) -> float:
    """A number in [0, 1) that depends on the seed alone."""
    return int.from_bytes(hashlib.sha256(str(seed).encode()).digest()[:7], "big") / 2**56


def score(params: dict[str, Any], seed: int) -> float:
    return -abs(np.log10(params["lr"]) + 1.5) + 0.1 * params["depth"] + 0.3 * noise(seed)


def mechanism(function, **options):
    return dphypo.mechanism(**{"event": EVENT, "relation": RELATION} | options)(function)


@dphypo.mechanism(event=EVENT, relation=RELATION, seeded=True)
def train(params, *, seed):
    return {"weights": np.full(50, params["lr"]), "seed": seed}, score(params, seed)


@dphypo.mechanism(event=EVENT, relation=RELATION, seeded=True)
def slow(params, *, seed):
    time.sleep(0.02 + 0.03 * noise(seed))
    return {"weights": np.full(50, params["lr"]), "seed": seed}, score(params, seed)


@dphypo.mechanism(event=EVENT, relation=RELATION, seeded=True)
def deadly(params, *, seed):
    """A run that takes its process with it for a third of the λ."""
    if params["depth"] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return params["lr"], score(params, seed)


@dphypo.mechanism(event=EVENT, relation=RELATION)
def fragile(params, *, seed):
    """``deadly``, without saying that its randomness comes from the seed."""
    return deadly(params, seed=seed)


@dphypo.mechanism(event=EVENT, relation=RELATION)
def slow_and_fragile(params, *, seed):
    return slow(params, seed=seed)


class Nearest:
    """Weights near the best run so far."""

    def weights(self, candidates, history):
        scores = np.where(history.failed, -np.inf, history.scores)
        if not np.isfinite(scores).any():
            return candidates.masses
        centre = history.unit[int(np.argmax(scores))]
        return np.exp(-10 * ((candidates.unit - centre) ** 2).sum(axis=1))


def make(journal: Any = None, mechanism: Any = train, **changes: Any) -> Study:
    settings: dict[str, Any] = {
        "space": SPACE,
        "mechanism": mechanism,
        "runs": LAW,
        "band": Band(0.5, 2.0),
        "sampler": Nearest(),
        "projection": Greedy(),
        "delta": 1e-6,
        "journal": journal,
        "candidates": 64,
        "entropy": Seeded(SEED),
    }
    return Study(**settings | changes)


def facts(study: Study) -> tuple[Any, ...]:
    """All that a resumed study must have in common with an uninterrupted one, but the attempts."""
    trials = [{k: v for k, v in row.items() if k != "attempts"} for row in study.curator().trials()]
    release = study.released()
    assert release is not None
    model = None if release.model is None else release.saver.dump(release.model)
    return study.curator().total(), trials, release.params, release.score, model, release.certificate.to_dict()
