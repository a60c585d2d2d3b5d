"""Who executes the runs: this process, one run at a time, or worker processes on this machine.

Given its λ, a run is independent of the others, so runs may be executed in parallel. A λ that is drawn while other runs
still train depends on less of the history, which the theorems allow. Runs are ranked by score and tie-breaking key,
never by when they end.

A worker that dies loses its run and affects nothing else. Each worker leads its own session. It may therefore have
children, interrupts of the terminal do not reach it, and its whole session can be ended: when the worker dies, when the
search ends, and when the coordinator is killed. Mechanisms that execute many runs at once get them in groups: in this
process, or a share on every device.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import inspect
import io
import itertools
import multiprocessing
import os
import pickle
import select
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from multiprocessing import connection as pipes
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar, Protocol, runtime_checkable

from dphypo import _validate
from dphypo._stderr import usable
from dphypo.errors import ExecutorError, UnsupportedModelError
from dphypo.journal.journal import Trial
from dphypo.mechanisms import Mechanism, Outcome
from dphypo.mechanisms.mechanism import attempt, attempt_many
from dphypo.mechanisms.savers import Pickled

BROKEN = (
    "a worker died and the executor accepts no more work: run the study again with a new executor; it resumes where it "
    "stopped"
)
NO_WORKERS = (
    "several worker processes in a row ended before they could start a run; what they printed says why. With the start "
    "method \"spawn\" they import the main module again: protect the code there with if __name__ == '__main__'. They "
    "cannot import what was defined in a notebook or at a prompt: define it in a module"
)


MIXED_UP = (
    "the executor returned something other than the outcome of the run that it was given, such as the outcome of "
    "another run. Nothing was recorded. Use another executor; the search resumes where it stopped. Your own executor "
    "must call dphypo.mechanisms.mechanism.attempt and return the outcome with its run"
)


class Withdrawn:
    """Returned instead of an outcome if the cluster took the worker back before the run ended."""


@runtime_checkable
class Executor(Protocol):
    """Executes runs, each at most once."""

    @property
    def idle(self) -> bool:
        """Whether another run can be started."""

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""

    def start(self, trial: Trial) -> None:
        """Begin a run; only while ``idle``."""

    def wait(self) -> tuple[Trial, Outcome | Withdrawn | None]:
        """The next run that ended, with what :func:`dphypo.mechanisms.mechanism.attempt` returned; only while ``busy``.

        Instead of the outcome, None means that the run's process died or may have died, and the search decides whether
        to repeat the run. :class:`Withdrawn` means that the process did not die.
        """

    def close(self) -> None:
        """Stop all runs, and end every process that was started for them."""


Factory = Callable[..., Executor]
"""Called with (mechanism, workers=...): a class, a function, or an object with a cluster's client."""


class InProcess:
    """Executes each run when it is waited for. A run that kills the process ends the search, which can be resumed."""

    def __init__(self, mechanism: Mechanism, *, workers: int = 1) -> None:
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


def checked(ended: object, started: Mapping[int, Trial]) -> tuple[Trial, Outcome | Withdrawn | None]:
    """What an executor returned, refused unless it is the outcome of a run that was started and has not ended.

    An executor that mixed up two results would give a run the score and the model of another λ.
    """
    given, outcome = ended if isinstance(ended, tuple) and len(ended) == 2 else (None, None)
    trial = started.get(given.number) if isinstance(given, Trial) else None
    if trial is not None:
        if outcome is None or isinstance(outcome, Withdrawn):
            return trial, outcome
        if isinstance(outcome, Outcome) and outcome.started_with == (trial.params, trial.seed):
            return trial, replace(outcome, started_with=None)
    raise ExecutorError(MIXED_UP)


def attempt_elsewhere(mechanism: Mechanism, params: Mapping[str, Any], seed: int) -> Outcome | UnsupportedModelError:
    """Execute a run in a worker. An error that the search must see is returned, because clusters log what is raised."""
    try:
        return attempt(mechanism, params, seed)
    except UnsupportedModelError as error:
        return UnsupportedModelError(*error.args)


Every = timedelta | int | None
"""How often a checkpoint is written: after this much time, or this many steps; None for never."""
FIVE_MINUTES = timedelta(minutes=5)


@dataclass(frozen=True)
class Execution:
    """How runs are executed: the arguments of ``run`` from which :meth:`open` creates an executor."""

    workers: int = 1
    start_method: str = "spawn"
    executor: str | Factory | concurrent.futures.Executor | None = None  # None: processes of this library, or this one
    devices: Sequence[str] | str | int | None = None
    checkpoint_every: Every = FIVE_MINUTES

    def __post_init__(self) -> None:
        object.__setattr__(self, "workers", _validate.integer(at_least=1, workers=self.workers))
        every, devices = self.checkpoint_every, self.devices
        number: Any = every.total_seconds() if isinstance(every, timedelta) else every
        if not isinstance(self.start_method, str):
            raise _validate.fail("start_method", self.start_method, "give one of multiprocessing, such as 'spawn'")
        if number is not None and (isinstance(every, bool) or not isinstance(every, timedelta | int) or number <= 0):
            remedy = "give a datetime.timedelta, a number of steps, or None for no checkpoints"
            raise _validate.fail("checkpoint_every", every, remedy)
        if devices is not None and self.executor is not None:
            remedy = "executor= already says where runs are executed: omit one of the two"
            raise _validate.fail("devices", devices, remedy)

    @property
    def local(self) -> bool:
        """Whether this library's processes on this machine execute the runs: they see its files and its terminal."""
        return self.executor in (None, "in_process", "processes")

    @property
    def here(self) -> bool:
        """Whether runs are executed in this process, so that a run that dies ends it."""
        if self.executor is None:
            return self.workers == 1
        return self.executor == "in_process" or isinstance(self.executor, concurrent.futures.ThreadPoolExecutor)

    @property
    def breaks(self) -> bool:
        """Whether the death of one process may end runs of others, as in a pool of ``concurrent.futures``."""
        pool = isinstance(self.executor, concurrent.futures.Executor) and not self.here
        return self.workers > 1 and (pool or bool(getattr(self.executor, "breaks", False)))

    def spawns(self, mechanism: Mechanism, *, single: bool) -> bool:
        """Whether processes of this library execute the runs, one at a time, and are sent the mechanism."""
        if self.start_method == "fork" or self.devices is not None:
            return False
        own = self.executor is None and self.workers > 1 and (single or not mechanism.makes_many)
        return own or self.executor == "processes"

    def open(self, mechanism: Mechanism) -> AbstractContextManager[Executor]:
        """An executor for the runs of a mechanism, which is closed when the block ends."""
        executor: object = self.executor
        if executor is None:
            executor = InProcess if self.workers == 1 else "processes"
        if isinstance(executor, concurrent.futures.Executor):
            if type(executor).__module__.startswith("distributed."):
                remedy = "give dphypo.executors.Dask(client): Dask may start a run twice"
                raise _validate.fail("executor", executor, remedy)
            from dphypo.executors.futures import Pool

            executor = Pool(executor, host="")
        named = {"in_process": InProcess, "processes": partial(Processes, start_method=self.start_method)}
        factory: Any = named.get(executor) if isinstance(executor, str) else executor
        try:
            inspect.signature(factory).bind(mechanism, workers=self.workers)
        except (TypeError, ValueError):  # it cannot be called so, or at all
            made = "Dask(client), Ray(...) or Submitit(executor) of dphypo.executors"
            remedy = f'give "in_process" or "processes"; {made}; or an executor of concurrent.futures'
            raise _validate.fail("executor", executor, remedy) from None
        opened: object = factory(mechanism, workers=self.workers)
        if not isinstance(opened, Executor):
            raise _validate.fail("executor", executor, "it must return an Executor when it is called with a mechanism")
        return contextlib.closing(opened)


class Lost(StrEnum):
    """What happens to a run whose process died (docs/theory/search.md, "Lost runs").

    Whether the data caused the death cannot be observed. The following do not count as deaths of a run: an interrupt or
    SIGTERM, a worker that a cluster takes back, the loss of the machine, and a death after a new checkpoint. In these
    cases the run is repeated with its seed, or resumed, whatever is declared here.
    """

    AGAIN = "again"
    """It is repeated with the same seed, and fails after three deaths without progress. For mechanisms whose randomness
    comes from the seed alone: otherwise runs that survive are selected."""

    FAILED = "failed"
    """It counts as failed at once, which is covered if runs die independently."""

    @classmethod
    def read(cls, given: Lost | str | None, mechanism: Mechanism) -> Lost:
        """What the user gave; by default AGAIN if the mechanism states that it is ``seeded``, else FAILED."""
        if given is None:
            return cls.AGAIN if mechanism.seeded is True else cls.FAILED
        return _validate.choice(cls, lost=given)

    def check(self, execution: Execution) -> None:
        """Refuse executors whose runs die together if a death is an outcome: deaths must be independent."""
        if self is Lost.FAILED and execution.breaks:
            remedy = (
                "when one process of such a pool dies, the other runs end too, so failures are not independent. Use "
                'executor="processes" or workers=1; or seeded=True or lost="again" if all randomness is from the seed'
            )
            raise _validate.fail("executor", execution.executor, remedy)

    @property
    def condition(self) -> str:
        """What the guarantee assumes, for the certificate."""
        if self is Lost.AGAIN:
            return (
                "a run whose process died was repeated with its seed, and counts as failed after three deaths without "
                "progress; that is covered if all randomness of a run comes from its seed, or if no death depends on "
                "the data"
            )
        return (
            "a run whose process died counts as failed, which is covered if runs die independently of one another; a "
            "run that was stopped in order, lost with its machine, or killed after it had written a checkpoint was "
            "repeated with its seed, which is covered if none of this depends on the data"
        )


_PATIENCE = 3  # how many workers in a row may die before they begin a run
_LOOK_S = 0.5  # how often to check that workers live, if the system does not report it


@dataclass(eq=False)
class _Worker:
    process: Any
    pipe: Any  # the coordinator's end
    place: int  # the worker's index
    watch: int | None  # a descriptor that becomes readable when the process ends, even if a child holds its pipes
    ready: bool = False  # the worker has reported that it has started
    begun: bool = False  # the worker has reported that it begins its run


class Processes:
    """Executes runs in worker processes, each of which may die without affecting the others."""

    def __init__(self, *each: Mechanism, workers: int, start_method: str = "spawn") -> None:
        self._each = each  # one for each worker, in turn: the same training on different devices
        self._context: Any = multiprocessing.get_context(start_method)
        self._count = workers
        self._early_deaths = 0
        self._working: dict[_Worker, Trial] = {}
        self._waiting: list[_Worker] = []
        try:
            for _ in range(workers):  # all of them, so that their number reveals nothing about T
                self._waiting.append(self._new_worker())
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
            _end(worker)
        self._give(self._waiting.pop() if self._waiting else self._new_worker(), trial)

    def _give(self, worker: _Worker, trial: Trial) -> None:
        self._working[worker], worker.begun = trial, False
        if worker.ready:
            with contextlib.suppress(OSError):  # the worker has died, which wait() detects
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
        """Handle one message of a worker, or its death; return the run that ended, if any."""
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
        """Handle the death of a worker. One that died before it began its run is replaced, and no death is counted."""
        trial = self._working.pop(worker)
        _end(worker)
        if worker.begun:
            return trial, None
        self._early_deaths += 1
        if self._early_deaths >= _PATIENCE:
            raise ExecutorError(NO_WORKERS)
        self._give(self._new_worker(), trial)
        return None

    def _new_worker(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        taken = {worker.place for worker in (*self._waiting, *self._working)}
        place = next(place for place in itertools.count() if place not in taken)
        mechanism = self._each[place % len(self._each)]
        process = self._context.Process(target=_serve, args=(theirs, mechanism), name="dphypo", daemon=False)
        # A keyboard interrupt while the worker imports modules is meant for the coordinator alone.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise _not_sendable(error) from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        return _Worker(process, ours, place, _watch(process.pid))

    def close(self) -> None:
        """End all workers and their children. Unfinished runs will be repeated with their seeds."""
        workers, self._waiting, self._working = [*self._waiting, *self._working], [], {}
        for worker in workers:
            _end(worker)


def _not_sendable(error: Exception) -> TypeError:
    return TypeError(
        f"the mechanism cannot be sent to another process ({error}): define it at the top of a module, run with "
        'workers=1, or, if the process has no threads, with start_method="fork"'
    )


class _WithoutArrays(ForkingPickler):
    """Pickles a mechanism without its arrays, which can be sent and may be large."""

    def persistent_id(self, value: object) -> str | None:
        return "array" if hasattr(type(value), "__array__") else None


def check_sendable(mechanism: Mechanism) -> None:
    """Refuse a mechanism that cannot be sent to a worker process, before anything is drawn."""
    try:
        _WithoutArrays(io.BytesIO()).dump(mechanism)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise _not_sendable(error) from None
    except Exception:  # what can only be sent while a process starts
        return


def _watch(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, or an old one
        return None


def _ended(worker: _Worker) -> bool:
    if worker.watch is None:
        return not worker.process.is_alive()
    return bool(select.select([worker.watch], [], [], 0)[0])


def _end(worker: _Worker) -> None:
    """End a worker and every process that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.process.pid, signal.SIGKILL)  # its session, if the worker has made it
    worker.process.kill()
    worker.process.join()
    worker.process.close()
    worker.pipe.close()
    if worker.watch is not None:
        os.close(worker.watch)


def _serve(theirs: Any, mechanism: Mechanism) -> None:
    """The loop of a worker. It ends when its pipe is closed or the coordinator ends."""
    os.setsid()
    with usable():
        _execute(theirs, mechanism)


def _execute(theirs: Any, mechanism: Mechanism) -> None:
    """Execute runs until the pipe is closed."""
    # An interrupt, or SIGTERM to all processes of a job, is meant for the coordinator, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = os.getpid()

    def end_children(number: int, frame: Any) -> None:
        """A signal handler: the worker ignores the signal, but a child that a run has forked ends."""
        if os.getpid() != worker:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end_children)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # Children of the run must not keep the pipe open: the coordinator detects a dead worker by its closed pipe.
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


@dataclass(frozen=True)
class GroupSizes:
    """How many runs a mechanism executes at once: ``first`` at the beginning, then ``later`` at a time."""

    first: int
    later: int

    def of(self, number: int) -> int:
        return self.first if number < self.first else self.later

    def start(self, number: int) -> int:
        """The first run of that group: λ of all its runs depend on the results before it."""
        return 0 if number < self.first else number - (number - self.first) % self.later


class Groups:
    """Executes the runs that were started as one group when they are waited for.

    A group is padded to its size. A lost group is therefore repeated in the same shape and with the same seeds, even if
    some of its runs have ended.

    Args:
        each: the same training, once for each device. With several devices, each has its own process, which executes a
            share of every group; with one device, groups are executed in this process.
        size: the size of the group to which a run belongs, by the run's number.
        alone: whether a lost run is repeated alone. In a study, no run may fail because another one ends the process.
    """

    def __init__(
        self, each: Sequence[Mechanism], size: Callable[[int], int], *, alone: bool = False, start_method: str = "spawn"
    ) -> None:
        shares: list[Any] = [_Share(one) for one in each]
        self._shares, self._size, self._alone = shares, size, alone
        self._started: list[Trial] = []
        self._ended: deque[tuple[Trial, Outcome | None]] = deque()
        self._workers: Processes | None = None
        if len(each) > 1:
            self._workers = Processes(*shares, workers=len(each), start_method=start_method)

    @property
    def idle(self) -> bool:
        """Whether another run can join the group: none can while outcomes of the last group are returned."""
        return not self._ended and (not self._started or len(self._started) < self._places(self._started[0]))

    @property
    def busy(self) -> bool:
        return bool(self._started or self._ended)

    def start(self, trial: Trial) -> None:
        self._started.append(trial)

    def wait(self) -> tuple[Trial, Outcome | None]:
        if not self._ended:
            group, self._started = self._started, []
            self._ended.extend(zip(group, self._make(group, self._places(group[0])), strict=True))
        return self._ended.popleft()

    def _make(self, group: Sequence[Trial], size: int) -> Sequence[Outcome | None]:
        """The outcomes of a group, in order; None for runs whose process died."""
        if self._workers is None:
            return self._shares[0].make(group, size)  # type: ignore[no-any-return]
        share = -(-size // len(self._shares))
        for start in range(0, len(group), share):
            given = {"group": list(group[start : start + share]), "size": share}
            self._workers.start(Trial(given, 0, start, b"", 0))
        made: dict[int, Outcome | None] = {}
        while self._workers.busy:
            task, outcome = self._workers.wait()
            runs = task.params["group"]
            found = Pickled().load(outcome.model) if outcome is not None and outcome.ok else [outcome] * len(runs)
            made |= {trial.number: one for trial, one in zip(runs, found, strict=True)}
        return [made[trial.number] for trial in group]

    def close(self) -> None:
        self._started, self._ended = [], deque()
        if self._workers is not None:
            self._workers.close()

    def _places(self, first: Trial) -> int:
        return 1 if self._alone and first.attempts > 1 else self._size(first.number)


@dataclass(frozen=True)
class _Share:
    """A share of a group as a worker sees it: one run, whose model is the list of outcomes."""

    mechanism: Mechanism
    saver: ClassVar[Pickled] = Pickled()  # between processes of this library

    def make(self, group: Sequence[Trial], size: int) -> list[Outcome]:
        return attempt_many(self.mechanism, [one.params for one in group], [one.seed for one in group], size)

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Outcome:
        return Outcome(self.make(params["group"], params["size"]), 0.0)
