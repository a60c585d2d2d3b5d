"""Whose turn it is among the threads of this process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from dphypo.errors import refusals


class Turn:
    """One thread at a time; while one makes the runs, the others are refused.

    ``stages`` chooses the words of the refusal.
    """

    def __init__(self, *, stages: bool = False) -> None:
        self._lock = threading.RLock()
        self._runner: threading.Thread | None = None
        self._stages = stages

    @contextlib.contextmanager
    def short(self) -> Iterator[None]:
        """A step that no other thread may interrupt."""
        with self._lock:
            if self._runner not in (None, threading.current_thread()):
                raise refusals.OtherThread(stages=self._stages)
            yield

    @contextlib.contextmanager
    def look(self) -> Iterator[None]:
        """A step that only reads: it waits for the others' steps and is never refused."""
        with self._lock:
            yield

    @contextlib.contextmanager
    def long(self) -> Iterator[None]:
        """Making all the runs: until the block ends, no other thread may take a step."""
        with self._lock:
            if self._runner is not None:
                raise refusals.OtherThread(stages=self._stages)
            self._runner = threading.current_thread()
        try:
            yield
        finally:
            self._runner = None
