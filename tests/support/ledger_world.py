"""Searches that reserve in a ledger. Everything is at the top, where other processes find it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.study_world import RELATION, SPACE

import dphypo
from dphypo.accounting import PureDp
from dphypo.errors import LedgerError
from dphypo.laws import Pmf
from dphypo.search import PriorAround, Stage, Stages, Study, Survey

TWO = Pmf({1: 1e-6, 2: 1 - 1e-6})  # with T = 1 possible, it is quick to account for


@dphypo.mechanism(event=PureDp(0.1), relation=RELATION, seeded=True)
def train(params, *, seed):
    return {"lr": params["lr"]}, float(params["depth"])


@dphypo.mechanism(event=PureDp(0.05), relation=RELATION, seeded=True)
def cheaper(params, *, seed):
    return {"lr": params["lr"]}, float(params["depth"])


@dphypo.mechanism(event=PureDp(4.0), relation=RELATION, seeded=True)
def dear(params, *, seed):
    raise AssertionError("a search that was refused made a run")


def make(journal: Any = None, mechanism: Any = train, kind: str = "study", **changes: Any) -> Any:
    if kind == "study":
        return Study(SPACE, mechanism, TWO, delta=1e-6, journal=journal, **changes)
    first = Survey(cheaper, 2, prior=PriorAround(spread=0.1))
    return Stages(SPACE, [first, Stage(mechanism, TWO)], delta=1e-6, journal=journal, **changes)


def attempt(folder: str, number: int) -> bool:
    """One of several processes that search at once, each with its own journal; whether it was admitted."""
    try:
        make(Path(folder) / f"{number}.db", ledger=Path(folder) / "ledger.db").run(progress=False)
    except LedgerError:
        return False
    return True
