"""Ten thousand published runs that take no time: milliseconds of processor a run, and memory, by thousands.

``python -m benchmarks.survey_load`` takes half a minute; another number of runs may follow. What is flat does not grow
with the number of runs.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping
from typing import Any

from dp_accounting import GaussianDpEvent, NeighboringRelation
from scipy.stats import loguniform

from dphypo import Space, Stages, Survey, mechanism


class Plain:
    """Draws every λ from the prior."""

    def propose(self, space: Space, history: Any, pending: Any, entropy: Any) -> Mapping[str, Any]:
        return space.sample(entropy)


def main(runs: int = 10_000) -> None:
    made, last = 0, time.process_time()

    def train(params: Mapping[str, Any], *, seed: int) -> tuple[object, float]:
        nonlocal made, last
        made += 1
        if made % (runs // 10) == 0:
            now = time.process_time()
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(f"{made:6} runs  {1e3 * (now - last) / (runs // 10):.2f} ms a run  {memory} MiB", flush=True)
            last = now
        return None, -abs(params["rate"] - 0.1)

    declared = mechanism(event=GaussianDpEvent(4000.0), relation=NeighboringRelation.ADD_OR_REMOVE_ONE, seeded=True)(
        train
    )
    space = Space({"rate": loguniform(1e-3, 1)})
    Stages(space, [Survey(declared, runs, Plain())], delta=1e-6, journal=None).run(progress=False)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
