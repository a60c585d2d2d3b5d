"""Making one run: whatever happens inside it is its outcome."""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dphypo.errors import Stopped
from dphypo.errors.faults import UnsupportedModelError
from dphypo.mechanisms.capabilities import ManyAtOnce
from dphypo.mechanisms.mechanism import Mechanism
from dphypo.mechanisms.outcome import Outcome
from dphypo.mechanisms.savers import Saver


def attempt(mechanism: Mechanism, params: Mapping[str, Any], seed: int) -> Outcome:
    """Train once; the outcome's model is in bytes.

    An exception is an outcome with the lowest score, and so is running out of memory. Two things pass through: an
    interrupt that a signal caused, and a model of a kind that cannot be saved, which is an error in the declaration. A
    child that the run has forked ends where it would return.
    """
    with _interruptible():
        return settle(lambda: mechanism(copy.deepcopy(dict(params)), seed=seed), mechanism.saver)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """A block in which an interrupt from the keyboard can be told from one that a run raises by itself.

    A child that is forked in it ends with it.
    """
    process, before = os.getpid(), signal.getsignal(signal.SIGINT)
    # In other threads there are no signals, and somebody may have seen to them.
    ours = threading.current_thread() is threading.main_thread() and before is signal.default_int_handler

    def stop(number: int, frame: object) -> None:
        raise Stopped

    if ours:
        signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(1)
        if ours:
            signal.signal(signal.SIGINT, before)


def attempt_many(
    mechanism: Mechanism, params: Sequence[Mapping[str, Any]], seeds: Sequence[int], size: int
) -> list[Outcome]:
    """Make several runs at once, as :func:`attempt` makes one.

    The group is padded to ``size`` by the last run, whose further outcomes are thrown away. If the group as a whole
    fails, the runs are made one by one with their seeds: a failure of one must not be an outcome of the others.
    """
    assert isinstance(mechanism, ManyAtOnce)
    more = size - len(params)
    try:
        with _interruptible():
            together = copy.deepcopy([*map(dict, params), *[dict(params[-1])] * more])
            made = mechanism.many(together, seeds=[*seeds, *[seeds[-1]] * more])
        if len(made) != size:
            raise ValueError(f"many() returned {len(made)} outcomes for {size} runs")
    except BaseException as error:
        if isinstance(error, UnsupportedModelError) or (isinstance(error, KeyboardInterrupt) and Stopped.behind(error)):
            raise
        return [attempt(mechanism, one, seed) for one, seed in zip(params, seeds, strict=True)]
    return [settle(partial(Outcome.of, one), mechanism.saver) for one in made[: len(params)]]


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
