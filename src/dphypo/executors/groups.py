"""Runs in this process, a group at a time, by a mechanism that makes many at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from dphypo.journal.records import Trial
from dphypo.mechanisms import Mechanism, Outcome
from dphypo.mechanisms.outcome import attempt_many

Make = Callable[[Sequence[Trial], int], Sequence[Outcome | None]]
"""Makes runs at once, padded to a size; None for one whose process died."""


class Groups:
    """Makes the runs that were started as one group when they are waited for.

    A group is padded to its size: one that was lost is made again in the same shape, with the seeds it had, even if
    some of its runs have ended.

    Args:
        make: makes many runs at once; :func:`in_process` by a mechanism that can.
        size: the size of the group to which a run belongs, by its number.
        alone: whether a run that was lost is made again alone. In a study no run may fail because another one ends the
            process again and again.
    """

    def __init__(self, make: Make, size: Callable[[int], int], *, alone: bool = False) -> None:
        self._make, self._size, self._alone = make, size, alone
        self._started: list[Trial] = []
        self._ended: deque[tuple[Trial, Outcome | None]] = deque()

    @property
    def idle(self) -> bool:
        """Whether another run can join the group. Nobody joins while outcomes of the last one are handed out."""
        return not self._ended and (not self._started or len(self._started) < self._places(self._started[0]))

    @property
    def busy(self) -> bool:
        return bool(self._started or self._ended)

    def start(self, trial: Trial) -> None:
        self._started.append(trial)

    def wait(self) -> tuple[Trial, Outcome | None]:
        if not self._ended:
            group, self._started = self._started, []
            self._ended.extend(zip(group, self._make(group, self._places(group[0])), strict=True))
        return self._ended.popleft()

    def close(self) -> None:
        self._started, self._ended = [], deque()

    def _places(self, first: Trial) -> int:
        return 1 if self._alone and first.attempts > 1 else self._size(first.number)


def in_process(mechanism: Mechanism) -> Make:
    """Runs at once, by a mechanism that can make many, in this process."""

    def make(group: Sequence[Trial], size: int) -> Sequence[Outcome | None]:
        return attempt_many(mechanism, [trial.params for trial in group], [trial.seed for trial in group], size)

    return make
