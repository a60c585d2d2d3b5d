"""How many runs are made at a time, and where: what ``study.run`` and ``stages.run`` are told of it."""

from __future__ import annotations

import concurrent.futures
from contextlib import AbstractContextManager
from dataclasses import dataclass

from dphypo import _validate
from dphypo.executors.executor import Executor, Factory, hire
from dphypo.mechanisms import Mechanism


@dataclass(frozen=True)
class Crew:
    """Those who make the runs, before they are hired. The arguments are those of :func:`dphypo.executors.hire`."""

    workers: int = 1
    start_method: str = "spawn"
    executor: str | Factory | concurrent.futures.Executor | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "workers", _validate.integer(at_least=1, workers=self.workers))

    @property
    def threads(self) -> bool:
        """Whether this process may have other threads while the crew works: a fork would copy their locks."""
        return self.start_method != "fork" or self.here

    @property
    def here(self) -> bool:
        """Whether runs are made in this process itself: one that dies takes it along."""
        threads = isinstance(self.executor, concurrent.futures.ThreadPoolExecutor)
        return threads or self.executor == "in_process" or (self.executor is None and self.workers == 1)

    @property
    def breaks(self) -> bool:
        """Whether one process that dies may take the runs of others with it, as in a pool of ``concurrent.futures``."""
        if isinstance(self.executor, concurrent.futures.Executor):
            return self.workers > 1 and not self.here
        return self.workers > 1 and bool(getattr(self.executor, "breaks", False))

    def hire(self, mechanism: Mechanism) -> AbstractContextManager[Executor]:
        """An executor for the runs of a mechanism; it is gone when the block ends."""
        return hire(mechanism, self.workers, self.start_method, self.executor)
