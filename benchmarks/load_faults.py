"""Workers that are killed in the middle of their runs, on every engine: nothing is lost and nothing counted twice.

``python -m benchmarks.load_faults`` starts real engines on this machine and kills about 230 workers, which takes some
minutes; ``python -m benchmarks.load_faults ray 20`` makes 20 runs on one engine. A run leaves a file behind each time
it is begun, and kills its own process the first times: twice, once or never, by its λ.
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

RUNS = {"processes": 160, "pool": 12, "dask": 24, "ray": 24, "submitit": 8}
SPACE = dphypo.Space({"x": uniform(0, 1)})


class Mortal:
    """A run that dies the first times. What it leaves behind says how often it was begun."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.__name__ = self.__qualname__ = "mortal"

    def __call__(self, params: dict[str, Any], *, seed: int) -> tuple[float, float]:
        before = begun(self.folder, params["x"])
        Path(self.folder, f"{params['x'].hex()} {os.getpid()} {time.monotonic_ns()}").touch()
        if before < deaths(params["x"]):
            os.kill(os.getpid(), signal.SIGKILL)
        return params["x"], params["x"]


def begun(folder: str, x: float) -> int:
    """How often the run at this λ was begun."""
    return sum(name.startswith(f"{x.hex()} ") for name in os.listdir(folder))


def deaths(x: float) -> int:
    """How often it dies."""
    return hashlib.sha256(x.hex().encode()).digest()[0] % 3


@contextlib.contextmanager
def started(name: str) -> Iterator[Callable[[], Any]]:
    """An engine on this machine; makes what ``study.run(executor=...)`` takes."""
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")
        if name == "processes":
            yield lambda: "processes"
        elif name == "pool":
            context = multiprocessing.get_context("spawn")
            yield lambda: stack.enter_context(concurrent.futures.ProcessPoolExecutor(2, context))
        elif name == "dask":
            import dask
            import distributed as untyped

            distributed: Any = untyped
            logging.getLogger("distributed").setLevel(logging.CRITICAL)
            stack.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": 0}))
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


def main(names: list[str], runs: int | None = None) -> None:
    """Print one line for each engine, and fail if a run was lost or counted twice."""
    print("engine      runs  begun  killed  counted  lost  twice  seconds")
    killed_in_all = 0
    for name in names:
        with tempfile.TemporaryDirectory(prefix="dphypo-faults-") as folder, started(name) as make:
            began = time.perf_counter()
            study = _study(folder, runs or RUNS[name])
            while True:
                try:
                    study.run(workers=2, progress=False, start_method="fork", executor=make())
                    break
                except ExecutorError:  # a pool that breaks is replaced by its owner
                    continue
            seconds = time.perf_counter() - began
            rows = study.curator().trials()
            starts = sum(begun(folder, row["params"]["x"]) for row in rows)
        killed = sum(deaths(row["params"]["x"]) for row in rows)
        lost = sum(not row["done"] or row["score"] != row["params"]["x"] for row in rows)
        twice = starts - killed - len(rows)
        counted = sum(row["done"] for row in rows)
        killed_in_all += killed
        print(
            f"{name:<10} {len(rows):>5} {starts:>6} {killed:>7} {counted:>8} {lost:>5} {twice:>6} {seconds:>8.0f}",
            flush=True,
        )
        if lost or twice or counted != (runs or RUNS[name]):
            sys.exit(f"{name}: a run was lost or counted twice")
    print(f"{killed_in_all} workers were killed")


def _study(folder: str, runs: int) -> dphypo.Study:
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    mortal = dphypo.mechanism(event=PureDp(1.0), relation=relation, seeded=True)(Mortal(folder))
    return dphypo.Study(SPACE, mortal, Pmf({runs: 1.0}), Band(1, 1), delta=1e-6, journal=None)


if __name__ == "__main__":
    words = sys.argv[1:]
    chosen = [word for word in words if word in RUNS]
    numbers = [int(word) for word in words if word.isdigit()]
    main(chosen or list(RUNS), numbers[0] if numbers else None)
