"""Independent pieces of work on all cores, one thread each."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

WORKERS = int(os.environ.get("PAPER_WORKERS", "2"))


def quiet() -> None:
    """Keep dp_accounting's remarks about single Rényi orders, which are left out then, off the terminal."""
    logging.getLogger("absl").setLevel(logging.ERROR)


def each(
    calls: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]],
    console: Console | None = None,
    keep: Callable[[int, Any], None] | None = None,
) -> list[Any]:
    """The results of the calls, in order. The longest should come first. ``keep`` is told each as soon as it is in.

    On a terminal a bar shows how many are done, the time that has passed and an estimate of what is left; it is erased
    at the end. By default it goes to standard error.
    """
    threads = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    os.environ.update(dict.fromkeys(threads, "1"))  # read by the workers when they load numpy
    try:
        with (
            _bar(console or Console(stderr=True)) as bar,
            ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn"), quiet) as pool,
        ):
            task = bar.add_task("pieces of work", total=len(calls))

            def done(_: Future[Any]) -> None:
                bar.advance(task)

            futures = [pool.submit(call, *args) for call, args in calls]
            for future in futures:
                future.add_done_callback(done)
            numbers = {future: number for number, future in enumerate(futures)}
            if keep is not None:
                for future in as_completed(futures):
                    keep(numbers[future], future.result())
            return [future.result() for future in futures]
    finally:
        for name, value in threads.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _bar(console: Console) -> Progress:
    columns = (
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("passed,"),
        TimeRemainingColumn(),
        TextColumn("left (estimated)"),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
