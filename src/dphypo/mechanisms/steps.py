"""Training in progress: whoever makes a run may follow its steps, and keep its state to go on with after a kill.

A search says with :func:`following` who follows the runs that are made inside the block; training asks with
:func:`follower`. Nothing that a follower does changes what a run returns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Pace:
    """What is public of a run's training."""

    noise_multiplier: float
    rate: float
    steps: int
    batch_size: float


class Follower(Protocol):
    """Is told of the steps of runs that are made at once."""

    def begin(self, runs: Sequence[Pace]) -> bytes | None:
        """They begin; what :meth:`step` was given of a run that was killed, or None to begin at the first step."""
        ...

    def step(self, made: int, state: Callable[[], bytes] | None = None) -> None:
        """So many steps are made; ``state`` gives all that is needed to go on after them."""
        ...

    def end(self) -> None:
        """They have ended, however they did."""
        ...


_follower: ContextVar[Follower | None] = ContextVar("follower", default=None)


def follower() -> Follower | None:
    """Who follows the run that is made here."""
    return _follower.get()


@contextlib.contextmanager
def following(given: Follower) -> Iterator[None]:
    """A block whose runs are followed."""
    token = _follower.set(given)
    try:
        yield
    finally:
        _follower.reset(token)
        given.end()
