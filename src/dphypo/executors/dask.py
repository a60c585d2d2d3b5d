"""Runs on a Dask cluster.

Dask shares the result of equal tasks, and starts a task again when its worker dies. Every task here has a random key
and no retries, and the scheduler must not start tasks of dead workers again. The claim refuses what is left: the tasks
of a worker that is retired while it runs them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from dphypo import _validate
from dphypo.executors.executor import Executor, executors
from dphypo.executors.futures import Futures, facing, package, sendable
from dphypo.mechanisms import Mechanism

_REMEDY = (
    'start the scheduler with allowed-failures: 0, by dask.config.set({"distributed.scheduler.allowed-failures": 0}) '
    "before LocalCluster(), or by DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=0 where dask scheduler is started"
)


@dataclass(frozen=True)
class Dask:
    """Makes runs on a Dask cluster: ``study.run(executor=Dask(client), workers=8)``.

    Give each worker one thread: a run that dies takes the other runs of its process with it.

    Args:
        client: a ``distributed.Client``. It stays open for its owner to close.
        resources: what a run needs of a worker, as in ``client.submit(resources=...)``: ``{"GPU": 1}``.
        host: the address of this machine that the workers can reach; by default the one that the scheduler sees.
    """

    client: Any
    resources: Mapping[str, float] | None = None
    host: str = ""

    def __post_init__(self) -> None:
        distributed = package("distributed", "dask")
        if not isinstance(self.client, distributed.Client):
            raise _validate.fail("client", self.client, "give a distributed.Client")
        if self.client.asynchronous:
            raise _validate.fail("client", self.client, "give one that was made without asynchronous=True")

    @property
    def breaks(self) -> bool:
        """Whether a worker may make several runs in one process, which die together."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return any(worker["nthreads"] > 1 for worker in workers)

    def __call__(self, mechanism: Mechanism, /, *, workers: int, start_method: str) -> Executor:
        distributed = package("distributed", "dask")
        if self.client.status != "running":
            raise _validate.fail("client", "a client that is closed", "give one that is connected to its scheduler")
        # A function that is sent by value: the scheduler need not have this package.
        allowed = self.client.run_on_scheduler(lambda dask_scheduler: int(dask_scheduler.allowed_failures))
        if allowed != 0:
            raise _validate.fail("client", f"a scheduler with allowed-failures: {allowed}", _REMEDY)
        address = self.client.scheduler.address
        host = self.host or facing(distributed.comm.get_address_host(address))
        died = (distributed.scheduler.KilledWorker, _DiedError)
        tasks = _Tasks(self.client, sendable(mechanism), self.resources)
        return Futures(mechanism, tasks, workers=workers, host=host, died=died, gone=(_GoneError,), ours=True)


class _DiedError(Exception):
    """The worker died after its run, before the result was fetched."""


class _GoneError(Exception):
    """The client is closed, or has lost its scheduler."""


class _Tasks(concurrent.futures.Executor):
    """The cluster as an executor of ``concurrent.futures``.

    The mechanism goes with every task. Data that were sent before are gone when the workers die that have them, and the
    tasks that need them would wait for ever.
    """

    def __init__(self, client: Any, mechanism: Mechanism, resources: Mapping[str, float] | None) -> None:
        self._client, self._mechanism = client, mechanism
        self._resources = None if resources is None else dict(resources)
        self._tasks: dict[Future[Any], Any] = {}

    def submit(self, make: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        if self._client.status != "running":
            raise _GoneError
        task = self._client.submit(
            make,
            arguments[0],
            self._mechanism,
            key=f"dphypo-{secrets.token_hex(16)}",
            pure=False,
            retries=0,
            resources=self._resources,
        )
        future: Future[Any] = Future()
        self._tasks[future] = task
        task.add_done_callback(lambda _: self._ended(future))
        return future

    def _ended(self, future: Future[Any]) -> None:
        task = self._tasks.get(future)
        if task is None or not future.set_running_or_notify_cancel():
            return
        if task.status == "finished":  # one thread calls all callbacks of Dask: it must not wait for a worker
            threading.Thread(target=self._fetch, args=(future, task), name="dphypo result", daemon=True).start()
        elif task.status == "error":
            self._settle(future, partial(future.set_exception, task.exception()))
        else:
            taken_back = self._client.status == "running"
            error = concurrent.futures.CancelledError() if taken_back else _GoneError()
            self._settle(future, partial(future.set_exception, error))

    def _fetch(self, future: Future[Any], task: Any) -> None:
        """Take the result from its worker. If that died, Dask starts the task again first, and the claim refuses it."""
        try:
            tell = partial(future.set_result, task.result())
        except (Exception, asyncio.CancelledError):  # it is gone: lost= decides, as for every run that was begun
            tell = partial(future.set_exception, _DiedError())
        self._settle(future, tell)

    def _settle(self, future: Future[Any], tell: Callable[[], None]) -> None:
        task = self._tasks.pop(future, None)
        if task is not None:
            task.release()  # before anybody hears of the end and closes the client
        tell()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel runs that have not begun. A run that is under way ends by itself, and its result is ignored."""
        tasks, self._tasks = list(self._tasks.values()), {}
        if self._client.status == "running":
            self._client.cancel(tasks, force=True)


@executors.register("dask")
def on_current_client(mechanism: Mechanism, /, *, workers: int, start_method: str) -> Executor:
    """``executor="dask"``: the client that was made last."""
    distributed = package("distributed", "dask")
    try:
        client = distributed.get_client()
    except ValueError:
        raise _validate.fail("executor", "dask", "make a distributed.Client first, or give Dask(client)") from None
    return Dask(client)(mechanism, workers=workers, start_method=start_method)
