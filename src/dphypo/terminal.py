"""A line on a terminal that is erased when the process stops or ends: what it shows must not stay there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

_ERASE = b"\r\x1b[2K\x1b[?25h"  # the line, and the cursor comes back

# A shell that waits until our end of its pipe closes, and erases the line then, unless it was told that all is well.
_WIPER = ["sh", "-c", r"read all_is_well || printf '\r\033[2K\033[?25h' >&2"]

_SIGNALS = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGXCPU", "SIGTSTP")


class Terminal:
    """Where the bar is drawn, by the thread of its clock too. Once erased it stays so until ``resume``.

    From the first ``resume`` on, a process of its own watches over this one: it erases the line if this process ends
    without a word, as by SIGKILL, SIGABRT or a crash.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self._lock = threading.RLock()  # a signal may come while its own thread is drawing
        self._erased = False
        self._wiper: subprocess.Popen[bytes] | None = None

    def write(self, text: str) -> int:
        with self._lock:
            return len(text) if self._erased else self.stream.write(text)

    def flush(self) -> None:
        with self._lock:
            if not self._erased:
                self.stream.flush()

    def erase(self) -> None:
        """Write to the file descriptor: the signal may have interrupted code that uses the buffers."""
        held = self._lock.acquire(timeout=1)
        self._erased = True
        with contextlib.suppress(OSError):
            os.write(self.stream.fileno(), _ERASE)
        if held:
            self._lock.release()
        self.unwatch()

    def resume(self) -> None:
        """Draw again, and be watched."""
        if self._wiper is None:
            with contextlib.suppress(OSError, ValueError):  # no shell, or a stream that is not a file
                self._wiper = subprocess.Popen(
                    _WIPER, stdin=subprocess.PIPE, stderr=self.stream.fileno(), start_new_session=True
                )
        self._erased = False

    def unwatch(self) -> None:
        """Tell the process that watches that the line is erased already."""
        wiper, self._wiper = self._wiper, None
        if wiper is not None:
            with contextlib.suppress(OSError):
                wiper.communicate(b"\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def erased_when_stopped(terminal: Terminal) -> Iterator[None]:
    """Erase the line before a signal stops or ends the process, then do what would have been done without it.

    Python runs a handler in the main thread, between two of its instructions: a run deep in compiled code ends later.
    What no handler sees is left to the process that watches over this one.
    """
    owner, stdout, stderr = os.getpid(), sys.stdout, sys.stderr
    before: dict[int, Any] = {}  # what each signal did

    def erase(received: int, frame: Any) -> None:
        if os.getpid() == owner:  # what a run has forked has no bar
            terminal.erase()
        try:
            if callable(before[received]):
                with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):  # as if there were no bar
                    before[received](received, frame)
            else:
                signal.signal(received, before[received])
                os.kill(os.getpid(), received)  # ends the process, or stops it until it is continued
                signal.signal(received, erase)
        finally:
            if os.getpid() == owner:
                terminal.resume()

    terminal.resume()
    try:
        in_main = threading.current_thread() is threading.main_thread()
        for number in [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)] if in_main else ():
            if (handler := signal.getsignal(number)) not in (None, signal.SIG_IGN):  # None: it is not Python's
                before[number] = handler
                signal.signal(number, erase)
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is erase:
                signal.signal(number, handler)
        terminal.unwatch()
