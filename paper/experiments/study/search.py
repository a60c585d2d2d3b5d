"""One search among many: what it waits for, what it has used, what it has released."""

from __future__ import annotations

from dataclasses import dataclass

from dphypo.accounting import Certificate
from dphypo.entropy import Seeded
from dphypo.mechanisms import Outcome
from dphypo.search.study import StageTrial
from paper.experiments.study.designs import Arm
from paper.experiments.study.training import Training


class Search:
    """A search of an arm. Without adaptivity it asks for all its runs at once, with it for one after the other."""

    def __init__(self, arm: Arm, seed: int) -> None:
        self.arm = arm
        self.waiting: list[Run] = []
        self.steps = 0  # that were trained
        self.finished = False
        self._search = arm.search(Seeded(seed))

    @property
    def certificate(self) -> Certificate:
        return self._search.certificate

    def ask(self) -> None:
        """Let all runs wait that may be made now. Nothing may be under way: then none waiting means the end."""
        while not self.finished and not any(run.adaptive for run in self.waiting):
            trial = self._search.ask()
            if trial is None:
                self.finished = not self.waiting
                return
            self.waiting.append(Run(self, trial, self.arm.training, self.arm.adaptive))

    def tell(self, run: Run, outcome: Outcome) -> None:
        self.waiting.remove(run)
        self.steps += run.training.steps
        self._search.tell(run.trial, outcome)

    def held_out(self) -> float | None:
        """The accuracy of what is released on pictures that no run was scored on; None if the search is unfinished."""
        return float(self._search.release().model["held_out"]) if self.finished else None


@dataclass(frozen=True, eq=False)
class Run:
    """A run that waits to be trained."""

    search: Search
    trial: StageTrial
    training: Training
    adaptive: bool


def searches(arm: Arm, count: int, seed: int) -> list[Search]:
    """Repetition n has seed ``seed + n`` in every arm, which pairs the arms."""
    return [Search(arm, seed + n) for n in range(count)]
