"""Reading or computing one record alone: whatever happens is that record's outcome.

A record that made a run fail would be visible through any noise. While one record is handled alone, every exception is
therefore the record's: it counts for nothing, whether it raises ``ValueError``, ``MemoryError`` (a damaged header that
announces 2⁵⁰ numbers) or something that is no ``Exception`` (a panic of a Rust library). Only a signal passes through.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TypeVar

from dphypo.errors import Stopped

Found = TypeVar("Found")

_ENDS = [number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]


def or_none(call: Callable[[], Found]) -> Found | None:
    """What ``call`` returns; None if it raises anything but a signal.

    >>> or_none(lambda: 1 / 0) is None
    True
    """
    try:
        return call()
    except BaseException as error:
        if is_signal(error):
            raise
        return None


def is_signal(error: BaseException) -> bool:
    """Whether a signal that ends the process raised an exception. Signals reach the main thread alone.

    During a run the library's own handler raises :class:`Stopped`. Elsewhere Python's raises ``KeyboardInterrupt``, and
    a handler that the user installed may raise anything.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if Stopped.behind(error):
        return True
    handlers = [signal.getsignal(number) for number in _ENDS]
    if isinstance(error, KeyboardInterrupt) and signal.default_int_handler in handlers:
        return True
    codes = {getattr(handler, "__code__", None) for handler in handlers} - {None}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in codes:
        trace = trace.tb_next
    return trace is not None
