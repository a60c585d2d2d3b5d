"""What a journal says of a study. All of it is secret.

The classes keep the ``repr`` of plain objects, which shows no field: tracebacks, notebooks and logs print ``repr``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dphypo.journal.seal import Seal
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
    declaration: dict[str, Any] | None = None  # public
    stored: str = ""  # the declaration as it stands in the database
    seal: Seal = field(default_factory=Seal)
    sealed: bool = False  # whether the database has the seal already
    machine: str = ""  # where the process ran that had the study before; empty if that is not known
    model_digest: str | None = None  # SHA-256 of the model that is kept
    units: npt.NDArray[np.float64] | None = None  # the λ of the first runs in the unit cube, for the next draw

    @property
    def exists(self) -> bool:
        """Whether the study was begun."""
        return self.declaration is not None

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
