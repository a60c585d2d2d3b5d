"""Workers that are killed in the middle of their runs, on every executor: nothing is lost and nothing counted twice.

``python -m benchmarks.load_faults`` starts real executors on this machine and kills more than 400 workers, which takes
some minutes; ``python -m benchmarks.load_faults ray 20`` makes 20 runs on one executor. A run leaves a file behind each
time it is begun, and kills its own process in the middle the first times: twice, once or never, by its λ. A run counts
as lost if its result is not in the journal, and as counted twice if it ended twice and the journal does not know it.

A cluster of Dask on one machine was seen to lose its workers for good where runs died as soon as they began and
``lost-worker-timeout`` was the usual 15 seconds; here it is an hour, and runs go on for a moment before they die.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dp_accounting import NeighboringRelation
from scipy.stats import uniform

import dphypo
from dphypo.accounting import PureDp
from dphypo.band import Band
from dphypo.errors import ExecutorError
from dphypo.executors import Dask, Ray, Submitit
from dphypo.laws import Pmf

RUNS = {"processes": 300, "pool": 20, "dask": 40, "ray": 40, "submitit": 40}  # about as many deaths as runs
WORKERS = {"pool": 1, "submitit": 6}  # the others of a pool that breaks die too; submitit waits 15 s for a dead job
PAUSE_S = {"dask": 0.3}  # how long a run goes on before it dies
SPACE = dphypo.Space({"x": uniform(0, 1)})


class Mortal:
    """A run that dies the first times. What it leaves behind says how often it was begun."""

    def __init__(self, folder: str, pause: float) -> None:
        self.folder, self.pause = folder, pause
        self.__name__ = self.__qualname__ = "mortal"

    def __call__(self, params: dict[str, Any], *, seed: int) -> tuple[float, float]:
        before = begun(self.folder, params["x"])
        Path(self.folder, f"{params['x'].hex()} {os.getpid()} {time.monotonic_ns()}").touch()
        if before < deaths(params["x"]):
            time.sleep(self.pause)
            Path(self.folder, f"killed {os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        Path(self.folder, f"ended {params['x'].hex()} {os.getpid()} {time.monotonic_ns()}").touch()
        return params["x"], params["x"]


def begun(folder: str, x: float) -> int:
    """How often the run at this λ was begun."""
    return _files(folder, x.hex())


def _files(folder: str, prefix: str) -> int:
    return sum(name.startswith(f"{prefix} ") for name in os.listdir(folder))


def deaths(x: float) -> int:
    """How often it dies."""
    return hashlib.sha256(x.hex().encode()).digest()[0] % 3


@contextlib.contextmanager
def started(name: str) -> Iterator[Callable[[], Any]]:
    """An executor on this machine; makes what ``study.run(executor=...)`` takes."""
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")
        if name == "processes":
            yield lambda: "processes"
        elif name == "pool":
            context = multiprocessing.get_context("spawn")
            yield lambda: stack.enter_context(concurrent.futures.ProcessPoolExecutor(1, context))
        elif name == "dask":
            import dask
            import distributed as untyped

            distributed: Any = untyped
            logging.getLogger("distributed").setLevel(logging.CRITICAL)
            settings = {"scheduler.allowed-failures": 0, "deploy.lost-worker-timeout": "1 hour"}  # not 15 s: see above
            stack.enter_context(dask.config.set({f"distributed.{name}": value for name, value in settings.items()}))
            cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
            client = stack.enter_context(distributed.Client(stack.enter_context(cluster)))
            yield lambda: Dask(client)
        elif name == "ray":
            import ray

            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
            stack.callback(ray.shutdown)
            yield lambda: Ray()
        else:
            import submitit

            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dphypo-jobs-"))
            yield lambda: Submitit(submitit.LocalExecutor(folder))


def killed(name: str, asked: int) -> tuple[int, int, int, int]:
    """A study of this many runs on an executor: kills, runs begun, runs that were lost, and those counted twice."""
    with tempfile.TemporaryDirectory(prefix="dphypo-faults-") as folder, started(name) as make:
        study = _study(folder, asked, PAUSE_S.get(name, 0.0))
        while True:
            try:
                study.run(workers=WORKERS.get(name, 2), progress=False, start_method="fork", executor=make())
                break
            except ExecutorError:  # a pool that breaks is replaced by its owner
                continue
        rows = study.curator().trials()
        kills, starts = _files(folder, "killed"), sum(begun(folder, row["params"]["x"]) for row in rows)
        again = sum(_twice(folder, row) for row in rows)
    lost = asked - sum(row["done"] and row["score"] == row["params"]["x"] for row in rows)
    return kills, starts, lost, len(rows) - asked + again


def main(names: list[str], runs: int | None = None) -> None:
    """Print a table with one line for each executor, and fail if a run was lost or counted twice."""
    table = [
        "| executor | kills | runs asked | runs begun | lost | counted twice | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    kills_in_all, wrong = 0, []
    for name in names:
        began, asked = time.perf_counter(), runs or RUNS[name]
        kills, starts, lost, twice = killed(name, asked)
        kills_in_all += kills
        seconds = time.perf_counter() - began
        table.append(f"| {name} | {kills} | {asked} | {starts} | {lost} | {twice} | {seconds:.0f} |")
        if lost or twice:
            wrong.append(name)
    print(*table, f"{kills_in_all} workers were killed", sep="\n")  # at the end: Ray prints too
    if wrong:
        sys.exit(f"{', '.join(wrong)}: a run was lost or counted twice")


def _twice(folder: str, row: dict[str, Any]) -> bool:
    """Whether the run ended twice, and the journal does not know it.

    It does know of one whose worker died between its end and the arrival of its result.
    """
    x = row["params"]["x"]
    return _files(folder, f"ended {x.hex()}") > 1 and begun(folder, x) > row["attempts"]


def _study(folder: str, runs: int, pause: float) -> dphypo.Study:
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    mortal = dphypo.mechanism(event=PureDp(1.0), relation=relation, seeded=True)(Mortal(folder, pause))
    return dphypo.Study(SPACE, mortal, Pmf({runs: 1.0}), Band(1, 1), delta=1e-6, journal=None)


if __name__ == "__main__":
    words = sys.argv[1:]
    chosen = [word for word in words if word in RUNS]
    numbers = [int(word) for word in words if word.isdigit()]
    main(chosen or list(RUNS), numbers[0] if numbers else None)
