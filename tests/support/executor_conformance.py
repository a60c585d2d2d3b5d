"""The conformance suite of executors: it makes runs that raise, take long, return much, are stopped or die."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np

from dphypo._validate import ensure
from dphypo.accounting import PureDp
from dphypo.executors import Executor
from dphypo.executors.executor import Execution
from dphypo.journal.journal import Trial
from dphypo.mechanisms import Outcome, mechanism

StoredSearch = Callable[[], AbstractContextManager[Executor]]


def check_executor(
    make: Callable[[], Any], *, workers: int = 2, start_method: str = "spawn", deaths: bool = True, megabytes: int = 20
) -> None:
    """Raise an ``AssertionError`` that says what an executor does not do that a study needs, if anything.

    It makes equal runs, a run that raises, one that takes longer than the others, one with a large model, runs that are
    stopped, and one that kills its process.

    Args:
        make: makes, afresh every time, what ``study.run(executor=...)`` takes.
        workers: how many runs to make at a time.
        start_method: how processes of our own start.
        deaths: whether to kill workers; leave this out for runs that are made in this process.
        megabytes: the size of the largest model to send back.

    >>> check_executor(lambda: "in_process", workers=1, deaths=False, megabytes=1)
    """
    declare = mechanism(event=PureDp(0.1), relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    with tempfile.TemporaryDirectory(prefix="dphypo-executor-") as name:
        folder, made = Path(name), declare(functools.partial(_make, name))

        def opened() -> AbstractContextManager[Executor]:
            return Execution(workers, start_method, make()).open(made)

        _check_equal_trials(opened, folder, workers)
        _check_outcomes(opened, folder, megabytes)
        _check_interruption(opened, folder, workers)
        if deaths:
            _check_deaths(opened, folder)


_SECONDS = {"sleep": 0.3, "slow": 1.5, "stop": 1.0}  # how long a run takes


def _make(folder: str, params: dict[str, Any], *, seed: int) -> Any:
    """A run that leaves a file behind each time it is made."""
    Path(folder, f"{params['do']} {seed} {time.monotonic_ns()} {os.getpid()}").touch()
    if params["do"] == "raise":
        raise ValueError("on purpose")
    if params["do"] == "die":
        os._exit(9)
    time.sleep(_SECONDS.get(params["do"], 0.0))
    return np.full(int(params["size"]), seed % 251, dtype=np.uint8), float(seed)


def _trial(number: int, do: str = "return", size: int = 1, seed: int | None = None) -> Trial:
    key = hashlib.sha256(str(number).encode()).digest()
    return Trial({"do": do, "size": size}, number if seed is None else seed, number, key)


def _run(opened: StoredSearch, trials: list[Trial]) -> dict[int, Outcome]:
    """What came of runs on a newly opened executor: each must end once, with an outcome."""
    left, ended = trials[::-1], dict[int, Outcome]()
    with opened() as executor:
        ensure(executor.idle and not executor.busy, "an executor that was just opened is busy")
        while left or executor.busy:
            while left and executor.idle:
                executor.start(left.pop())
            trial, outcome = executor.wait()
            ensure(trial.number not in ended, "a run ended twice")
            if not isinstance(outcome, Outcome):
                raise AssertionError("a run was lost or withdrawn though no worker died or was taken back")
            ended[trial.number] = outcome
        ensure(executor.idle and not executor.busy, "an executor whose runs have all ended is busy")
    ensure(len(ended) == len(trials), "a run never ended")
    return ended


def _made(folder: Path, do: str) -> int:
    return len(list(folder.glob(f"{do} *")))


def _check_equal_trials(opened: StoredSearch, folder: Path, workers: int) -> None:
    """Runs that are equal in all but their number are made as often as asked: no result is shared or remembered."""
    count = 3 * workers + 1
    ended = _run(opened, [_trial(number, "sleep", seed=5) for number in range(count)])
    ensure(all(one.score == 5.0 for one in ended.values()), "a run came back changed")
    made = _made(folder, "sleep")
    ensure(made == count, f"{count} equal runs were asked for and {made} were made")


def _check_outcomes(opened: StoredSearch, folder: Path, megabytes: int) -> None:
    """An exception is an outcome, a large model comes back whole, and a slow run is waited for."""
    size = megabytes * 2**20
    ended = _run(opened, [_trial(3, "slow"), _trial(0, "raise"), _trial(1, "return", size), _trial(2)])
    failed, large, small, slow = (ended[number] for number in range(4))
    ensure(slow.score == 3.0, "a run that takes longer than others came back changed")
    ensure(_made(folder, "slow") == 1, "a run that takes longer than others was started again")
    ensure(failed.score is None and "on purpose" in str(failed.failure), "an error was lost")
    ensure(large.model is not None and len(large.model) > size, f"a model of {megabytes} MB did not come back")
    ensure(small.score == 2.0, "the run after an error came back changed")


def _check_interruption(opened: StoredSearch, folder: Path, workers: int) -> None:
    """Runs may be stopped while they are under way: none is made twice, and others can be made after."""
    with opened() as executor:
        for number in range(workers):
            executor.start(_trial(number, "stop"))
        ensure(executor.busy and not executor.idle, "an executor that makes all the runs it can is idle")
    ensure(_run(opened, [_trial(0, "after")])[0].score == 0.0, "no run can be made after others were stopped")
    ensure(_made(folder, "after") == 1, "a run after others were stopped was made twice")
    ensure(_made(folder, "stop") <= workers, "a run that was stopped was started again")


def _check_deaths(opened: StoredSearch, folder: Path) -> None:
    """A run that kills its process is lost, once, and is not started again on the executor's own account."""
    with opened() as executor:
        executor.start(_trial(0, "die"))
        trial, outcome = executor.wait()
    ensure(trial.number == 0 and outcome is None, "a run whose process died is not reported as lost")
    time.sleep(0.5)
    ensure(_made(folder, "die") == 1, "a run whose process died was started again")
    _run(opened, [_trial(number) for number in range(2)])
