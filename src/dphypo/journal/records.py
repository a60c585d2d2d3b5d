"""What a journal says of a study. All of it is secret.

The classes keep the ``repr`` of plain objects, which shows no field: tracebacks, notebooks and logs print ``repr``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dphypo.mechanisms import Outcome


@dataclass(frozen=True, repr=False)
class Trial:
    """One run to make: train with ``params`` and ``seed``, then tell the outcome.

    λ, the seed and the key that breaks ties are drawn and committed before the run, so a run that is lost is made
    again exactly as it was.
    """

    params: dict[str, Any]
    seed: int
    number: int
    tie_key: bytes
    attempts: int = 1


@dataclass(repr=False)
class Record:
    """The journal of one study, in memory: T, the runs in the order their λ were drawn, how they ended."""

    total: int | None
    trials: list[Trial] = field(default_factory=list)
    results: dict[int, Outcome] = field(default_factory=dict)
    best: int | None = None
    ending: str | None = None
    certificate: str | None = None

    @property
    def released(self) -> bool:
        return self.ending is not None

    @property
    def shredded(self) -> bool:
        return self.total is None

    @property
    def complete(self) -> bool:
        """All T runs have an outcome."""
        return len(self.results) == self.total
