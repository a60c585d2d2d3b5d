"""Several devices of one machine: a process of its own for each, which makes a share of every group there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dphypo.executors.groups import in_process
from dphypo.executors.processes import Processes
from dphypo.journal.records import Trial
from dphypo.mechanisms import Mechanism, Outcome
from dphypo.mechanisms.savers import Pickled


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
            if outcome is None or outcome.ok:
                found = [None] * len(runs) if outcome is None else Pickled().load(outcome.model)
            else:
                found = [outcome] * len(runs)
            made |= {trial.number: one for trial, one in zip(runs, found, strict=True)}
        return [made[trial.number] for trial in group]

    def close(self) -> None:
        """End the processes."""
        self._workers.close()
