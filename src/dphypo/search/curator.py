"""The one door to what is secret."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Protocol

from dphypo.journal.records import Record


class Source(Protocol):
    """Where the curator's view comes from: a search, or an open journal."""

    sampler_error: Exception | None

    def record(self) -> Record: ...


class Curator:
    """What only the curator may see. **Nothing shown here carries any privacy guarantee.**

    The guarantee covers the release and nothing else. T, the trials, their scores, how many there are and why some
    failed all depend on the data: looking at them is like looking at the data, and so is whatever is decided, said or
    published because of them. Use it to find out why a study failed, on the machine that holds the data.
    """

    def __init__(self, search: Source) -> None:
        self._search = search

    @property
    def sampler_error(self) -> Exception | None:
        """What a search rule last raised, if it failed."""
        return self._search.sampler_error

    @property
    def maximize(self) -> bool:
        """Whether larger scores are better. This is public: it was declared."""
        return bool((self._search.record().declaration or {}).get("direction") != "minimize")

    @property
    def space(self) -> dict[str, Any] | None:
        """The space as it was declared, in JSON values; public, too. None where nothing has begun."""
        found: dict[str, Any] | None = (self._search.record().declaration or {}).get("space")
        return found

    def total(self) -> int | None:
        """T: how many runs the study makes. None once the journal is shredded."""
        return self._search.record().total

    def trials(self) -> list[dict[str, Any]]:
        """Every run in the order in which its λ was drawn: params, seed, score, failure, attempts, done.

        ``failure`` says why a run has no score, with the traceback where there was one.
        """
        record = self._search.record()
        rows = []
        for trial in record.trials:
            result = record.results.get(trial.number)
            rows.append(
                {
                    "params": dict(trial.params),
                    "seed": trial.seed,
                    "attempts": trial.attempts,
                    "done": result is not None,
                    "score": None if result is None else result.score,
                    "failure": None if result is None else result.failure,
                }
            )
        return rows

    def best(self) -> int | None:
        """The place in :meth:`trials` of the run that was released, from 0 on; None if none is."""
        return self._search.record().best

    def report(self, path: str | Path) -> Path:
        """Write all of this as one page of HTML, marked secret on every screen. It is not the page to publish.

        ``release.report`` writes that one. Needs the extra ``plots``.
        """
        # By name: reports are built on top of this module.
        written: Path = importlib.import_module("dphypo.report.curator_report").write_curator_report(self, path)
        return written

    def __repr__(self) -> str:
        return "<the curator's view of a study: what it shows carries no privacy guarantee>"
