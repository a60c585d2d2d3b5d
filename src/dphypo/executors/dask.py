"""Runs on a Dask cluster.

Dask shares the result of equal tasks, and restarts a task when its worker dies. Every task here has a random key and no
retries, and the scheduler must not restart tasks of dead workers. The claim refuses the remaining case: tasks that are
restarted because their worker was retired while it ran them.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from dphypo import _validate
from dphypo.executors.executor import Executor
from dphypo.executors.futures import Futures, package, sendable
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

    def __call__(self, mechanism: Mechanism, /, *, workers: int, start_method: str) -> Executor:
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
        ):  # the result is gone: lost= decides, as for every run that has begun
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


def on_current_client(mechanism: Mechanism, /, *, workers: int, start_method: str) -> Executor:
    """``executor="dask"``: the client that was created last."""
    distributed = package("distributed", "dask")
    try:
        client = distributed.get_client()
    except ValueError:
        raise _validate.fail("executor", "dask", "create a distributed.Client first, or give Dask(client)") from None
    return Dask(client)(mechanism, workers=workers, start_method=start_method)
