"""A line on a terminal that a signal erases: what it shows must not stay there."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

_ERASE = b"\r\x1b[2K\x1b[?25h"  # the line, and the cursor comes back


class Terminal:
    """Where the bar is drawn, by the thread of its clock too. Once erased it stays so until ``resume``."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self._lock = threading.RLock()  # a signal may come while its own thread is drawing
        self._erased = False

    def write(self, text: str) -> int:
        with self._lock:
            return len(text) if self._erased else self.stream.write(text)

    def flush(self) -> None:
        with self._lock:
            if not self._erased:
                self.stream.flush()

    def erase(self) -> None:
        """Past all buffers, which may be in use by what the signal interrupted."""
        held = self._lock.acquire(timeout=1)
        self._erased = True
        with contextlib.suppress(OSError):
            os.write(self.stream.fileno(), _ERASE)
        if held:
            self._lock.release()

    def resume(self) -> None:
        self._erased = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def erased_when_terminated(terminal: Terminal) -> Iterator[None]:
    """SIGTERM, which schedulers send, ends a process at once: erase the bar first, then do what would have been done.

    Python runs the handler in the main thread, between two of its instructions: a run deep in compiled code ends later.
    """
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM) if in_main else None
    if before is None or before is signal.SIG_IGN:  # None: a handler that is not Python's
        yield
        return
    owner, stdout, stderr = os.getpid(), sys.stdout, sys.stderr

    def terminate(number: int, frame: Any) -> None:
        if os.getpid() == owner:  # what a run has forked has no bar
            terminal.erase()
        if callable(before):
            try:
                with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):  # as if there were no bar
                    before(number, frame)
            finally:
                terminal.resume()
        else:
            signal.signal(number, before)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is terminate:
            signal.signal(signal.SIGTERM, before)
