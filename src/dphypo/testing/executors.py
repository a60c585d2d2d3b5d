"""The conformance suite of executors: what makes runs elsewhere than in this process."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np

from dphypo.accounting import PureDp
from dphypo.executors import Executor, Withdrawn
from dphypo.executors.executor import Crew
from dphypo.journal.records import Trial
from dphypo.mechanisms import Mechanism, Outcome, mechanism
from dphypo.testing.ensure import ensure


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
    with tempfile.TemporaryDirectory(prefix="dphypo-executor-") as folder:
        made = _world(Path(folder))

        def opened() -> Any:
            return Crew(workers, start_method, make()).hire(made)

        _check_equal_trials(opened, Path(folder), workers)
        _check_outcomes(opened, Path(folder), megabytes)
        _check_interruption(opened, Path(folder), workers)
        if deaths:
            _check_deaths(opened, Path(folder))


_SECONDS = {"sleep": 0.3, "slow": 1.5, "stop": 1.0}  # how long a run takes


def _world(folder: Path) -> Mechanism:
    declare = mechanism(event=PureDp(0.1), relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    return declare(_Run(str(folder)))


class _Run:
    """A run that leaves a file behind each time it is made."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.__name__ = self.__qualname__ = "run"

    def __call__(self, params: dict[str, Any], *, seed: int) -> Any:
        Path(self.folder, f"{params['do']} {seed} {time.monotonic_ns()} {os.getpid()}").touch()
        if params["do"] == "raise":
            raise ValueError("on purpose")
        if params["do"] == "die":
            os._exit(9)
        time.sleep(_SECONDS.get(params["do"], 0.0))
        return np.full(int(params["size"]), seed % 251, dtype=np.uint8), float(seed)


def _trial(number: int, do: str = "return", size: int = 1, seed: int | None = None) -> Trial:
    key = hashlib.sha256(str(number).encode()).digest()
    return Trial({"do": do, "size": size}, number if seed is None else seed, number, key)


def _run(executor: Executor, trials: list[Trial]) -> dict[int, Outcome | None]:
    left = list(reversed(trials))
    ended: dict[int, Outcome | None] = {}
    while left or executor.busy:
        while left and executor.idle:
            executor.start(left.pop())
        trial, outcome = executor.wait()
        ensure(trial.number not in ended, "a run ended twice")
        ensure(not isinstance(outcome, Withdrawn), "a run was withdrawn though no worker was taken back")
        ended[trial.number] = None if isinstance(outcome, Withdrawn) else outcome
    return ended


def _made(folder: Path, do: str) -> int:
    return sum(1 for file in folder.iterdir() if file.name.startswith(f"{do} "))


def _check_equal_trials(opened: Callable[[], Any], folder: Path, workers: int) -> None:
    """Runs that are equal in all but their number are made as often as asked: no result is shared or remembered."""
    count = 3 * workers + 1
    with opened() as executor:
        ensure(executor.idle and not executor.busy, "an executor that was just opened is busy")
        ended = _run(executor, [_trial(number, "sleep", seed=5) for number in range(count)])
        ensure(executor.idle and not executor.busy, "an executor whose runs have all ended is busy")
    ensure(len(ended) == count, "a run never ended")
    ensure(all(one is not None and one.score == 5.0 for one in ended.values()), "a run came back changed or not at all")
    made = _made(folder, "sleep")
    ensure(made == count, f"{count} equal runs were asked for and {made} were made")


def _check_outcomes(opened: Callable[[], Any], folder: Path, megabytes: int) -> None:
    """An exception is an outcome, a large model comes back whole, and a slow run is waited for."""
    size = megabytes * 2**20
    with opened() as executor:
        ended = _run(executor, [_trial(3, "slow"), _trial(0, "raise"), _trial(1, "return", size), _trial(2)])
    failed, large, small, slow = ended[0], ended[1], ended[2], ended[3]
    ensure(slow is not None and slow.score == 3.0, "a run that takes longer than others was lost")
    ensure(_made(folder, "slow") == 1, "a run that takes longer than others was started again")
    ensure(failed is not None and failed.score is None and "on purpose" in str(failed.failure), "an error was lost")
    ensure(large is not None and len(large.model) > size, f"a model of {megabytes} MB did not come back")
    ensure(small is not None and small.score == 2.0, "the run after an error came back changed or not at all")


def _check_interruption(opened: Callable[[], Any], folder: Path, workers: int) -> None:
    """Runs may be stopped while they are under way: none is made twice, and others can be made after."""
    with opened() as executor:
        for number in range(workers):
            executor.start(_trial(number, "stop"))
        ensure(executor.busy and not executor.idle, "an executor that makes all the runs it can is idle")
    with opened() as executor:
        ended = _run(executor, [_trial(0, "after")])
    ensure(ended[0] is not None and ended[0].score == 0.0, "no run can be made after others were stopped")
    ensure(_made(folder, "after") == 1, "a run after others were stopped was made twice")
    ensure(_made(folder, "stop") <= workers, "a run that was stopped was started again")


def _check_deaths(opened: Callable[[], Any], folder: Path) -> None:
    """A run that kills its process is lost, once, and is not started again on the executor's own account."""
    with opened() as executor:
        executor.start(_trial(0, "die"))
        trial, outcome = executor.wait()
    ensure(trial.number == 0 and outcome is None, "a run whose process died is not reported as lost")
    time.sleep(0.5)
    ensure(_made(folder, "die") == 1, "a run whose process died was started again")
    with opened() as executor:
        ended = _run(executor, [_trial(number) for number in range(2)])
    ensure(all(one is not None for one in ended.values()), "no run can be made after one has died")
