"""The search of ``stages_world``, made by ask and tell, for processes that are killed."""

from __future__ import annotations

from typing import Any

from support import stages_world
from support.stages_world import train as train

from dphypo.search import Stages


class Asked:
    """Makes the runs itself, one after the other."""

    def __init__(self, search: Stages) -> None:
        self.search = search

    def run(self, **_: Any) -> None:
        while (trial := self.search.ask()) is not None:
            self.search.tell(trial, trial.mechanism(trial.params, seed=trial.seed))
        self.search.release()


def make(*arguments: Any, **changes: Any) -> Asked:
    return Asked(stages_world.make(*arguments, **changes))
