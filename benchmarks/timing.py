"""The time that a call takes when nothing disturbs it."""

from __future__ import annotations

import time
from collections.abc import Callable


def best_of(repeats: int, call: Callable[[], object]) -> float:
    """Seconds of the fastest of several calls, after one to warm up."""
    call()
    fastest = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest
