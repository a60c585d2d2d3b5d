"""Runs on the clusters of Dask, Ray and submitit: each run is started once, whatever the cluster does.

The claim of a run (:mod:`dphypo.executors.futures`) refuses every second start. Before that:

- Dask shares the result of equal tasks, and restarts a task when its worker dies. Every task here has a random key and
  no retries, and the scheduler must not restart tasks of dead workers. What remains is a task that is restarted because
  its worker was retired while it ran.
- Ray retries a task three times when its worker dies. Tasks here are not retried.
- Submitit requeues a job that is preempted, and Slurm one whose machine failed. Jobs here are not requeued. Submitit
  writes the arguments, the result and the output of a job to a folder. The folder is made private, and the files of a
  job are erased when it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dphypo import _validate
from dphypo.errors import Stopped
from dphypo.executors.executor import Executor, Withdrawn
from dphypo.executors.futures import Ended, Futures, Start, package, sendable
from dphypo.mechanisms import Mechanism

_REMEDY = (
    'start the scheduler with allowed-failures: 0, by dask.config.set({"distributed.scheduler.allowed-failures": 0}) '
    "before LocalCluster(), or by DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=0 where dask scheduler is started"
)


@dataclass(frozen=True)
class Dask:
    """Executes runs on a Dask cluster: ``study.run(executor=Dask(client), workers=8)``.

    Give each worker one thread: a run that dies also ends the other runs of its process.

    Args:
        client: a ``distributed.Client``. It is not closed.
        resources: what a run needs of a worker, as in ``client.submit(resources=...)``: ``{"GPU": 1}``.
        host: an address of this machine that the workers can reach; by default the one that the scheduler sees.
    """

    client: Any
    resources: Mapping[str, float] | None = None
    host: str = ""

    def __post_init__(self) -> None:
        distributed = package("distributed", "dask")
        if not isinstance(self.client, distributed.Client):
            raise _validate.fail("client", self.client, "give a distributed.Client")
        if self.client.asynchronous:
            raise _validate.fail("client", self.client, "give one that was created without asynchronous=True")

    @property
    def breaks(self) -> bool:
        """Whether a worker may execute several runs in one process, which die together."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return any(worker["nthreads"] > 1 for worker in workers)

    def __call__(self, mechanism: Mechanism, /, *, workers: int) -> Executor:
        distributed = package("distributed", "dask")
        if self.client.status != "running":
            raise _validate.fail("client", "a client that is closed", "give one that is connected to its scheduler")
        # The function is sent by value, because the scheduler need not have this package.
        allowed = self.client.run_on_scheduler(lambda dask_scheduler: int(dask_scheduler.allowed_failures))
        if allowed != 0:
            raise _validate.fail("client", f"a scheduler with allowed-failures: {allowed}", _REMEDY)
        host = self.host
        if not host:  # the address from which this machine reaches the scheduler
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nothing_sent:
                nothing_sent.connect((distributed.comm.get_address_host(self.client.scheduler.address), 9))
                host = nothing_sent.getsockname()[0]
        died = (distributed.scheduler.KilledWorker, _DiedError)
        # The mechanism is sent with every task. Data that are sent once are lost when the workers that hold them die,
        # and tasks that need them would wait for ever.
        sent = sendable(mechanism)
        return Futures(sent, self._submit, workers=workers, host=host, died=died, gone=(_GoneError,))

    def _submit(self, make: Callable[..., Any], *arguments: Any) -> Future[Any]:
        if self.client.status != "running":
            raise _GoneError
        resources = None if self.resources is None else dict(self.resources)
        options = {"pure": False, "retries": 0, "resources": resources, "key": f"dphypo-{secrets.token_hex(16)}"}
        return _Task(self.client, self.client.submit(make, *arguments, **options))


class _DiedError(Exception):
    """The worker died after its run, before the result was fetched."""


class _GoneError(Exception):
    """The client is closed, or has lost its scheduler."""


class _Task(Future[Any]):
    """A task of Dask as a future of ``concurrent.futures``."""

    def __init__(self, client: Any, task: Any) -> None:
        super().__init__()
        self._client, self._task = client, task
        task.add_done_callback(lambda _: self._end())

    def _end(self) -> None:
        if not self.set_running_or_notify_cancel():
            return
        if self._task.status == "finished":  # one thread runs all callbacks of Dask, and must not wait for a worker
            threading.Thread(target=self._fetch, name="dphypo result", daemon=True).start()
        elif self._task.status == "error":
            self._settle(partial(self.set_exception, self._task.exception()))
        else:
            taken_back = self._client.status == "running"
            self._settle(partial(self.set_exception, CancelledError() if taken_back else _GoneError()))

    def _fetch(self) -> None:
        """Fetch the result from its worker. If that died, Dask first restarts the task, and the claim refuses it."""
        try:
            tell = partial(self.set_result, self._task.result())
        except (
            Exception,
            asyncio.CancelledError,
        ):  # the result is gone: lost= decides, as for all that have begun
            tell = partial(self.set_exception, _DiedError())
        self._settle(tell)

    def _settle(self, tell: Callable[[], None]) -> None:
        self._task.release()  # before the search learns of the end and may close the client
        tell()

    def cancel(self) -> bool:
        """Cancel a run that has not begun. A run that has begun ends by itself, and its result is ignored."""
        cancelled = super().cancel()
        if self._client.status == "running":
            self._client.cancel([self._task], force=True)
        return cancelled


_FIXED: dict[str, Any] = {"max_retries": 0, "retry_exceptions": False, "num_returns": 1}


class Ray:
    """Executes runs as tasks of Ray: ``study.run(executor=Ray(num_gpus=1), workers=8)``.

    Call ``ray.init()`` first. When the search stops, the workers that execute its runs are killed.

    Args:
        host: an address of this machine that the workers can reach; by default its address in the cluster.
        options: what a run needs, as in ``ray.remote(...)``: ``num_cpus``, ``num_gpus``, ``resources``, ``memory``.
            Options that would execute a run twice are refused.
    """

    def __init__(self, *, host: str = "", **options: Any) -> None:
        for name, value in _FIXED.items():
            if options.get(name, value) != value:
                raise _validate.fail(name, options[name], f"omit it: it is {value!r}, so that a run is executed once")
        self._host, self._options = host, {**options, **_FIXED}

    breaks = False  # a task has its worker process to itself

    def __call__(self, mechanism: Mechanism, /, *, workers: int) -> Executor:
        ray = package("ray", "ray")
        if not ray.is_initialized():
            raise _validate.fail("executor", "Ray", "call ray.init() first")
        errors = ray.exceptions
        died = (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError, errors.ObjectLostError)
        gone = (errors.LocalRayletDiedError, errors.RaySystemError, errors.RpcError)
        host = self._host or ray.util.get_node_ip_address()
        sent = ray.put(sendable(mechanism))  # once, for all runs

        def submit(make: Callable[..., Any], start: Start, _: Mechanism) -> Future[Any]:
            task = ray.remote(**self._options)(make).options(name="dphypo").remote(start, sent)
            future = task.future()

            def cancel() -> None:
                """Kill the process of the run: the future's own method does not reach it."""
                with contextlib.suppress(Exception):  # it has ended, or Ray has
                    ray.cancel(task, force=True)

            future.cancel = cancel
            return future  # type: ignore[no-any-return]

        return Futures(mechanism, submit, workers=workers, host=host, died=died, gone=gone)


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

    def __call__(self, mechanism: Mechanism, /, *, workers: int) -> Executor:
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
            remedy = f"others may read it, and its mode is fixed ({error.strerror}): chmod 700 it, or give another"
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


def _make_preemptible(make: Callable[[Start, Any], Ended], task: Start, mechanism: Mechanism) -> Ended:
    """Execute a run; if the batch system preempts the job, withdraw the run instead of requeueing the job.

    A job that has exceeded its time limit is lost: how long a run takes may depend on the data.
    """
    name = str(package("submitit", "submitit").JobEnvironment.USR_SIG).removeprefix("SIG")
    warning = signal.Signals[f"SIG{name}"]  # by which the batch system announces that a job must end
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
