"""The durable record of one study: what is drawn is committed before it is used, what comes back before it counts."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, select

from dphypo import _validate
from dphypo.accounting.noise import Keep
from dphypo.errors import JournalError, LedgerError
from dphypo.journal import chain
from dphypo.journal.chain import Change
from dphypo.journal.database import REFUSED, not_writable
from dphypo.journal.records import KEY_BYTES, Record, Trial
from dphypo.journal.reservation import LEDGER, Reservation
from dphypo.journal.store import Store, open_store
from dphypo.mechanisms import Outcome

KIND = "journal"


class Journal:
    """One study in a store. Every method is one transaction; ``record`` is what has been committed.

    Every commit checks in the database that this process still has the study and that the journal ends where it knows:
    a process that was replaced, or whose rows were changed by another program, commits nothing. With a reservation, the
    ledger is told of every commit before it is acted on.
    """

    def __init__(
        self, store: Store, name: str, *, shared: bool = False, reservation: Reservation | None = None
    ) -> None:
        self._store = store
        self._shared = shared  # somebody else closes the store
        self._name = _validate.line(name=name)
        self._reservation = reservation
        self._record: Record | None = None
        self._token: str | None = None  # under which the study was taken
        self._agreed: chain.Place | None = None  # what the ledger knows of

    def begin(self, declaration: dict[str, Any], draw: Callable[[], int]) -> dict[str, Any]:
        """Take the study for this process and return its declaration.

        If there is no study of this name, T = ``draw()`` is committed in the transaction that creates it, so that no
        study exists without its T, and none gets a second. Where there is a ledger, the key of the study is committed
        with T, and what it costs is reserved after that.
        """
        with self._store.turn():
            try:
                record = self._load()
                if not record.exists:
                    record = self._create(record, declaration, draw)
                self._agree(record)
            except BaseException:
                self.rest()
                raise
            self._record = record
            assert record.declaration is not None
            return {name: value for name, value in record.declaration.items() if name != LEDGER}

    def _create(self, record: Record, declaration: dict[str, Any], draw: Callable[[], int]) -> Record:
        if self._reservation is not None:
            declaration = self._reservation.begun(declaration)
        content = json.loads(json.dumps(["begin", declaration, int(draw())], sort_keys=True))
        return self._commit(record, content, secrets.token_bytes(KEY_BYTES))

    def _commit(
        self,
        record: Record,
        content: list[Any],
        kept: bytes | None = None,
        erase: Iterable[int] = (),
        *,
        alone: bool = False,
    ) -> Record:
        """Commit a change that the record allows; return the record with it. The arguments are those of the chain."""
        if not self._store.writable:
            raise not_writable()
        place, token, allowed = record.place, self._token or "", False
        after = Record() if alone else record
        with contextlib.suppress(JournalError):
            after.apply(Change(content, kept is not None, kept), place.length)
            allowed = True
        if not allowed:
            raise JournalError(REFUSED)

        def work(connection: Connection) -> chain.Place:
            end = chain.append(connection, place, content, owner=token, kept=kept, erase=erase, alone=alone)
            if end is None:
                _check_owner(connection, self._name, self._token)
                raise chain.tampered("it does not end where this process has left it")
            return end

        after.place = self._store.commit(work)
        return after

    @property
    def record(self) -> Record:
        """What has been committed. After an interrupted or failed write, or a lost connection, it is read again."""
        with self._store.turn():
            if self._record is None or not self._store.holds(self._name):
                self._record = self._load()
            return self._record

    def _load(self) -> Record:
        """Take the study, so that whoever had it before commits nothing more, and read it."""
        token, writable = self._store.hold(self._name), self._store.writable

        def work(connection: Connection) -> Any:
            if writable and token == self._token:  # taken before: it must still be ours
                _check_owner(connection, self._name, token)
            if writable:
                chain.take(connection, KIND, self._name, token)
            return chain.read(connection, KIND, self._name)

        found = self._store.commit(work)
        self._token = token
        record = Record(place=chain.Place(KIND, self._name))
        if found is not None:
            record.place, changes = found
            record.replay(changes)
        return record

    def _write(self, content: list[Any], kept: bytes | None = None, erase: Iterable[int] = ()) -> None:
        """Commit a change and let the ledger know. If anything goes wrong the record is read again."""
        with self._store.turn():
            record, self._record = self.record, None
            self._agree(record)
            self._commit(record, json.loads(json.dumps(content)), kept, erase)
            self._agree(record)
            self._record = record

    def _agree(self, record: Record) -> None:
        """Tell the ledger, if the search has one, before what was committed is used."""
        if self._reservation is None:
            if not record.released:
                refuse_without_ledger(record)
        elif self._agreed != record.place:
            self._reservation.agree(record)
            self._agreed = record.place

    def redeclare(self, declaration: dict[str, Any]) -> None:
        """Commit another declaration of the study. The caller has checked that it may replace the first."""
        entry = {name: value for name, value in (self.record.declaration or {}).items() if name == LEDGER}
        self._write(["declare", {**declaration, **entry}])

    def claim(self, trial: Trial) -> None:
        """Commit a drawn λ with its seed and tie key, before the run."""
        content = ["claim", trial.number, dict(trial.params), trial.tie_key.hex(), trial.attempts, trial.machine]
        self._write(content, trial.seed.to_bytes(8, "big"))

    def attempted(self, trial: Trial) -> None:
        """Commit that an attempt at this run begins: how many count, on which machine, and after which step."""
        steps = [trial.steps] if trial.steps else []
        self._write(["attempt", trial.number, trial.attempts, trial.machine, *steps])

    def finish(self, trial: Trial, outcome: Outcome, model: bytes | None, *, erase_seed: bool = False) -> None:
        """Commit how a run ended; with ``model``, it is the best so far and the model it beats is erased.

        With ``erase_seed`` the seed of the run is erased in the same transaction: its noise cannot be drawn again.
        """
        record = self.record
        erase = [] if model is None or record.model is None else [record.model]
        if erase_seed and trial.number in record.seeds:
            erase.append(record.seeds[trial.number])
        score = None if outcome.score is None else float(outcome.score)
        more = [dict(outcome.metrics)] if outcome.metrics else []
        content = ["finish", trial.number, score, outcome.failure, model is not None, erase_seed, *more]
        self._write(content, model, erase)
        if erase:
            self._store.forget()

    def model(self) -> bytes:
        """The model of the best run so far."""
        number = self.record.model
        return self._kept("model", -1 if number is None else number)

    def commit_fingerprint(self, fingerprint: bytes) -> None:
        """Commit the fingerprint of the records that the search uses: once, before its first run.

        Compute it under ``record.records_key``, so that nobody without the journal can test a guess of a record.
        """
        self._write(["fingerprint"], bytes(fingerprint))

    def fingerprint(self) -> bytes | None:
        """The fingerprint that was committed; None if there is none."""
        number = self.record.fingerprint
        return None if number is None else self._kept("fingerprint of the records", number)

    def _kept(self, what: str, number: int) -> bytes:
        place = self.record.place
        found = self._store.commit(lambda connection: chain.kept_secret(connection, place, number))
        if found is None:
            raise chain.tampered(f"the {what} that it keeps is not the one that was committed")
        return found

    def release(self, ending: str, certificate: str) -> None:
        """Commit that the release is made, after the ledger has closed its entry.

        A process that is killed between the two makes the same release when it goes on.
        """
        with self._store.turn():
            record = self.record
            if not record.complete:
                raise JournalError("the journal does not hold every outcome; nothing was released")
            if self._reservation is not None and not record.released:
                self._agree(record)
                self._reservation.close(record.place.name, record.place.head)
            self._write(["release", ending, certificate])

    def shred(self) -> None:
        """Reduce the study to its declaration and certificate, in the tables and in the bytes of the storage."""
        with self._store.turn():
            record, self._record = self.record, None
            content = ["shred", record.declaration, record.ending, record.certificate]
            self._commit(record, content, alone=True)
            self._token = None
            self._store.forget(everything=True)

    def rest(self) -> None:
        """Let other processes use the journal."""
        if not self._store.foreign:
            with self._store.turn():
                self._record = self._token = self._agreed = None
        if not self._shared:
            self._store.rest()


def refuse_without_ledger(record: Record) -> None:
    """Refuse to go on without a ledger with what was begun with one."""
    if LEDGER in (record.declaration or {}):
        raise LedgerError("this search was begun with a ledger: give the same ledger= to go on")


def _check_owner(connection: Connection, name: str, token: str | None) -> None:
    if chain.owner_of(connection, KIND, name) not in (None, "", token):
        raise JournalError(
            "another process has taken this study over since this one opened it, so this one commits nothing more: two "
            "processes that run one study could release two models. Let the other one finish; its release can be read "
            "from the journal"
        )


@contextlib.contextmanager
def keeping(journal: str | Path | Store | None, name: str) -> Iterator[Keep | None]:
    """Keep public numbers that take long to find in a journal, under the name of a search; None if it is in memory.

    A question is all that its number depends on, in public values; it may be asked before the search begins. The number
    is not trusted: what it is used for must be accounted for as if the user had given it.
    """
    if journal is None:
        yield None
        return
    store, table, name = open_store(journal), chain.solved, _validate.line(name=name)

    def solved(question: Mapping[str, Any], solve: Callable[[], float]) -> float:
        where = {"study": name, "question": json.dumps(question, sort_keys=True)}
        with store.turn():
            known = store.commit(lambda connection: connection.scalar(select(table.c.answer).filter_by(**where)))
            if known is None:
                known = float(solve())
                if store.writable:
                    store.hold(name)
                    store.commit(lambda connection: connection.execute(insert(table), {**where, "answer": known}))
            return float(known)

    try:
        yield solved
    finally:
        if not isinstance(journal, Store):
            store.rest()
