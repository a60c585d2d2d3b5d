"""What may interrupt a search: another thread, a signal that ends the process, and the death of a worker."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from dphypo import _validate
from dphypo.errors import Stopped, refusals
from dphypo.executors.executor import Crew
from dphypo.mechanisms import Mechanism, capabilities


class Turn:
    """One thread at a time; while one makes the runs, the others are refused. ``stages`` chooses the words of it."""

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


_ENDS = [number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]


class Terminated(Stopped):
    """The process was told to end while runs were made."""

    def __init__(self, number: int, raised: BaseException | None) -> None:
        super().__init__()
        self.number = number
        self.raised = raised


@contextlib.contextmanager
def orderly() -> Iterator[None]:
    """A block that is left, as by an interrupt, when a signal tells the process to end; then the process ends.

    The handler that was there before is asked first: it may decide to go on, and what it raises is raised when the
    block has been left, so that no run takes it for its own. Signals reach the main thread only.
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
            return
        if callable(handler):
            try:
                handler(number, frame)
            except BaseException as raised:
                raise Terminated(number, raised) from None
            return
        raise Terminated(number, None)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    except Terminated as ended:
        _restore(before, stop)
        if ended.raised is not None:
            raise ended.raised from None
        os.kill(owner, ended.number)  # as if nobody had caught it
        raise
    finally:
        _restore(before, stop)


def _restore(before: dict[Any, Any], ours: Any) -> None:
    for number, handler in before.items():
        if signal.getsignal(number) is ours:
            signal.signal(number, handler)


class Lost(StrEnum):
    """What becomes of a run whose process died.

    Whether the data killed a process cannot be seen from outside. Retrying such a run selects for runs that survive,
    unless all randomness of the run comes from its seed: then it ends as before. Counting it as failed is covered if
    runs die independently; an outage that takes many of them would change the law of T (docs/theory.md, "Facts about
    the search").

    An interrupt, SIGTERM, a cluster that takes a worker back, and a machine that goes away with all its processes do
    not count as deaths of a run: the run is made again with its seed, whatever is declared here.
    """

    AGAIN = "again"
    """It is made again with the same seed, at most twice: for mechanisms whose randomness comes from the seed alone."""

    FAILED = "failed"
    """It counts as failed at once."""

    @classmethod
    def read(cls, given: Lost | str | None, mechanism: Mechanism) -> Lost:
        """What the user gave; by default what fits the mechanism, which may say of itself that it is ``seeded``."""
        if given is None:
            return cls.AGAIN if capabilities.is_seeded(mechanism) else cls.FAILED
        if not isinstance(given, str) or given not in list(cls):
            raise _validate.fail("lost", given, 'give "again" or "failed", or None for what fits the mechanism')
        return cls(given)

    def check(self, crew: Crew) -> None:
        """Refuse those whose runs die together, where a death is an outcome: runs must die independently."""
        if self is Lost.FAILED and crew.breaks:
            raise _validate.fail(
                "executor",
                crew.executor,
                "one process that dies breaks such a pool and takes the other runs with it, so that their failures are "
                'not independent. Use executor="processes", or workers=1; or, if all randomness of a run comes from '
                'its seed, declare the mechanism with seeded=True, or lost="again"',
            )

    @property
    def condition(self) -> str:
        """What the guarantee assumes, for the certificate."""
        if self is Lost.AGAIN:
            return (
                "a run whose process died was made again with its seed, at most twice; that is covered if all "
                "randomness of a run comes from its seed, or if no death depends on the data"
            )
        return (
            "a run whose process died counts as failed, which is covered if runs die independently of one another; one "
            "that was stopped in order, or lost with its whole machine, was made again with its seed, which is covered "
            "if neither depends on the data"
        )
