"""Runs on a Ray cluster.

Ray makes a task again, three times, when its worker dies. Tasks here are not retried, and the claim refuses a second
start whatever Ray does.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from dphypo import _validate
from dphypo.executors.executor import Executor, executors
from dphypo.executors.futures import Futures, package, sendable
from dphypo.mechanisms import Mechanism

_FIXED: dict[str, Any] = {"max_retries": 0, "retry_exceptions": False, "num_returns": 1}


class Ray:
    """Makes runs as tasks of Ray: ``study.run(executor=Ray(num_gpus=1), workers=8)``.

    Call ``ray.init()`` before. A stop of the study kills the workers that make its runs.

    Args:
        host: the address of this machine that the workers can reach; by default its address in the cluster.
        options: what a run needs, as in ``ray.remote(...)``: ``num_cpus``, ``num_gpus``, ``resources``, ``memory``.
            Options that would make a run twice are refused.
    """

    def __init__(self, *, host: str = "", **options: Any) -> None:
        for name, value in _FIXED.items():
            if options.get(name, value) != value:
                raise _validate.fail(name, options[name], f"leave it out: it is {value!r}, so that a run is made once")
        self._host, self._options = host, {**options, **_FIXED}

    breaks = False  # a task has its worker process to itself

    def __call__(self, mechanism: Mechanism, /, *, workers: int, start_method: str) -> Executor:
        ray = package("ray", "ray")
        if not ray.is_initialized():
            raise _validate.fail("executor", "Ray", "call ray.init() first")
        errors = ray.exceptions
        died = (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError, errors.ObjectLostError)
        tasks = _Tasks(ray, sendable(mechanism), self._options)
        host = self._host or ray.util.get_node_ip_address()
        gone = (errors.LocalRayletDiedError, errors.RaySystemError, errors.RpcError)
        return Futures(mechanism, tasks, workers=workers, host=host, died=died, gone=gone, ours=True)


class _Tasks(concurrent.futures.Executor):
    """The cluster as an executor of ``concurrent.futures``. The mechanism is put into its object store once."""

    def __init__(self, ray: Any, mechanism: Mechanism, options: dict[str, Any]) -> None:
        self._ray, self._options = ray, options
        self._sent = ray.put(mechanism)
        self._tasks: dict[Future[Any], Any] = {}

    def submit(self, make: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        task = self._ray.remote(**self._options)(make).options(name="dphypo").remote(arguments[0], self._sent)
        future: Future[Any] = task.future()
        self._tasks[future] = task
        future.add_done_callback(lambda done: self._tasks.pop(done, None))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End what is under way: the process of a run that has begun is killed."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            with contextlib.suppress(Exception):  # it has ended, or Ray has
                self._ray.cancel(task, force=True)
        self._sent = None


executors.register("ray")(Ray())
