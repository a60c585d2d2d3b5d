"""What it costs that λ may not depend on which run ended first: rounds and a fixed lag against arrival order.

``python -m benchmarks.load_order`` computes the time of 64 runs with w workers if run j waits for nothing (arrival
order), for runs 0 to j − w (fixed lag, what surveys and history-only studies do), or for all runs of the rounds before.
Durations are log-normal. One line is measured: a survey of 40 runs that sleep, with four threads.
"""

from __future__ import annotations

import concurrent.futures
import heapq
import time
from typing import Any

import numpy as np
from dp_accounting import NeighboringRelation
from numpy.typing import NDArray
from scipy.stats import uniform

import dphypo
from dphypo.accounting import PureDp
from dphypo.samplers import Uniform

RUNS, REPEATS, SLEEPS, SPREAD = 64, 400, 40, 0.5


def span(durations: NDArray[np.float64], workers: int, order: str) -> float:
    """When the last run ends.

    >>> span(np.array([3.0, 1.0, 1.0, 1.0]), 2, "arrival")
    3.0
    >>> span(np.array([3.0, 1.0, 1.0, 1.0]), 2, "lag"), span(np.array([3.0, 1.0, 1.0, 1.0]), 2, "rounds")
    (4.0, 4.0)
    """
    free = [0.0] * workers
    ends = np.zeros(len(durations))
    for number, duration in enumerate(durations):
        known = {"arrival": 0, "lag": max(number - workers + 1, 0), "rounds": number - number % workers}[order]
        waits = float(ends[:known].max()) if known else 0.0
        ends[number] = max(heapq.heappop(free), waits) + duration
        heapq.heappush(free, float(ends[number]))
    return float(ends.max())


def _seconds(seed: int) -> float:
    return float(0.05 * np.random.default_rng(seed).lognormal(0.0, SPREAD))


@dphypo.mechanism(event=PureDp(0.01), relation=NeighboringRelation.ADD_OR_REMOVE_ONE, seeded=True)
def sleep(params: dict[str, Any], *, seed: int) -> tuple[None, float]:
    """A run that takes its time."""
    time.sleep(_seconds(seed))
    return None, float(params["x"])


def _measured(durations: str) -> float:
    survey = dphypo.Survey(sleep, SLEEPS, proposer=Uniform(), durations=durations)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        plan = dphypo.Stages(dphypo.Space({"x": uniform(0, 1)}), [survey], delta=1e-6, journal=None)
        began = time.perf_counter()
        plan.run(workers=4, executor=pool, progress=False)
        return time.perf_counter() - began


def main() -> None:
    """Print the table."""
    rng = np.random.default_rng(0)
    print(f"time of {RUNS} runs, over arrival order (mean of {REPEATS}; log-normal durations)")
    print("workers  spread  fixed lag  rounds")
    for workers in (2, 4, 8, 16):
        for spread in (0.1, 0.5, 1.0):
            drawn = rng.lognormal(0.0, spread, (REPEATS, RUNS))
            means = {
                order: np.mean([span(row, workers, order) for row in drawn]) for order in ("arrival", "lag", "rounds")
            }
            lag, rounds = means["lag"] / means["arrival"], means["rounds"] / means["arrival"]
            print(f"{workers:>7} {spread:>7} {lag:>10.2f} {rounds:>7.2f}")
    pairs = [(_measured("public"), _measured("secret")) for _ in range(5)]
    ratio = float(np.median([fixed / arriving for arriving, fixed in pairs]))
    print(f"a survey of {SLEEPS} runs, 4 threads, spread {SPREAD}: fixed lag over arrival order {ratio:.2f} (measured)")


if __name__ == "__main__":
    main()
