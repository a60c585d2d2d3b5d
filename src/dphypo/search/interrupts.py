"""What may come between the runs of a search: other threads, signals, the start of workers, and the keyboard."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from dphypo._stderr import say
from dphypo.errors import Refusal, Stopped
from dphypo.search import refusals


def refuse_in_worker_start() -> None:
    """Refuse to search while a worker process imports the main script."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # multiprocessing sets it
        raise Refusal(refusals.IN_WORKER_START)


_ENDS = [number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]


class Terminated(Stopped):
    """The process received a signal to end while runs were executed."""

    def __init__(self, number: int, raised: BaseException | None) -> None:
        super().__init__()
        self.number = number
        self.raised = raised


@contextlib.contextmanager
def orderly() -> Iterator[None]:
    """A block that a terminating signal ends like an interrupt; then the process ends.

    The previous handler is called first. It may decide to continue. What it raises is raised again after the block, so
    that no run treats it as its own failure. Signals reach the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()
    before = {number: signal.getsignal(number) for number in _ENDS}
    before = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}

    def stop(number: int, frame: Any) -> None:
        handler = before[number]
        if os.getpid() != owner:  # a process that a run has forked
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif callable(handler):
            try:
                handler(number, frame)
            except BaseException as raised:
                raise Terminated(number, raised) from None
        else:
            raise Terminated(number, None)

    for number in before:
        signal.signal(number, stop)
    ended: Terminated | None = None
    try:
        yield
    except Terminated as terminated:
        ended = terminated
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is stop:
                signal.signal(number, handler)
    if ended is not None:
        if ended.raised is not None:
            raise ended.raised from None  # without the stack of the run, whose values are secret
        os.kill(owner, ended.number)  # as if the signal had not been caught
        raise ended


@contextlib.contextmanager
def interruptible(journal: str | None) -> Iterator[None]:
    """Show two lines that name the journal, instead of a traceback, after a keyboard interrupt."""
    interrupted = False
    try:
        yield
    except KeyboardInterrupt:
        interrupted = True
    if not interrupted:
        return
    where = "its journal is in memory" if journal is None else f"everything committed is in {journal}"
    again = "call run() again in this process" if journal is None else "run the same program, or call run(), again"
    said = f"The search was interrupted: nothing is released, and {where}.\nTo resume, {again}."
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt) and error.args == (said,):
            say(said)
        else:
            before(kind, error, trace)

    sys.excepthook = hook
    # Raised outside the handler, so that the stack of the run is not printed. It is not a subclass, because Python
    # exits with the status of an interrupt only for KeyboardInterrupt itself.
    raise KeyboardInterrupt(said)
