"""Runs as jobs of a batch system such as Slurm, through submitit.

Submitit requeues a job that is preempted, and Slurm one whose machine failed. Jobs here are not requeued, and the claim
refuses a second start in any case.

Submitit writes the arguments, the result and the output of a job to a folder. The folder is made private, and the files
of a job are erased when it has ended.
"""

from __future__ import annotations

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
from dphypo.executors.executor import Executor, Withdrawn
from dphypo.executors.futures import Ended, Futures, Task, package, sendable
from dphypo.mechanisms import Mechanism

_LOOK_S = 0.1  # how often to look for results; submitit asks the batch system itself far less often
_CANCEL_S = 60  # how long a cancelled job may take to end
_ASKING = threading.Lock()  # one thread at a time asks the batch system, whose answer covers all jobs
_TAGS = ("%j", "%t", "%A", "%a")


@dataclass(frozen=True)
class Submitit:
    """Executes each run as a job: ``study.run(executor=Submitit(executor), workers=100)``.

    Args:
        executor: an executor of submitit, with the resources of a run set by ``update_parameters``. The machines must
            share its folder.
        host: an address of this machine that they can reach; by default the one that its name resolves to.
    """

    executor: Any
    host: str = ""

    breaks = False  # jobs do not share processes

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
            given = dict(self.executor.parameters.get("additional_parameters", {}) or {})
            if given.pop("requeue", None):
                raise _validate.fail("additional_parameters", "requeue", "omit it: a run is executed once")
            name = f"{'slurm_' if kind else ''}additional_parameters"
            self.executor.update_parameters(**{name: {**given, "no-requeue": True}})
        _make_private(Path(self.executor.folder))
        died = (submitit.core.utils.UncompletedJobError,)
        host = self.host or ("" if local else _own_address())

        def submit(make: Callable[..., Any], *arguments: Any) -> Future[Any]:
            return _Job(self.executor.submit(_make_preemptible, make, *arguments))

        return Futures(sendable(mechanism), submit, workers=workers, host=host, died=died)


def _own_address() -> str:
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        address = socket.gethostbyname(name)
        if not address.startswith("127."):
            return address
    raise _validate.fail("host", "", f"give the address of {name} that the other machines can reach")


def _make_private(folder: Path) -> None:
    """Make the folder readable by its owner alone: it holds λ, seeds and the mechanism."""
    parts = folder.expanduser().absolute().parts
    fixed = next((n for n, part in enumerate(parts) if any(tag in part for tag in _TAGS)), len(parts))
    top = Path(*parts[:fixed])
    top.mkdir(parents=True, exist_ok=True)
    if top.stat().st_mode & 0o077:
        try:
            top.chmod(0o700)
        except OSError as error:
            remedy = (
                f"others may read it, and its mode cannot be changed ({error.strerror}): chmod 700 it, or give another"
            )
            raise _validate.fail("folder", str(top), remedy) from None


class _Job(Future[Any]):
    """A job of the batch system as a future of ``concurrent.futures``: a thread waits for its end."""

    def __init__(self, job: Any) -> None:
        super().__init__()
        self._job = job
        try:
            threading.Thread(target=self._follow, name="dphypo job", daemon=True).start()
        except RuntimeError:  # no more threads: nothing would wait for the job or erase its files
            self.cancel()
            raise

    def _follow(self) -> None:
        while not (self._has_ended() or self.cancelled()):
            time.sleep(_LOOK_S)
        if not self.set_running_or_notify_cancel():
            return
        try:
            tell = partial(self.set_result, self._job.result())  # submitit waits long for the result of a dead job
        except Exception as error:
            tell = partial(self.set_exception, error)
        self._erase()  # before the search learns of the end
        tell()

    def cancel(self) -> bool:
        """Cancel the job, and erase its files."""
        cancelled = super().cancel()
        with contextlib.suppress(Exception):  # it has ended
            self._job.cancel(check=False)
        self._erase()
        with contextlib.suppress(RuntimeError):  # no more threads; other jobs must still be cancelled
            threading.Thread(target=self._see_off, name="dphypo cancelled job").start()
        return cancelled

    def _see_off(self) -> None:
        """Erase the files that a cancelled job still writes before it ends."""
        patience = time.monotonic() + _CANCEL_S
        while not self._has_ended() and time.monotonic() < patience:
            time.sleep(_LOOK_S)
        self._erase()

    def _has_ended(self) -> bool:
        try:
            with _ASKING:
                return bool(self._job.done())
        except Exception:  # the batch system did not answer: ask again later
            return False

    def _erase(self) -> None:
        paths = self._job.paths
        pickles = (paths.submitted_pickle, paths.result_pickle)
        unfinished = (path.with_name(f"{path.name}.save_tmp") for path in pickles)
        for file in (*pickles, *unfinished, paths.stdout, paths.stderr, paths.submission_file):
            with contextlib.suppress(OSError):
                file.unlink()


def _make_preemptible(make: Callable[[Task, Any], Ended], task: Task, mechanism: Mechanism) -> Ended:
    """Execute a run; if the batch system preempts the job, withdraw the run instead of requeueing the job.

    A job that has exceeded its time limit is lost: how long a run takes may depend on the data.
    """
    name = str(package("submitit", "submitit").JobEnvironment.USR_SIG).removeprefix("SIG")
    warning = signal.Signals[
        f"SIG{name}"
    ]  # the signal by which submitit lets the batch system announce that a job must end
    before = signal.getsignal(warning)
    handler = getattr(before, "__self__", None)
    timed_out = False

    def stop(number: int, frame: Any) -> None:
        nonlocal timed_out
        timed_out = handler is None or handler.has_timed_out()
        raise Stopped  # the only exception that passes through a run

    signal.signal(warning, stop)
    try:
        ended = make(task, mechanism)
        return None if isinstance(ended, Withdrawn) and timed_out else ended
    finally:
        signal.signal(warning, before)
