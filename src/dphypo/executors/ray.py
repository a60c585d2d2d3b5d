"""Runs on a Ray cluster.

Ray retries a task three times when its worker dies. Tasks here are not retried, and the claim refuses a second start
whatever Ray does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from dphypo import _validate
from dphypo.executors.executor import Executor
from dphypo.executors.futures import Futures, Task, package, sendable
from dphypo.mechanisms import Mechanism

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

    def __call__(self, mechanism: Mechanism, /, *, workers: int, start_method: str) -> Executor:
        ray = package("ray", "ray")
        if not ray.is_initialized():
            raise _validate.fail("executor", "Ray", "call ray.init() first")
        errors = ray.exceptions
        died = (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError, errors.ObjectLostError)
        gone = (errors.LocalRayletDiedError, errors.RaySystemError, errors.RpcError)
        host = self._host or ray.util.get_node_ip_address()
        sent = ray.put(sendable(mechanism))  # once, for all runs

        def submit(make: Callable[..., Any], start: Task, _: Mechanism) -> Future[Any]:
            task = ray.remote(**self._options)(make).options(name="dphypo").remote(start, sent)
            future = task.future()

            def cancel() -> None:
                """Kill the process of the run: the future's own method does not reach it."""
                with contextlib.suppress(Exception):  # it has ended, or Ray has
                    ray.cancel(task, force=True)

            future.cancel = cancel
            return future  # type: ignore[no-any-return]

        return Futures(mechanism, submit, workers=workers, host=host, died=died, gone=gone)
