"""Runs in this process, one after the other."""

from __future__ import annotations

from dphypo.executors.executor import executors
from dphypo.journal.records import Trial
from dphypo.mechanisms import Mechanism, Outcome
from dphypo.mechanisms.outcome import attempt


@executors.register("in_process")
class InProcess:
    """Makes each run when it is waited for. A run that kills the process kills the study, which can be resumed."""

    def __init__(self, mechanism: Mechanism, *, workers: int = 1, start_method: str = "") -> None:
        self._mechanism = mechanism
        self._trial: Trial | None = None

    @property
    def idle(self) -> bool:
        return self._trial is None

    @property
    def busy(self) -> bool:
        return self._trial is not None

    def start(self, trial: Trial) -> None:
        self._trial = trial

    def wait(self) -> tuple[Trial, Outcome | None]:
        trial, self._trial = self._trial, None
        assert trial is not None
        return trial, attempt(self._mechanism, trial.params, trial.seed)

    def close(self) -> None:
        self._trial = None
