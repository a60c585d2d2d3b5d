"""Executing one run, or a dry run of it: whatever happens inside is its outcome.

A search says with :func:`followed_by` who follows the steps of the runs inside the block; training asks with
:func:`current_follower`. Nothing that a follower does changes what a run returns.
"""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, Any, Protocol

from dphypo._stderr import Shield
from dphypo.entropy import Seeded
from dphypo.errors import RehearsalError, Stopped, UnsupportedModelError
from dphypo.mechanisms.mechanism import Mechanism, check_signature
from dphypo.mechanisms.outcome import Outcome, settle
from dphypo.space import Space


def attempt(mechanism: Mechanism, params: Mapping[str, Any], seed: int) -> Outcome:
    """Train once; the outcome's model is in bytes.

    An exception is an outcome with the lowest score. Two things pass through: an interrupt that a signal caused, and a
    model that cannot be saved, which is an error in the declaration. A child that the run has forked ends here.
    """
    with _interruptible():
        outcome = settle(lambda: mechanism(copy.deepcopy(dict(params)), seed=seed), mechanism.saver)
    return replace(outcome, started_with=(dict(params), seed))


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Tell an interrupt from the keyboard from one that a run raises. A child that is forked here ends here."""
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
    """Execute several runs at once, as :func:`attempt` executes one, padded to ``size`` by repeats of the last.

    If the group as a whole fails, its runs are executed one by one: no run may fail because another one does.
    """
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
    settled = [settle(partial(Outcome.of, one), mechanism.saver) for one in made[: len(params)]]
    runs = zip(settled, params, seeds, strict=True)
    return [replace(outcome, started_with=(dict(one), seed)) for outcome, one, seed in runs]


def rehearse(mechanism: Mechanism, space: Space) -> None:
    """Refuse a mechanism that cannot be called, or whose dry run fails, if it offers one.

    No private record is touched, so errors are shown as they are.
    """
    check_signature(mechanism, "seed")
    params = space.sample(Seeded(0))  # any λ will do, and this one is public
    if (returned := mechanism.rehearse(params, seed=0)) is None:
        return
    outcome = Outcome.of(returned)
    if not outcome.ok:
        raise RehearsalError(f"a dry run of {mechanism!r} on made-up records failed at {params!r}: {outcome.failure}")
    mechanism.saver.load(bytes(mechanism.saver.dump(outcome.model)))


@dataclass(frozen=True)
class Pace:
    """What is public of a run's training."""

    noise_multiplier: float
    rate: float
    steps: int
    batch_size: float


class Follower(Protocol):
    """Is told of the steps of runs that are executed at once. What it raises never reaches the runs."""

    def begin(self, runs: Sequence[Pace]) -> IO[bytes] | None:
        """The runs begin. Returns a file with what :meth:`step` stored of a killed run, or None to begin at step 0."""

    def step(self, made: int, state: Callable[[IO[bytes]], object] | None = None) -> None:
        """This many steps are complete; ``state`` writes all that is needed to resume after them to a file."""

    def end(self) -> None: ...


_follower: ContextVar[Follower | None] = ContextVar("follower", default=None)


def current_follower() -> Follower | None:
    """Who follows the runs that this block of code executes."""
    return _follower.get()


@contextlib.contextmanager
def followed_by(follower: Follower) -> Iterator[None]:
    """A block whose runs report their steps to ``follower``."""
    shielded = _ShieldedFollower(follower)
    token = _follower.set(shielded)
    try:
        yield
    finally:
        _follower.reset(token)
        shielded.end()


class _ShieldedFollower:
    """A follower that never raises: otherwise what only watches a run could become its outcome."""

    def __init__(self, follower: Follower) -> None:
        self._follower, self._shield = follower, Shield("what follows the steps of runs")

    def begin(self, runs: Sequence[Pace]) -> IO[bytes] | None:
        return self._shield(lambda: self._follower.begin(runs), otherwise=None)

    def step(self, made: int, state: Callable[[IO[bytes]], object] | None = None) -> None:
        self._shield(lambda: self._follower.step(made, state), otherwise=None)

    def end(self) -> None:
        self._shield(self._follower.end, otherwise=None)
