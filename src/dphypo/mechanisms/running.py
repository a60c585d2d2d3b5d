"""Making one run: whatever happens inside it is its outcome."""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dphypo.errors import Stopped, UnsupportedModelError
from dphypo.mechanisms.mechanism import Mechanism
from dphypo.mechanisms.outcome import Outcome
from dphypo.mechanisms.savers import Saver


def attempt(mechanism: Mechanism, params: Mapping[str, Any], seed: int) -> Outcome:
    """Train once; the outcome's model is in bytes.

    An exception is an outcome with the lowest score, and so is running out of memory. Two things pass through: an
    interrupt that a signal caused, and a model of a kind that cannot be saved, which is an error in the declaration. A
    child that the run has forked ends where it would return.
    """
    process = os.getpid()
    try:
        with _interruptible():
            return settle(lambda: mechanism(copy.deepcopy(dict(params)), seed=seed), mechanism.saver)
    finally:
        if os.getpid() != process:
            os._exit(1)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """A block in which an interrupt from the keyboard can be told from one that a run raises by itself."""
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # signals reach other threads, or somebody has seen to them
        return

    def stop(number: int, frame: object) -> None:
        raise Stopped

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def settle(returned: Callable[[], Any], saver: Saver) -> Outcome:
    """What a run returned, checked, its model in bytes."""
    try:
        outcome = Outcome.of(returned())
        return replace(outcome, model=bytes(saver.dump(outcome.model))) if outcome.ok else outcome
    except UnsupportedModelError:
        raise
    except SystemExit as error:
        return Outcome.failed("the run ended its process", error)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and Stopped.behind(error):
            raise
        return Outcome.failed(_reason(error))


def _reason(error: BaseException) -> str:
    """For the curator, through the journal. Formatting may fail when memory has run out."""
    try:
        return "".join(traceback.format_exception(error))
    except Exception:
        return type(error).__name__
