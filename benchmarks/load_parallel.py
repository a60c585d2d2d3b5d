"""What a study with two workers loses against a bare ``executor.map`` on the same pool, with runs that compute.

``python -m benchmarks.load_parallel`` alternates the two, so that other programs on the machine slow both down.
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import statistics
import sys
import time
from typing import Any

from dp_accounting import NeighboringRelation
from scipy.stats import uniform

import dphypo
from dphypo.accounting import PureDp
from dphypo.band import Band
from dphypo.laws import Pmf

SPACE = dphypo.Space({"x": uniform(0, 1)})
STEPS = 20_000_000  # a second or two
RUNS = 8


def compute(number: int) -> float:
    """A run without a study: a loop of Python."""
    total = 0
    for step in range(STEPS):
        total += step & number
    return float(total)


@dphypo.mechanism(event=PureDp(1.0), relation=NeighboringRelation.ADD_OR_REMOVE_ONE, seeded=True)
def train(params: dict[str, Any], *, seed: int) -> tuple[float, float]:
    """The same loop as a run of a study, with a number of the same size: sums of large ones take longer."""
    return compute(seed % RUNS), float(params["x"])


def main(rounds: int = 5) -> None:
    """Print the time of a bare map over the time of a study, round by round, and their median."""
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        _bare(pool), _study(pool)  # imports
        ratios = []
        for _ in range(rounds):
            bare, study = _bare(pool), _study(pool)
            ratios.append(bare / study)
            print(f"  bare map {bare:.2f} s, study {study:.2f} s: efficiency {bare / study:.3f}", flush=True)
    print(f"efficiency with 2 workers, median of {rounds}: {statistics.median(ratios):.3f}")


def _bare(pool: concurrent.futures.Executor) -> float:
    began = time.perf_counter()
    list(pool.map(compute, range(RUNS)))
    return time.perf_counter() - began


def _study(pool: concurrent.futures.Executor) -> float:
    study = dphypo.Study(SPACE, train, Pmf({RUNS: 1.0}), Band(1, 1), delta=1e-6, journal=None)
    began = time.perf_counter()
    study.run(workers=2, executor=pool, progress=False)
    return time.perf_counter() - began


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
