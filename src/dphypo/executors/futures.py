"""Runs on any executor of ``concurrent.futures``: pools of processes or threads, loky, MPI, and those of clusters.

Packages of clusters are installed on their own, and imported when they are first used.
"""

from __future__ import annotations

import concurrent.futures
import importlib
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from dphypo.errors import ExecutorError, WorkerError
from dphypo.errors.faults import UnreachableStudyError, UnsupportedModelError
from dphypo.executors.claims import Claims, Ended, Task, Ticket, make_once
from dphypo.executors.executor import Withdrawn
from dphypo.journal.records import Trial
from dphypo.mechanisms import Declared, Mechanism, Outcome

_PATIENCE = 3  # how often in a row all workers may die before any of them begins a run
_MOST_WITHDRAWALS = 10  # of one run, after it was begun


class Futures:
    """Makes runs on an executor of ``concurrent.futures``, which stays open for its owner to close.

    Where one dead worker breaks the whole pool, as in ``ProcessPoolExecutor``, all runs under way are lost with it:
    :class:`dphypo.executors.processes.Processes` loses one.

    Args:
        mechanism: what one run is. An executor of processes must be able to pickle it.
        pool: the executor.
        workers: how many runs to submit at a time.
        host: the address of this machine that workers on other machines can reach; this machine alone by default.
        died: what a future raises if the worker died that had its run.
        gone: what a future raises if the cluster itself is gone.
        ours: whether to shut the pool down when the runs end: it was made for them.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        pool: concurrent.futures.Executor,
        *,
        workers: int = 1,
        host: str = "",
        died: tuple[type[BaseException], ...] = (concurrent.futures.BrokenExecutor,),
        gone: tuple[type[BaseException], ...] = (),
        ours: bool = False,
    ) -> None:
        self._mechanism, self._pool, self._count = mechanism, pool, workers
        self._died, self._gone, self._ours = died, gone, ours
        self._broken: tuple[type[BaseException], ...] = (concurrent.futures.BrokenExecutor, *gone)
        self._early_deaths = 0
        self._withdrawals: Counter[int] = Counter()  # of runs that were begun
        self._working: dict[Future[Ended], tuple[Trial, Ticket]] = {}
        self._claims = Claims(host)

    @property
    def idle(self) -> bool:
        return len(self._working) < self._count

    @property
    def busy(self) -> bool:
        return bool(self._working)

    def start(self, trial: Trial) -> None:
        ticket = self._claims.issue()
        task = Task(ticket, trial.params, trial.seed)
        broken = False
        try:
            future: Future[Any] = self._pool.submit(make_once, task, self._mechanism)
        except self._broken:
            broken = True
        if broken:
            raise ExecutorError
        self._working[future] = trial, ticket

    def wait(self) -> tuple[Trial, Outcome | Withdrawn | None]:
        """The next run that ended.

        A run whose worker died is lost, and so is one that the cluster started twice: it was made at most once. If its
        worker died before the run began, the run is withdrawn. One that was begun and withdrawn too often is lost: the
        run itself may be the reason.
        """
        done = concurrent.futures.wait(self._working, return_when=concurrent.futures.FIRST_COMPLETED).done
        future = next(future for future in self._working if future in done)
        trial, ticket = self._working.pop(future)
        begun = not self._claims.withdraw(ticket)
        ended = self._read(future)
        if isinstance(ended, UnsupportedModelError):
            raise ended
        if begun:
            self._early_deaths = 0
            self._withdrawals[trial.number] += isinstance(ended, Withdrawn)
            too_often = isinstance(ended, Withdrawn) and self._withdrawals[trial.number] > _MOST_WITHDRAWALS
            return trial, None if too_often else ended
        if ended is not None and not isinstance(ended, Withdrawn):
            raise RuntimeError("the executor returned an outcome of a run that was never begun")
        self._early_deaths += ended is None
        if self._early_deaths >= _PATIENCE * self._count:
            raise WorkerError if future.exception() is not None else UnreachableStudyError(self._claims.address)
        return trial, Withdrawn()

    def _read(self, future: Future[Ended]) -> Ended:
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            return Withdrawn()
        except self._died:
            return None
        except self._gone:
            pass
        raise ExecutorError  # outside the handler: what a cluster says may hold its task

    def close(self) -> None:
        self._claims.close()
        for future in self._working:
            future.cancel()
        self._working.clear()
        if self._ours:
            self._pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class Pool:
    """An executor of ``concurrent.futures`` with workers on other machines: ``run(executor=Pool(pool, host=...))``.

    Args:
        pool: the executor, of ``mpi4py``, Parsl or executorlib for example. It stays open for its owner to close.
        host: the address of this machine that the workers can reach.

    >>> with concurrent.futures.ThreadPoolExecutor(1) as threads:
    ...     Pool(threads, host="127.0.0.1").breaks
    True
    """

    pool: concurrent.futures.Executor
    host: str

    breaks = True  # one worker that dies breaks most of them, and none says whether it does

    def __call__(self, mechanism: Mechanism, /, *, workers: int, start_method: str) -> Futures:
        return Futures(mechanism, self.pool, workers=workers, host=self.host)


def package(module: str, extra: str) -> Any:
    """Import the package of a cluster, or say how to install it.

    >>> package("no_such_package", "dask")
    Traceback (most recent call last):
    ModuleNotFoundError: this executor needs the package no_such_package: pip install 'dphypo[dask]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
    raise ModuleNotFoundError(f"this executor needs the package {module}: pip install 'dphypo[{extra}]'", name=module)


def sendable(mechanism: Mechanism) -> Mechanism:
    """The mechanism as clusters can send it: one of the script itself by value, since workers run another script."""
    if isinstance(mechanism, Declared) and getattr(mechanism, "__module__", None) == "__main__":
        return replace(mechanism)  # a copy is not found under its name, and so it is not sent by name
    return mechanism
