"""Runs in processes of our own. One that dies loses its run; it never changes or ends anything else.

Each worker leads a session of its own, so that it may have children, a terminal's interrupt does not reach it, and all
of them can be ended with it: when it dies, when the study ends, and when the study's own process is killed.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import select
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import connection as pipes
from typing import Any

from dphypo.errors import ExecutorError, UnsupportedModelError
from dphypo.executors.executor import NO_WORKERS, attempt_elsewhere
from dphypo.journal.journal import Trial
from dphypo.mechanisms import Mechanism, Outcome

_PATIENCE = 3  # how many workers in a row may die before they begin a run
_LOOK_S = 0.5  # how often to look whether a worker lives, where the system cannot tell


@dataclass(eq=False)
class _Worker:
    process: Any
    pipe: Any  # our end
    place: int  # which of the workers it is
    watch: int | None  # a descriptor that is readable when the process has ended, whoever holds its pipes
    ready: bool = False  # it has said that it is there
    begun: bool = False  # it has said that it begins the run it was given


class Processes:
    """Makes runs in other processes, each of which may die without taking anything else with it."""

    def __init__(
        self, mechanism: Mechanism, *, workers: int, start_method: str = "spawn", each: Sequence[Mechanism] = ()
    ) -> None:
        self._each = each or [mechanism]  # the workers take them in turn: the same training on different devices
        self._context: Any = multiprocessing.get_context(start_method)
        self._count = workers
        self._early_deaths = 0
        self._working: dict[_Worker, Trial] = {}
        self._waiting: list[_Worker] = []
        try:
            for _ in range(workers):  # all of them, side by side: how many there are says nothing of T
                self._waiting.append(self._hire())
        except BaseException:
            self.close()
            raise

    @property
    def idle(self) -> bool:
        return len(self._working) < self._count

    @property
    def busy(self) -> bool:
        return bool(self._working)

    def start(self, trial: Trial) -> None:
        for worker in [one for one in self._waiting if one.ready and _ended(one)]:
            self._waiting.remove(worker)
            _bury(worker)
        self._give(self._waiting.pop() if self._waiting else self._hire(), trial)

    def _give(self, worker: _Worker, trial: Trial) -> None:
        self._working[worker], worker.begun = trial, False
        if worker.ready:
            with contextlib.suppress(OSError):  # it has died: wait() sees that
                worker.pipe.send((trial.params, trial.seed))

    def wait(self) -> tuple[Trial, Outcome | None]:
        while True:
            watched = [worker.watch for worker in self._working if worker.watch is not None]
            pipes.wait([*(worker.pipe for worker in self._working), *watched], timeout=_LOOK_S)
            for worker in list(self._working):
                ended = self._hear(worker)
                if ended is not None:
                    return ended

    def _hear(self, worker: _Worker) -> tuple[Trial, Outcome | None] | None:
        """Handle one message of a worker, or its death; return the run that ended, if one did."""
        try:
            if not worker.pipe.poll():
                return self._lose(worker) if _ended(worker) and not worker.pipe.poll() else None
            message = worker.pipe.recv()
        except (EOFError, OSError):
            return self._lose(worker)
        if message == "ready":
            worker.ready = True
            self._give(worker, self._working[worker])
            return None
        if message == "begun":
            worker.begun, self._early_deaths = True, 0
            return None
        trial = self._working.pop(worker)
        self._waiting.append(worker)
        if isinstance(message, UnsupportedModelError):
            raise message
        return trial, message

    def _lose(self, worker: _Worker) -> tuple[Trial, None] | None:
        """Replace a worker that died before it began its run. This does not count as an outcome."""
        trial = self._working.pop(worker)
        _bury(worker)
        if worker.begun:
            return trial, None
        self._early_deaths += 1
        if self._early_deaths >= _PATIENCE:
            raise ExecutorError(NO_WORKERS)
        self._give(self._hire(), trial)
        return None

    def _hire(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        taken = {worker.place for worker in (*self._waiting, *self._working)}
        place = next(place for place in itertools.count() if place not in taken)
        mechanism = self._each[place % len(self._each)]
        process = self._context.Process(target=_serve, args=(theirs, mechanism), name="dphypo", daemon=False)
        # An interrupt from the keyboard while the worker imports what it needs is for the study alone.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TypeError(
                f"the mechanism cannot be sent to another process ({error}): define it at the top of a module, run "
                'with workers=1, or, where the process has no threads, with start_method="fork"'
            ) from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        return _Worker(process, ours, place, _watch(process.pid))

    def close(self) -> None:
        """End all workers and their children. A run under way is lost: it will be made again as it was."""
        workers, self._waiting, self._working = [*self._waiting, *self._working], [], {}
        for worker in workers:
            _bury(worker)


def _watch(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, or an old one
        return None


def _ended(worker: _Worker) -> bool:
    if worker.watch is None:
        return not worker.process.is_alive()
    return bool(select.select([worker.watch], [], [], 0)[0])


def _bury(worker: _Worker) -> None:
    """End a worker and all that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.process.pid, signal.SIGKILL)  # its session; there is none if it died before it was ready
    worker.process.kill()
    worker.process.join()
    worker.process.close()
    worker.pipe.close()
    if worker.watch is not None:
        os.close(worker.watch)


def _serve(theirs: Any, mechanism: Mechanism) -> None:
    """The loop of a worker. It ends with its pipe, or with the process that started it."""
    os.setsid()
    # An interrupt, or SIGTERM to all processes of a job, is for the study, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = os.getpid()

    def end_children(number: int, frame: Any) -> None:
        """A signal handler: the worker ignores the signal, and a child that a run has forked ends."""
        if os.getpid() != worker:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end_children)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # Children of the run must not keep the pipe open: its end is how the study learns that this process died.
    os.set_inheritable(theirs.fileno(), False)
    os.register_at_fork(after_in_child=theirs.close)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    theirs.send("ready")
    while True:
        try:
            params, seed = theirs.recv()
        except EOFError:
            return
        theirs.send("begun")
        theirs.send(attempt_elsewhere(mechanism, params, seed))


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        watch = _watch(parent.pid)
        if watch is None:
            parent.join()
        else:
            select.select([watch], [], [])
    os.killpg(os.getpgid(0), signal.SIGKILL)
