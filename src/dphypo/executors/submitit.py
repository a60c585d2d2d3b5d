"""Runs as jobs of a batch system, Slurm above all, through submitit.

Submitit puts a job that is preempted back into the queue, and Slurm one whose machine failed. Jobs here are not
requeued, and the claim refuses a second start whatever is done to them.

Submitit writes what a job is given, what it returns and what it prints to a folder. The folder is made private, and
the files of a job are erased when it has ended.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dphypo import _validate
from dphypo.errors import Stopped
from dphypo.executors.executor import Executor, Withdrawn, executors
from dphypo.executors.futures import Ended, Futures, Task, package, sendable
from dphypo.mechanisms import Mechanism

_LOOK_S = 0.1  # how often to look for results; the batch system itself is asked far less often, by submitit
_CANCEL_S = 60  # how long a job that was cancelled may take to end
_TAGS = ("%j", "%t", "%A", "%a")


@dataclass(frozen=True)
class Submitit:
    """Makes each run as a job: ``study.run(executor=Submitit(executor), workers=100)``.

    Args:
        executor: an executor of submitit, with the resources of a run set by ``update_parameters``. Its folder must
            be one that the machines share.
        host: the address of this machine that they can reach; by default what its name stands for.
    """

    executor: Any
    host: str = ""

    breaks = False  # a job has its processes to itself

    def __post_init__(self) -> None:
        submitit = package("submitit", "submitit")
        kinds = (submitit.AutoExecutor, submitit.SlurmExecutor, submitit.LocalExecutor)
        if not isinstance(self.executor, kinds):
            raise _validate.fail("executor", self.executor, "give submitit.AutoExecutor(folder=...)")
        tasks = self.executor.parameters.get("tasks_per_node", 1) * self.executor.parameters.get("nodes", 1)
        if tasks != 1:
            raise _validate.fail("tasks_per_node", tasks, "a run is one task of one node; it may start others itself")

    def __call__(self, mechanism: Mechanism, /, *, workers: int, start_method: str) -> Executor:
        submitit = package("submitit", "submitit")
        kind = self.executor.cluster if isinstance(self.executor, submitit.AutoExecutor) else None
        local = isinstance(self.executor, submitit.LocalExecutor) or kind in ("local", "debug")
        if not local:
            _forbid_requeue(self.executor, "slurm_" if kind else "")
        _make_private(Path(self.executor.folder))
        died = (submitit.core.utils.UncompletedJobError,)
        host = self.host or ("" if local else _own_address())
        jobs = _Jobs(self.executor)
        return Futures(sendable(mechanism), jobs, workers=workers, host=host, died=died, ours=True)


@executors.register("submitit")
def without_folder(mechanism: Mechanism, /, *, workers: int, start_method: str) -> Executor:
    """``executor="submitit"`` names no folder that the machines share."""
    raise _validate.fail("executor", "submitit", "give Submitit(executor), whose folder all machines share")


def _forbid_requeue(executor: Any, prefix: str) -> None:
    given = dict(executor.parameters.get("additional_parameters", {}) or {})
    if given.pop("requeue", None):
        raise _validate.fail("additional_parameters", "requeue", "leave it out: a run is made once")
    executor.update_parameters(**{f"{prefix}additional_parameters": {**given, "no-requeue": True}})


def _own_address() -> str:
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        address = socket.gethostbyname(name)
        if not address.startswith("127."):
            return address
    raise _validate.fail("host", "", f"give the address of {name} that the other machines can reach")


def _make_private(folder: Path) -> None:
    """Others must not read what jobs are given: their λ, their seeds and the mechanism."""
    parts = folder.expanduser().absolute().parts
    fixed = next((n for n, part in enumerate(parts) if any(tag in part for tag in _TAGS)), len(parts))
    top = Path(*parts[:fixed])
    top.mkdir(parents=True, exist_ok=True)
    if top.stat().st_mode & 0o077:
        try:
            top.chmod(0o700)
        except OSError as error:
            remedy = f"others may read it, and its mode cannot be changed ({error.strerror}): chmod 700, or another one"
            raise _validate.fail("folder", str(top), remedy) from None


class _Jobs(concurrent.futures.Executor):
    """The batch system as an executor of ``concurrent.futures``: a thread looks which jobs have ended."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self._jobs: dict[Future[Any], Any] = {}
        self._ending: set[Future[Any]] = set()  # of those, what is being fetched
        self._lock = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._look, name="dphypo jobs", daemon=True).start()

    def submit(self, make: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        job = self._executor.submit(_make_preemptible, make, *arguments)
        with self._lock:
            self._jobs[future] = job
        return future

    def _look(self) -> None:
        while not self._closed.wait(_LOOK_S):
            with self._lock:
                jobs = [item for item in self._jobs.items() if item[0] not in self._ending]
            for future, job in jobs:
                if not _has_ended(job):
                    continue
                self._ending.add(future)  # it is asked once: a future that was cancelled raises the second time
                if future.set_running_or_notify_cancel():
                    # In a thread of its own: submitit waits long for what a dead job did not write.
                    threading.Thread(target=self._end, args=(future, job), name="dphypo result", daemon=True).start()

    def _end(self, future: Future[Any], job: Any) -> None:
        try:
            tell = partial(future.set_result, job.result())
        except Exception as error:
            tell = partial(future.set_exception, error)
        _erase(job)  # before anybody hears of the end
        with self._lock:
            self._ending.discard(future)
            if self._jobs.pop(future, None) is None:  # the study was stopped in between
                return
        tell()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel the jobs, and erase their files."""
        self._closed.set()
        with self._lock:
            jobs, self._jobs = list(self._jobs.values()), {}
        for job in jobs:
            with contextlib.suppress(Exception):  # it has ended
                job.cancel(check=False)
            _erase(job)
        threading.Thread(target=_see_off, args=(jobs,), name="dphypo cancelled jobs").start()


def _see_off(jobs: list[Any]) -> None:
    """Before the process ends, erase the files that cancelled jobs still wrote."""
    patience, left = time.monotonic() + _CANCEL_S, list(jobs)
    while left and time.monotonic() < patience:
        time.sleep(_LOOK_S)
        left = [job for job in left if not _has_ended(job)]
    for job in jobs:
        _erase(job)


def _has_ended(job: Any) -> bool:
    try:
        return bool(job.done())
    except Exception:  # the batch system did not answer: it is asked again
        return False


def _erase(job: Any) -> None:
    paths = job.paths
    files = (paths.submitted_pickle, paths.result_pickle, paths.stdout, paths.stderr, paths.submission_file)
    unfinished = (path.with_name(f"{path.name}.save_tmp") for path in (paths.submitted_pickle, paths.result_pickle))
    for file in (*files, *unfinished):
        with contextlib.suppress(OSError):
            file.unlink()


def _make_preemptible(make: Callable[[Task, Any], Ended], task: Task, mechanism: Mechanism) -> Ended:
    """Make a run; if the batch system takes the machine back in between, say so instead of asking to be requeued.

    A job that has used up its time is lost: how long a run takes may depend on the data.
    """
    name = str(package("submitit", "submitit").JobEnvironment.USR_SIG).removeprefix("SIG")
    warning = signal.Signals[f"SIG{name}"]  # by which submitit has the batch system announce that a job must end
    before = signal.getsignal(warning)
    handler = getattr(before, "__self__", None)
    timed_out = False

    def stop(number: int, frame: Any) -> None:
        nonlocal timed_out
        timed_out = handler is None or handler.has_timed_out()
        raise Stopped  # the one thing that passes through a run

    signal.signal(warning, stop)
    try:
        ended = make(task, mechanism)
        return None if isinstance(ended, Withdrawn) and timed_out else ended
    finally:
        signal.signal(warning, before)
