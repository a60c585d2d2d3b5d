"""Standard error, which may be missing, closed or broken; and a shield around everything that only watches a search.

A display, a log line, a checkpoint or a callback must never change a search. Nothing in this module raises, except for
an interrupt, which is meant for the search.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from dphypo.errors import Stopped

R = TypeVar("R")
D = TypeVar("D")
log = logging.getLogger("dphypo")


def on_terminal() -> bool:
    """Whether standard error is a terminal. It is not if it is missing, closed or cannot say."""
    return shielded(lambda: bool(sys.stderr.isatty()), otherwise=False)


@contextlib.contextmanager
def usable() -> Iterator[None]:
    """A block in which ``sys.stderr`` can be written: if it is missing or closed, what is written disappears.

    Otherwise a run would fail because the code that it calls warns, or shows a progress bar.
    """
    before = sys.stderr
    if before is not None and not shielded(lambda: bool(before.closed), otherwise=False):
        yield
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        sys.stderr = nowhere
        _nowhere.append(nowhere)
        try:
            yield
        finally:
            sys.stderr = before
            _nowhere.remove(nowhere)


_nowhere: list[object] = []
"""Used if there is no standard error."""


def say(text: str, end: str = "\n") -> bool:
    """Write to standard error; return False if that is impossible."""
    if any(sys.stderr is one for one in _nowhere):
        return False
    return shielded(lambda: _write(text + end), otherwise=False)


def _write(text: str) -> bool:
    try:
        sys.stderr.write(text)
    except UnicodeEncodeError:
        sys.stderr.write(text.encode("ascii", "backslashreplace").decode())
    sys.stderr.flush()
    return True


def note(text: str) -> None:
    """Write an informational log line."""
    shielded(lambda: log.info(text), otherwise=None)


def shielded(call: Callable[[], R], *, otherwise: D, failed: Callable[[BaseException], object] | None = None) -> R | D:
    """Return what ``call`` returns, or ``otherwise`` if it raises; ``failed`` is given the exception."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if stopped := Stopped.behind(error):  # a signal, which the watcher turned into another error
            raise stopped from None
        if failed is not None:
            failed(error)
        return otherwise


@dataclass
class Shield:
    """Calls a watcher, and reports its first failure in one line.

    The line names the type of the exception and nothing else, because its text may quote private values. It goes to
    the log if standard error cannot be written.
    """

    what: str  # the watcher, as the line names it
    _reported: bool = field(default=False, init=False, compare=False, repr=False)

    def __call__(self, call: Callable[[], R], *, otherwise: D) -> R | D:
        return shielded(call, otherwise=otherwise, failed=self._report)

    def _report(self, error: BaseException) -> None:
        if not self._reported:
            self._reported = True
            line = f"dphypo: {self.what} failed ({type(error).__name__}). The search continues without it."
            if not say(line):
                shielded(lambda: log.warning(line), otherwise=None)
