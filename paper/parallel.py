"""Independent pieces of work on all cores, one thread each."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

WORKERS = int(os.environ.get("PAPER_WORKERS", "2"))


def quiet() -> None:
    """Keep dp_accounting's remarks about single Rényi orders, which are left out then, off the terminal."""
    logging.getLogger("absl").setLevel(logging.ERROR)


def each(calls: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
    """The results of the calls, in order. The longest should come first."""
    threads = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    os.environ.update(dict.fromkeys(threads, "1"))  # read by the workers when they load numpy
    try:
        with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn"), quiet) as pool:
            return [future.result() for future in [pool.submit(call, *args) for call, args in calls]]
    finally:
        for name, value in threads.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
