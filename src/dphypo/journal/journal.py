"""The durable record of one study: what is drawn is committed before it is used, what comes back before it counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from dphypo.journal import params as _params
from dphypo.journal import schema as schema
from dphypo.journal.errors import JournalError
from dphypo.journal.records import Record, Trial
from dphypo.journal.store import Store
from dphypo.mechanisms import Outcome


class Journal:
    """One study in a store. Every method is one transaction; ``record`` is what has been committed."""

    def __init__(self, store: Store, name: str, *, shared: bool = False) -> None:
        self._store = store
        self._shared = shared  # somebody else closes the store
        self._name = name
        self._record: Record | None = None

    def begin(self, declaration: dict[str, Any], draw: Callable[[], int]) -> dict[str, Any]:
        """Take the study for this process and return its declaration.

        If there is no study of this name, T = ``draw()`` is committed in the transaction that creates it, so that no
        study exists without its T, and none gets a second.
        """
        self._store.hold(self._name)

        def work(connection: Connection) -> str:
            found = connection.scalar(select(schema.study.c.declaration).where(schema.study.c.name == self._name))
            if found is None:
                found = json.dumps(declaration, sort_keys=True)
                connection.execute(insert(schema.study), {"name": self._name, "declaration": found, "total": draw()})
            return str(found)

        result: dict[str, Any] = json.loads(self._store.commit(work))
        self._record = self._load()
        return result

    @property
    def record(self) -> Record:
        """What has been committed. After an interrupted or failed write, or a lost connection, it is read again."""
        if self._record is None or not self._store.holds(self._name):
            self._store.hold(self._name)
            self._record = self._load()
        return self._record

    def _load(self) -> Record:
        def work(connection: Connection) -> Record:
            def rows(table: Any) -> Any:
                return connection.execute(select(table).where(table.c.study == self._name))

            total = connection.scalar(select(schema.study.c.total).where(schema.study.c.name == self._name))
            record = Record(total=total)
            for row in rows(schema.trial):
                params = _params.loads(row.params)
                record.trials.append(Trial(params, row.seed, row.number, bytes(row.tie_key), row.attempts))
            record.trials.sort(key=lambda trial: trial.number)
            for row in rows(schema.outcome):
                record.results[row.number] = Outcome(None, row.score, row.failure)
            record.best = connection.scalar(select(schema.best.c.number).where(schema.best.c.study == self._name))
            for row in rows(schema.release):
                record.ending, record.certificate = row.ending, row.certificate
            return record

        return self._store.commit(work)

    def _write(self, work: Callable[[Connection], object]) -> Record:
        """Commit, then hand out the record to be brought up to date; if anything goes wrong it is read again."""
        record, self._record = self.record, None
        self._store.commit(work)
        self._record = record
        return record

    def claim(self, trial: Trial) -> None:
        """Commit a drawn λ with its seed and tie key, before the run."""
        row = {
            "study": self._name,
            "number": trial.number,
            "total": self.record.total,
            "params": _params.dumps(trial.params),
            "seed": trial.seed,
            "tie_key": trial.tie_key,
            "attempts": trial.attempts,
        }
        self._write(lambda connection: connection.execute(insert(schema.trial), row)).trials.append(trial)

    def attempted(self, trial: Trial) -> None:
        """Commit how often a process has begun this run."""
        table = schema.trial
        statement = (
            update(table)
            .where(table.c.study == self._name, table.c.number == trial.number)
            .values(attempts=trial.attempts)
        )
        self._write(lambda connection: connection.execute(statement)).trials[trial.number] = trial

    def finish(self, trial: Trial, outcome: Outcome, model: bytes | None) -> None:
        """Commit how a run ended; with ``model``, it is the best so far and the model it beats is erased."""
        row = {"study": self._name, "number": trial.number, "score": outcome.score, "failure": outcome.failure}
        beaten = self.record.best is not None and model is not None

        def work(connection: Connection) -> None:
            connection.execute(insert(schema.outcome), row)
            if beaten:
                connection.execute(delete(schema.best).where(schema.best.c.study == self._name))
            if model is not None:
                connection.execute(insert(schema.best), {"study": self._name, "number": trial.number, "model": model})

        record = self._write(work)
        record.results[trial.number] = replace(outcome, model=None, leaving=None)
        if model is not None:
            record.best = trial.number
        if beaten:
            self._store.forget()

    def model(self) -> bytes:
        """The model of the best run so far."""
        statement = select(schema.best.c.model).where(schema.best.c.study == self._name)
        return bytes(self._store.commit(lambda connection: connection.execute(statement).scalar_one()))

    def release(self, ending: str, certificate: str) -> None:
        """Commit that the release is made. The count is checked in the database, not in memory."""

        def work(connection: Connection) -> None:
            told = connection.scalar(
                select(func.count()).select_from(schema.outcome).where(schema.outcome.c.study == self._name)
            )
            total = connection.scalar(select(schema.study.c.total).where(schema.study.c.name == self._name))
            if told != total:
                raise JournalError("the journal does not hold every outcome; nothing was released")
            connection.execute(
                insert(schema.release), {"study": self._name, "ending": ending, "certificate": certificate}
            )

        record = self._write(work)
        record.ending, record.certificate = ending, certificate

    def shred(self) -> None:
        """Reduce the study to its declaration and certificate, in the tables and in the bytes of the storage."""

        def work(connection: Connection) -> None:
            for table in (schema.best, schema.outcome, schema.trial):
                connection.execute(delete(table).where(table.c.study == self._name))
            connection.execute(update(schema.study).where(schema.study.c.name == self._name).values(total=None))

        self._write(work)
        self._record = None
        self._store.forget(everything=True)

    def rest(self) -> None:
        """Let other processes use the journal."""
        self._record = None
        if not self._shared:
            self._store.rest()
