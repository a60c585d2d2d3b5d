"""An executor of your own, given as ``executor=LatestFirst``: it executes the run that was started last first."""

from __future__ import annotations

from dphypo.journal.journal import Trial
from dphypo.mechanisms import Mechanism, Outcome
from dphypo.mechanisms.mechanism import attempt


class LatestFirst:
    """Holds back as many runs as there are workers, then executes them from the last to the first."""

    def __init__(self, mechanism: Mechanism, *, workers: int) -> None:
        self._mechanism, self._workers = mechanism, workers
        self._waiting: list[Trial] = []

    @property
    def idle(self) -> bool:
        return len(self._waiting) < self._workers

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def start(self, trial: Trial) -> None:
        self._waiting.append(trial)

    def wait(self) -> tuple[Trial, Outcome | None]:
        trial = self._waiting.pop()
        return trial, attempt(self._mechanism, trial.params, trial.seed)

    def close(self) -> None:
        self._waiting.clear()
