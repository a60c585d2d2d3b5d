"""Runs a group at a time, by a mechanism that makes many at once: in this process, or a share of each on every device.

With several devices of one machine each has a process of its own, which makes a share of every group there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dphypo.executors.processes import Processes
from dphypo.journal.records import Trial
from dphypo.mechanisms import Mechanism, Outcome
from dphypo.mechanisms.outcome import attempt_many
from dphypo.mechanisms.savers import Pickled

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
    return lambda group, size: attempt_many(
        mechanism, [trial.params for trial in group], [trial.seed for trial in group], size
    )


@dataclass(frozen=True)
class _Share:
    """A mechanism one run of which is a share of a group: its model is the list of outcomes."""

    mechanism: Mechanism

    event: ClassVar[None] = None
    relation: ClassVar[None] = None
    score_event: ClassVar[None] = None
    split: ClassVar[None] = None
    monotone: ClassVar[frozenset[str]] = frozenset()
    saver: ClassVar[Pickled] = Pickled()  # between processes of ours

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Outcome:
        return Outcome(in_process(self.mechanism)(params["group"], params["size"]), 0.0)


class DeviceGroups:
    """Makes groups of runs on several devices at once.

    Args:
        mechanisms: the same training, once for each device.
        start_method: how the processes start.
    """

    def __init__(self, mechanisms: Sequence[Mechanism], start_method: str) -> None:
        shares = [_Share(one) for one in mechanisms]
        self._count = len(shares)
        self._workers = Processes(shares[0], workers=self._count, start_method=start_method, each=shares)

    def make(self, group: Sequence[Trial], size: int) -> list[Outcome | None]:
        """The outcomes of a group, in order; None for runs whose process died."""
        share = -(-size // self._count)
        for start in range(0, len(group), share):
            given = {"group": list(group[start : start + share]), "size": share}
            self._workers.start(Trial(given, 0, start, b"", 0))
        made: dict[int, Outcome | None] = {}
        while self._workers.busy:
            task, outcome = self._workers.wait()
            runs = task.params["group"]
            found = Pickled().load(outcome.model) if outcome is not None and outcome.ok else [outcome] * len(runs)
            made |= {trial.number: one for trial, one in zip(runs, found, strict=True)}
        return [made[trial.number] for trial in group]

    def close(self) -> None:
        """End the processes."""
        self._workers.close()
