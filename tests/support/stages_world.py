"""A survey, then a study: a search that several tests share. Everything is at the top, for other processes to find."""

from __future__ import annotations

from typing import Any

from support.study_world import RELATION, SPACE, Nearest, score, train
from support.study_world import slow as slow  # found by its name

import dphypo
from dphypo.accounting import PureDp
from dphypo.band import Band, Greedy
from dphypo.entropy import Seeded
from dphypo.laws import Pmf
from dphypo.search import PriorAround, Stage, Stages, Survey

CHEAP = PureDp(0.125)
FEW = Pmf({1: 0.001, 2: 0.499, 3: 0.5})  # with T = 1 possible, it is quick to account for
SEED = 6
PUBLISHED = 2  # runs of the survey


def mechanism(function, event=CHEAP):
    return dphypo.mechanism(event=event, relation=RELATION, seeded=True)(function)


@mechanism
def cheap(params, *, seed):
    """A low fidelity: the best learning rate is another, and the model is worth nothing."""
    return {"cheap": params["lr"]}, score({**params, "lr": params["lr"] * 2}, seed)


def stages(full: Any = train, **changes: Any) -> list[Any]:
    adaptive: dict[str, Any] = {"sampler": Nearest(), "projection": Greedy(), "candidates": 64}
    survey = Survey(cheap, PUBLISHED, **{"prior": PriorAround(spread=0.1)} | changes)
    return [survey, Stage(full, FEW, Band(0.5, 2.0), **adaptive)]


def make(journal: Any = None, full: Any = train, **changes: Any) -> Stages:
    settings: dict[str, Any] = {
        "space": SPACE,
        "stages": stages(full),
        "delta": 1e-6,
        "journal": journal,
        "entropy": Seeded(SEED),
    }
    return Stages(**settings | changes)


def facts(search: Stages) -> tuple[Any, ...]:
    """All that a resumed search must have in common with an uninterrupted one, but the attempts."""
    with search:
        release = search.run(progress=False)
        rows = []
        for number in range(1, len(search.guarantee.terms) + 1):
            curator = search.curator(number)
            trials = [{k: v for k, v in row.items() if k != "attempts"} for row in curator.trials()]
            rows.append((curator.total(), trials))
    model = None if release.model is None else release.saver.dump(release.model)
    released = [one.rows for one in search.released]
    return rows, released, release.params, release.score, model, release.certificate.to_dict()
