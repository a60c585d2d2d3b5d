"""Who makes the runs: this process, one at a time, or several others.

Every run is independent of the others given its λ, so they may be made side by side: a λ drawn while others still
train uses less of the history, which the theorems allow. What is told counts by its score and its key, never by when
it came back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from dphypo.executors.processes import Processes
from dphypo.journal import Trial
from dphypo.mechanisms import Mechanism, Outcome, attempt


class Workers(Protocol):
    """Something that makes runs."""

    @property
    def idle(self) -> bool:
        """Whether another run can be started."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""
        ...

    def start(self, trial: Trial) -> None:
        """Begin a run; only while ``idle``."""
        ...

    def wait(self) -> tuple[Trial, Outcome | None]:
        """The next run that ended; None in place of its outcome if its process died."""
        ...


@contextlib.contextmanager
def hire(mechanism: Mechanism, count: int, start_method: str) -> Iterator[Workers]:
    """This process for one worker, ``count`` others for more; they are gone when the block ends."""
    if count == 1:
        yield InProcess(mechanism)
        return
    workers = Processes(mechanism, count, start_method)
    try:
        workers.gather()
        yield workers
    finally:
        workers.dismiss()


class InProcess:
    """Makes runs here, one after the other."""

    def __init__(self, mechanism: Mechanism) -> None:
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
