"""Runs in other processes. A process that dies loses its run; it never changes or ends anything else."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from dataclasses import dataclass, replace
from multiprocessing import connection as pipes
from typing import Any

from dphypo.errors import UnsupportedModelError, WorkerError
from dphypo.journal import Trial
from dphypo.mechanisms import Mechanism, Outcome, attempt


@dataclass(eq=False)
class _Worker:
    process: Any
    pipe: Any  # our end
    ready: bool = False


class Processes:
    """Makes runs in other processes, each of which may die without taking anything else with it."""

    def __init__(self, mechanism: Mechanism, count: int, start_method: str) -> None:
        self._mechanism = mechanism
        self._context: Any = multiprocessing.get_context(start_method)
        self._count = count
        self._waiting: list[_Worker] = []
        self._working: dict[_Worker, Trial] = {}

    def gather(self) -> None:
        """Start all workers, side by side: how many there are says nothing of T."""
        for _ in range(self._count):
            self._waiting.append(self._hire())

    @property
    def idle(self) -> bool:
        return len(self._working) < self._count

    @property
    def busy(self) -> bool:
        return bool(self._working)

    def start(self, trial: Trial) -> None:
        worker = self._waiting.pop() if self._waiting else self._hire()
        self._working[worker] = trial
        if not worker.ready:
            _greet(worker)
        with contextlib.suppress(OSError):  # a worker that died while it waited: wait() finds its pipe closed
            worker.pipe.send((trial.params, trial.seed))

    def wait(self) -> tuple[Trial, Outcome | None]:
        pipe = pipes.wait([worker.pipe for worker in self._working])[0]
        worker = next(worker for worker in self._working if worker.pipe is pipe)
        try:
            answer = worker.pipe.recv()
        except (EOFError, OSError):
            _end(worker)
            return self._working.pop(worker), None
        self._waiting.append(worker)
        trial = self._working.pop(worker)
        if isinstance(answer, UnsupportedModelError):
            raise answer
        return trial, answer

    def _hire(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._mechanism), name="dphypo", daemon=True)
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TypeError(
                f"the mechanism cannot be sent to another process ({error}): define it at the top of a module, run "
                'with workers=1, or, where the process has no threads, with start_method="fork"'
            ) from None
        theirs.close()
        return _Worker(process, ours)

    def dismiss(self) -> None:
        """End all workers. A run under way is lost: it will be made again as it was."""
        workers, self._waiting, self._working = [*self._waiting, *self._working], [], {}
        for worker in workers:
            _end(worker)


def _greet(worker: _Worker) -> None:
    """A worker that dies before it says that it is there never had a run: that is not an outcome of the run."""
    try:
        worker.pipe.recv()
    except (EOFError, OSError):
        raise WorkerError from None
    worker.ready = True


def _end(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.join()
    worker.process.close()
    worker.pipe.close()


def _serve(theirs: Any, mechanism: Mechanism) -> None:
    """The life of a worker: runs until its pipe ends, or with the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the study, which then ends its workers
    threading.Thread(target=_die_with_parent, daemon=True).start()
    theirs.send("ready")
    while True:
        try:
            params, seed = theirs.recv()
        except EOFError:
            return
        answer: Outcome | UnsupportedModelError
        try:
            answer = replace(attempt(mechanism, params, seed), leaving=None)  # the worker itself stays
        except UnsupportedModelError as error:
            answer = UnsupportedModelError(*error.args)
        theirs.send(answer)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
