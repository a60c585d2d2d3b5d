"""The curator's view of what is secret, and searches that are read from their journal without a declaration."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dphypo import _validate
from dphypo.accounting import Certificate
from dphypo.errors import Refusal
from dphypo.journal.journal import Journal, Record
from dphypo.journal.store import Store, open_store
from dphypo.mechanisms import Plain, Saver
from dphypo.search import refusals
from dphypo.search.progress import WATCH_SUFFIX, LiveFile
from dphypo.search.release import Ending, Release, SurveyTable, table_of, with_models


class Curator:
    """What only the curator may see. **Nothing shown here carries any privacy guarantee.**

    The guarantee covers the release and nothing else. T, the trials, their scores, how many there are and why some
    failed all depend on the data: looking at them is like looking at the data, and so is whatever is decided, said or
    published because of them. Use it to find out why a study failed, on the machine that holds the data.
    """

    def __init__(
        self, record: Callable[[], Record], sampler_error: Callable[[], Exception | None] = lambda: None
    ) -> None:
        self._record, self._sampler_error = record, sampler_error

    @property
    def sampler_error(self) -> Exception | None:
        """What a search rule last raised, if it failed."""
        return self._sampler_error()

    def total(self) -> int | None:
        """T, the number of runs of the study. None once the journal has been shredded."""
        return self._record().total

    def trials(self) -> list[dict[str, Any]]:
        """Every run in the order in which its λ was drawn: params, seed, score, failure, attempts, done.

        ``failure`` says why a run has no score, with the traceback if there was one.
        """
        record = self._record()
        rows = []
        for trial in record.trials:
            result = record.results.get(trial.number)
            made = {"params": dict(trial.params), "seed": trial.seed, "attempts": trial.attempts}
            ended = (None, None) if result is None else (result.score, result.failure)
            rows.append({**made, "done": result is not None, "score": ended[0], "failure": ended[1]})
        return rows

    def __repr__(self) -> str:
        return "<the curator's view of a study: what it shows carries no privacy guarantee>"


class StoredSearch:
    """A study, or a search in stages, as :func:`dphypo.open_journal` reads it from its journal.

    Public values are attributes. They are None until the search has released, or if the certificate does not list them.
    Everything else is in :meth:`curator`. The λ that a survey recommends is not available, because computing it
    requires the declaration.
    """

    def __init__(self, store: Store, names: list[str]) -> None:
        self._store = store
        self._names = names  # of all parts, in order

    @property
    def name(self) -> str:
        return self._names[-1]

    @property
    def certificate(self) -> Certificate | None:
        """The guarantee of the release; it is all that is left after :meth:`shred`."""
        return None if (found := self._public()) is None else found.certificate

    @property
    def ending(self) -> Ending | None:
        return None if (found := self._public()) is None else found.ending

    @property
    def params(self) -> Mapping[str, Any] | None:
        return None if (found := self._public()) is None else found.params

    @property
    def score(self) -> float | None:
        return None if (found := self._public()) is None else found.score

    def release(self, saver: Saver | None = None) -> Release:
        """Return the release again. A model that was saved by a custom saver needs that saver."""
        if (found := self._public()) is None:
            raise Refusal(refusals.UNFINISHED)
        if self.record().shredded:
            raise Refusal(refusals.SHREDDED)
        saver = Plain() if saver is None else saver
        model = saver.load(self._journal(self.name).model()) if found.ending is Ending.MODEL else None
        return replace(found, model=model, saver=saver, surveys=self._surveys(saver), read_from=self._store.address)

    def _public(self) -> Release | None:
        """The public part of the release, without model and tables; None before the last part has released."""
        record = self.record()
        last = self._stages[(record.declaration or {}).get("stage", 1) - 1]
        if not self._released or record.ending is None or record.certificate is None:
            return None
        certificate, ending = Certificate.from_dict(json.loads(record.certificate)), Ending[record.ending]
        listed = () if last.get("part") == "survey" else last.get("releases", ())  # of one run
        if ending is Ending.MODEL and "model" not in listed:
            ending = Ending.SURVEYED
        score = record.results[record.best].score if record.best is not None and "score" in listed else None
        chosen = record.best if "params" in listed else None
        if record.trials and last.get("part") in ("last run", "rung"):
            chosen = 0  # λ is a function of what was published: it is released also if the run fails
        params = None if chosen is None else dict(record.trials[chosen].params)
        return Release(params, None, score, certificate, ending)

    @property
    def _released(self) -> bool:
        """Whether the last part has released, even if this version cannot read its certificate."""
        record = self.record()
        ended = record.stopped or (record.declaration or {}).get("stage", 1) == len(self._stages)
        return record.certificate is not None and ended

    @property
    def _stages(self) -> list[dict[str, Any]]:
        """All parts, as declared by the last one that has begun."""
        declared: dict[str, Any] = self.record().declaration or {}
        return list(declared.get("parts", [{}]))

    def _surveys(self, saver: Saver) -> tuple[SurveyTable, ...]:
        """The tables of the parts that are surveys by their own declarations, with the models that they published."""
        found, stages = [self._journal(name) for name in self._names], self._stages
        declared = [(journal, journal.record.declaration or {}) for journal in found]
        parts = [(journal, stages[of["stage"] - 1]) for journal, of in declared if of.get("parts") == stages]
        surveys = [journal for journal, part in parts if part.get("part") in ("survey", "rung")]
        tables = [(journal, table_of(journal.record)) for journal in surveys]
        return tuple(
            with_models(table, journal, saver) if journal.record.keeps_models else table for journal, table in tables
        )

    def shred(self) -> None:
        """Reduce the journal to its certificate: the runs and the model are destroyed. Save the release first."""
        if not self._released:
            raise Refusal(refusals.NOT_RELEASED)
        for name in self._names:
            self._journal(name).shred()
        LiveFile(self._store.beside(WATCH_SUFFIX)).erase()

    def curator(self) -> Curator:
        """The runs, for the curator alone. **Nothing it shows carries a guarantee.**"""
        return Curator(self.record)

    def record(self) -> Record:
        """What the journal holds. **Secret.**"""
        return self._journal(self.name).record

    def close(self) -> None:
        """Let other processes use the journal."""
        self._store.close()

    def __enter__(self) -> StoredSearch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<journal of {self.name!r}>"

    def _journal(self, name: str) -> Journal:
        return Journal(self._store, name, shared=True)


def open_journal(journal: str | Path, name: str | None = None) -> StoredSearch:
    """Open a journal for what needs no declaration: certificate, released parameters, shredding, the curator's view.

    Args:
        journal: the file or URL that the study was run with. It must exist.
        name: the study's name, or that of a search in stages; needed only if the journal holds several.

    >>> import pathlib, tempfile
    >>> import dp_accounting as dp
    >>> import dphypo
    >>> @dphypo.mechanism(event=dp.GaussianDpEvent(9.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    ... def train(params, *, seed):
    ...     return {"width": params["width"]}, 0.5  # a stand-in for training on private records
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "study.db"
    ...     release = dphypo.Study(
    ...         dphypo.Space({"width": [8]}), train, dphypo.Geometric(mean=3), delta=1e-6, journal=path
    ...     ).run(progress=False)
    ...     with dphypo.open_journal(path) as journal:
    ...         print(journal.params, journal.certificate == release.certificate)
    {'width': 8} True
    """
    if not isinstance(journal, (str, Path)):
        raise _validate.fail("journal", journal, "give the file name or the URL of a journal")
    store = open_store(journal, create=False)
    try:
        return StoredSearch(store, _chosen(store.names(), name))
    finally:
        store.rest()


def _chosen(names: list[str], name: str | None) -> list[str]:
    """The parts of the selected study: one, or all stages of a search, in order."""
    searches: dict[str, list[str]] = {}
    for one in names:
        whole, found, number = one.rpartition(", stage ")
        in_stages = found and number.isdigit() and whole not in names
        searches.setdefault(whole if in_stages else one, []).append(one)
    if name in names:
        return [str(name)]
    if name is None and len(searches) == 1:
        (name,) = searches
    if name is None or name not in searches:
        known = ", ".join(map(repr, searches)) or "nothing yet"
        raise _validate.fail("name", name, f"the journal holds {known}")
    return sorted(searches[name], key=lambda one: int(one.rpartition(" ")[2]) if one != name else 0)
