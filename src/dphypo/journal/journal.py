"""The durable record of one study: what is drawn is committed before it is used, what comes back before it counts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, or_, select, update

from dphypo import _validate
from dphypo.errors import JournalError, JournalReadOnlyError, JournalTakenError, JournalTamperedError, LedgerError
from dphypo.journal import params as _params
from dphypo.journal import reading, schema
from dphypo.journal.records import Record, Trial
from dphypo.journal.reservation import LEDGER, Reservation, begun, reserve
from dphypo.journal.seal import Seal
from dphypo.journal.store import Store, machine_of
from dphypo.mechanisms import Outcome

ERASED = -1
"""In the place of a seed that was erased. No seed is negative."""


_LONGEST_NAME = 500

# Made once: to build a statement takes longer than to execute it.
_CLAIM, _FINISH = insert(schema.trial), insert(schema.outcome)
_MOVE = (
    update(schema.seal)
    .where(
        schema.seal.c.study == bindparam("its"),
        or_(schema.seal.c.owner == bindparam("token"), schema.seal.c.owner == ""),
        schema.seal.c.total == bindparam("old"),
    )
    .values(total=bindparam("new"), model=bindparam("digest"))
)


class Journal:
    """One study in a store. Every method is one transaction; ``record`` is what has been committed.

    Every commit checks in the database that this process still has the study and that its rows are those that it
    knows: a process that was replaced, or whose rows were changed by another program, commits nothing.
    """

    def __init__(
        self, store: Store, name: str, *, shared: bool = False, reservation: Reservation | None = None
    ) -> None:
        given: object = name
        if not isinstance(given, str) or not 0 < len(given) <= _LONGEST_NAME or not given.isprintable():
            raise _validate.fail("name", given, f"give a line of text of at most {_LONGEST_NAME} characters")
        self._store = store
        self._shared = shared  # somebody else closes the store
        self._name = name
        self._reservation = reservation  # what is set aside in a ledger before the first run
        self._record: Record | None = None
        self._token: str | None = None  # under which the study was taken

    def begin(
        self,
        declaration: dict[str, Any],
        draw: Callable[[], int],
        *,
        possible: Callable[[int], bool] | None = None,
    ) -> dict[str, Any]:
        """Take the study for this process and return its declaration.

        If there is no study of this name, T = ``draw()`` is committed in the transaction that creates it, so that no
        study exists without its T, and none gets a second. A T that is not ``possible`` under its law is refused.
        Where there is a ledger, the key of the study is committed with T, and what it costs is reserved after that.
        """
        with self._store.lock:
            token, writable = self._store.hold(self._name), self._store.writable

            def work(connection: Connection) -> Record:
                found = self._take(connection, token) if writable else reading.read(connection, self._name)
                if found is None:
                    if not writable:
                        raise JournalReadOnlyError
                    new = begun(declaration, self._reservation)
                    found = _create(connection, self._name, new, draw(), token)
                return found

            try:
                self._record, self._token = self._store.commit(work), token
                record = self._record
                reserve(record.declaration or {}, self._reservation, released=record.released)
            except LedgerError:
                self.rest()
                raise
            if possible is not None and record.total is not None and not possible(record.total):
                self._record = None
                raise JournalTamperedError("its number of runs is one that the law of T never gives")
            assert record.declaration is not None
            return {name: value for name, value in record.declaration.items() if name != LEDGER}

    @property
    def address(self) -> str | None:
        """Where it is, in words that may be printed; None if it is in memory."""
        return self._store.address

    @property
    def record(self) -> Record:
        """What has been committed. After an interrupted or failed write, or a lost connection, it is read again."""
        with self._store.lock:
            if self._record is None or not self._store.holds(self._name):
                self._record = self._load()
            return self._record

    @property
    def declaration(self) -> dict[str, Any] | None:
        """The public values with which the study was begun; None if there is no study of this name."""
        return self.record.declaration

    def _load(self) -> Record:
        token, writable = self._store.hold(self._name), self._store.writable

        def work(connection: Connection) -> Record:
            if not writable:
                return reading.read(connection, self._name) or Record(total=None)
            if token == self._token:  # taken before: it must still be ours
                _check_owner(connection, self._name, token)
            return self._take(connection, token) or Record(total=None)

        record = self._store.commit(work)
        self._token = token
        return record

    def _take(self, connection: Connection, token: str) -> Record | None:
        """Put our token on the study, so that whoever had it before commits nothing more, and read it."""
        table = schema.seal
        before = connection.scalar(select(table.c.owner).where(table.c.study == self._name))
        not_shredded = (table.c.study == self._name, table.c.owner != "")
        connection.execute(update(table).where(*not_shredded).values(owner=token))
        record = reading.read(connection, self._name)
        if record is not None and not record.sealed:  # written by dphypo 0.1, which had no seal
            _seal(connection, self._name, token, record)
        if record is not None:
            record.machine = machine_of(before)
        return record

    def _write(self, work: Callable[[Connection], object], seal: Callable[[Record], Seal], model: str | None) -> Record:
        """Commit, then hand out the record to be brought up to date; if anything goes wrong it is read again."""
        with self._store.lock:
            record, self._record = self.record, None
            if not self._store.writable:
                self._record = record
                raise JournalReadOnlyError
            new, token = seal(record), self._token

            def checked(connection: Connection) -> None:
                change = {"its": self._name, "token": token, "old": str(record.seal), "new": str(new), "digest": model}
                if connection.execute(_MOVE, change).rowcount != 1:
                    _check_owner(connection, self._name, token)
                    raise JournalTamperedError("its rows are not those that this process has committed")
                work(connection)

            self._store.commit(checked)
            record.seal, record.model_digest = new, model
            self._record = record
            return record

    def redeclare(self, declaration: dict[str, Any]) -> None:
        """Commit another declaration of the study, which the caller has found to be one that may follow the first."""
        kept = {name: value for name, value in (self.record.declaration or {}).items() if name == LEDGER}
        declaration = {**declaration, **kept}
        text = reading.declaration_text(declaration)
        table = schema.study
        statement = update(table).where(table.c.name == self._name).values(declaration=text)
        record = self._write(
            lambda connection: connection.execute(statement),
            lambda record: record.seal.minus([("study", record.stored, record.total)]).plus(
                [("study", text, record.total)]
            ),
            self.record.model_digest,
        )
        record.stored, record.declaration = text, declaration

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
        self._write(
            lambda connection: connection.execute(_CLAIM, row),
            lambda record: record.seal.plus([reading.trial_row(trial)]),
            self.record.model_digest,
        ).trials.append(trial)

    def attempted(self, trial: Trial) -> None:
        """Commit how often a process has begun this run."""
        table = schema.trial
        statement = (
            update(table)
            .where(table.c.study == self._name, table.c.number == trial.number)
            .values(attempts=trial.attempts)
        )
        if trial.number >= len(self.record.trials):
            raise JournalError("the journal has no such run; nothing was changed")

        def seal(record: Record) -> Seal:
            before = reading.trial_row(record.trials[trial.number])
            return record.seal.minus([before]).plus([reading.trial_row(trial)])

        self._write(lambda connection: connection.execute(statement), seal, self.record.model_digest).trials[
            trial.number
        ] = trial

    def finish(self, trial: Trial, outcome: Outcome, model: bytes | None, *, erase_seed: bool = False) -> None:
        """Commit how a run ended; with ``model``, it is the best so far and the model it beats is erased.

        With ``erase_seed`` the seed of the run is erased in the same transaction: its noise cannot be drawn again.
        """
        row = {"study": self._name, "number": trial.number, "score": outcome.score, "failure": outcome.failure}
        beaten = self.record.best if model is not None else None
        digest = self.record.model_digest if model is None else hashlib.sha256(model).hexdigest()

        def work(connection: Connection) -> None:
            connection.execute(_FINISH, row)
            if beaten is not None:
                connection.execute(delete(schema.best).where(schema.best.c.study == self._name))
            if model is not None:
                connection.execute(insert(schema.best), {"study": self._name, "number": trial.number, "model": model})
            if erase_seed:
                table = schema.trial
                erased = update(table).where(table.c.study == self._name, table.c.number == trial.number)
                connection.execute(erased.values(seed=ERASED))

        def seal(record: Record) -> Seal:
            new = record.seal.plus([reading.outcome_row(trial.number, outcome)])
            if erase_seed:
                known = record.trials[trial.number]
                new = new.minus([reading.trial_row(known)]).plus([reading.trial_row(replace(known, seed=ERASED))])
            if model is not None:
                new = new.minus(reading.best_rows(record)).plus([("best", trial.number, digest)])
            return new

        record = self._write(work, seal, digest)
        record.results[trial.number] = replace(outcome, model=None, leaving=None)
        if model is not None:
            record.best = trial.number
        if erase_seed:
            record.trials[trial.number] = replace(record.trials[trial.number], seed=ERASED)
        if beaten is not None or erase_seed:
            self._store.forget()

    def model(self) -> bytes:
        """The model of the best run so far."""
        statement = select(schema.best.c.model).where(schema.best.c.study == self._name)
        model = self._store.commit(lambda connection: connection.execute(statement).scalar_one_or_none())
        record = self.record
        if model is None or (record.sealed and hashlib.sha256(model).hexdigest() != record.model_digest):
            raise JournalTamperedError("the model that it keeps is not the one that was committed")
        return bytes(model)

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

        record = self._write(
            work, lambda record: record.seal.plus([("release", ending, certificate)]), self.record.model_digest
        )
        record.ending, record.certificate = ending, certificate

    def shred(self) -> None:
        """Reduce the study to its declaration and certificate, in the tables and in the bytes of the storage."""

        def work(connection: Connection) -> None:
            for table in (schema.best, schema.outcome, schema.trial):
                connection.execute(delete(table).where(table.c.study == self._name))
            connection.execute(update(schema.study).where(schema.study.c.name == self._name).values(total=None))
            # The token is random: without it, what is left depends on public values alone.
            connection.execute(update(schema.seal).where(schema.seal.c.study == self._name).values(owner=""))

        def seal(record: Record) -> Seal:
            return Seal().plus([("study", record.stored, None), *reading.release_rows(record)])

        self._write(work, seal, None)
        self._record = self._token = None
        self._store.forget(everything=True)

    def solved(self, question: Mapping[str, Any], solve: Callable[[], float]) -> float:
        """A public number that takes long to find: ``solve()`` the first time, from the journal after that.

        ``question`` is all that the number depends on, in public values. It may be asked before the study begins. The
        number is not trusted: what it is used for must be accounted for as if the user had given it.
        """
        text = json.dumps(question, sort_keys=True)
        where = {"study": self._name, "question": text}
        table = schema.solved
        statement = select(table.c.answer).where(table.c.study == self._name, table.c.question == text)
        with self._store.lock:
            known = self._store.commit(lambda connection: connection.scalar(statement))
            if known is None:
                known = float(solve())
                if self._store.writable:
                    self._store.hold(self._name)
                    self._store.commit(lambda connection: connection.execute(insert(table), {**where, "answer": known}))
            return float(known)

    def rest(self) -> None:
        """Let other processes use the journal."""
        with self._store.lock:
            self._record = self._token = None
            if not self._shared:
                self._store.rest()


def _check_owner(connection: Connection, name: str, token: str | None) -> None:
    owner = connection.scalar(select(schema.seal.c.owner).where(schema.seal.c.study == name))
    if owner not in (None, "", token):
        raise JournalTakenError


def _create(connection: Connection, name: str, declaration: dict[str, Any], total: int, token: str) -> Record:
    record = Record(total=total, stored=reading.declaration_text(declaration), declaration=declaration)
    connection.execute(insert(schema.study), {"name": name, "declaration": record.stored, "total": total})
    record.machine = machine_of(token)
    record.seal = Seal().plus([("study", record.stored, total)])
    _seal(connection, name, token, record)
    return record


def _seal(connection: Connection, name: str, token: str, record: Record) -> None:
    values = {"study": name, "owner": token, "total": str(record.seal), "model": record.model_digest}
    connection.execute(insert(schema.seal), values)
    record.sealed = True
