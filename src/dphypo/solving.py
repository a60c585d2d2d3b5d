"""What people see while noise is solved for, if it takes long: all of it depends on public values alone."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from dphypo.accounting import watched

WAIT = 2.0
"""Seconds after which something is shown."""


@contextlib.contextmanager
def solving(*, show: bool = True, wait: float = WAIT) -> Iterator[None]:
    """Show on a terminal that noise is being solved for, if that takes longer than ``wait`` seconds.

    The line says for how long, how many values were tried, and the ε of the latest. It goes when the noise is found.
    """
    if not (show and sys.stderr.isatty()):
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, force_jupyter=False)
    columns = (
        SpinnerColumn("line"),
        TextColumn("solving for the noise"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    shown = Progress(*columns, console=console, transient=True)
    task = shown.add_task("")
    lock, over, tries = threading.Lock(), False, 0

    def begin() -> None:
        with lock:
            if not over:
                shown.start()

    def tried(epsilon: float) -> None:
        nonlocal tries
        tries += 1
        shown.update(task, description=f"{tries} tried, the latest costs ε = {epsilon:.4g}")

    timer = threading.Timer(wait, begin)
    timer.daemon = True
    timer.start()
    try:
        with watched(tried):
            yield
    finally:
        timer.cancel()
        with lock:
            over = True
        shown.stop()
