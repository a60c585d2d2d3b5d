"""Runs in groups, for mechanisms that execute many runs at once: in this process, or a share on every device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dphypo.executors.processes import Processes
from dphypo.journal.journal import Trial
from dphypo.mechanisms import Mechanism, Outcome
from dphypo.mechanisms.attempt import attempt_many
from dphypo.mechanisms.savers import Pickled


class Groups:
    """Executes the runs that were started as one group when they are waited for.

    A group is padded to its size. A lost group is therefore repeated in the same shape and with the same seeds, even if
    some of its runs have ended.

    Args:
        each: the same training, once for each device. With several devices, each has its own process, which executes a
            share of every group; with one device, groups are executed in this process.
        size: the size of the group to which a run belongs, by the run's number.
        alone: whether a lost run is repeated alone. In a study, no run may fail because another one ends the process.
    """

    def __init__(
        self, each: Sequence[Mechanism], size: Callable[[int], int], *, alone: bool = False, start_method: str = "spawn"
    ) -> None:
        shares: list[Any] = [_Share(one) for one in each]
        self._shares, self._size, self._alone = shares, size, alone
        self._started: list[Trial] = []
        self._ended: deque[tuple[Trial, Outcome | None]] = deque()
        self._workers: Processes | None = None
        if len(each) > 1:
            self._workers = Processes(shares[0], workers=len(each), start_method=start_method, each=shares)

    @property
    def idle(self) -> bool:
        """Whether another run can join the group: none can while outcomes of the last group are returned."""
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

    def _make(self, group: Sequence[Trial], size: int) -> Sequence[Outcome | None]:
        """The outcomes of a group, in order; None for runs whose process died."""
        if self._workers is None:
            return self._shares[0].make(group, size)  # type: ignore[no-any-return]
        share = -(-size // len(self._shares))
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
        self._started, self._ended = [], deque()
        if self._workers is not None:
            self._workers.close()

    def _places(self, first: Trial) -> int:
        return 1 if self._alone and first.attempts > 1 else self._size(first.number)


@dataclass(frozen=True)
class _Share:
    """A share of a group as a worker sees it: one run, whose model is the list of outcomes."""

    mechanism: Mechanism
    saver: ClassVar[Pickled] = Pickled()  # between processes of this library

    def make(self, group: Sequence[Trial], size: int) -> list[Outcome]:
        return attempt_many(self.mechanism, [one.params for one in group], [one.seed for one in group], size)

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Outcome:
        return Outcome(self.make(params["group"], params["size"]), 0.0)
