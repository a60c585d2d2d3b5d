"""The journal of one study: what is drawn is committed before it is used, and an outcome before it counts.

:class:`Record` is the state machine, and says which changes are possible. All of it is secret.

| impossible | because |
|---|---|
| a second T for a study | a study begins once, with T |
| run number T or beyond, a run drawn twice or out of order | run k is drawn after k others, and k < T |
| an outcome without a run, or two outcomes of a run | |
| an outcome both scored and failed, or neither, or an infinite score | |
| the model of a run without a score | the model comes with the score |
| a release before the last outcome, or a second one; anything after it | |
| a stop before the last outcome, or a second one; anything but the release after it | |
| a second fingerprint of the records, or one after the first run was drawn | |

The classes keep the ``repr`` of plain objects, which shows no field: tracebacks, notebooks and logs print ``repr``.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, select

from dphypo import _validate
from dphypo.accounting import Composition
from dphypo.accounting.calibrate import Keep
from dphypo.entropy import SEED_BITS
from dphypo.errors import JournalError, LedgerError
from dphypo.journal import store as _store
from dphypo.journal.ledger import LEDGER, Reservation
from dphypo.journal.store import Change, End, Store, open_store, tampered
from dphypo.mechanisms import Outcome

KIND = "journal"

MAX_ATTEMPTS = 3
"""A run whose process died this often, without a checkpoint in between, is a failure."""

KEEPS_MODELS = "keeps models"
"""In a declaration: whether the models of all runs are kept."""

KEY_BYTES = 32
"""The length of the key that every journal makes for fingerprints of its records."""

_SALT_BYTES = 16  # after a seed: its hash cannot be inverted

ERASED = -1
"""The value of a seed that was erased. No seed is negative."""


@dataclass(frozen=True, repr=False)
class Trial:
    """One run to execute: train with ``params`` and ``seed``, then report the outcome with ``tell``.

    λ, the seed and the key that breaks ties are drawn and committed before the run, so that a lost run is repeated with
    the same λ and seed.
    """

    params: dict[str, Any]
    seed: int
    number: int
    tie_key: bytes
    attempts: int = 1
    machine: str = ""  # where the latest attempt started, and since which boot; empty if not known
    steps: int = 0  # the step of the checkpoint from which the latest attempt started


def frozen(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as read from JSON, with tuples instead of lists: no parameter is a list."""

    def inside(value: Any) -> Any:
        return tuple(map(inside, value)) if isinstance(value, list) else value

    return {name: inside(value) for name, value in params.items()}


@dataclass(repr=False)
class Record:
    """The journal of one study, in memory: T, the runs in the order in which they were drawn, and their outcomes."""

    total: int | None = None
    trials: list[Trial] = field(default_factory=list)
    results: dict[int, Outcome] = field(default_factory=dict)
    best: int | None = None
    ending: str | None = None
    certificate: str | None = None
    declaration: dict[str, Any] | None = None  # public
    end: End = field(default_factory=lambda: End(KIND, ""))  # of the journal
    seeds: dict[int, int] = field(default_factory=dict)  # the number of the change that has the seed of a run
    models: dict[int, int] = field(default_factory=dict)  # the number of the change that has the model of a run
    records_key: bytes | None = None  # random, of this journal alone; None once it is shredded
    fingerprint: int | None = None  # the number of the change that has the fingerprint of the records
    stopped: bool = False  # whether the search ends with this part, before the parts that were declared after it

    @property
    def exists(self) -> bool:
        """Whether the study has begun."""
        return self.declaration is not None

    @property
    def released(self) -> bool:
        return self.ending is not None

    @property
    def shredded(self) -> bool:
        return self.total is None

    @property
    def complete(self) -> bool:
        """Whether all T runs have an outcome."""
        return len(self.results) == self.total

    @property
    def _secrets(self) -> set[int]:
        """The changes whose secrets the journal keeps: its key, seeds that were not erased, fingerprint, models."""
        single = (None if self.records_key is None else 0, self.fingerprint)
        return {*self.seeds.values(), *self.models.values(), *(one for one in single if one is not None)}

    @property
    def keeps_models(self) -> bool:
        """Whether the models of all runs are kept, as declared; otherwise that of the best run is."""
        return (self.declaration or {}).get(KEEPS_MODELS) is True

    def apply(self, change: Change, number: int) -> None:
        """Bring the record up to date with change ``number`` of its journal; refused if no study makes this change."""
        try:
            return self._apply(change, number)
        except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
            wrong = f"a change cannot be read ({type(error).__name__})"
        raise tampered(wrong)  # outside the handler: the error may quote secrets

    def replay(self, changes: list[Change]) -> None:
        """Bring a new record up to date; refused if no study makes these changes, or keeps these secrets."""
        for number, change in enumerate(changes):
            self.apply(change, number)
        kept = {number for number, change in enumerate(changes) if change.kept}
        _require(kept == self._secrets, "a seed or a model is missing, or was not erased")

    def _apply(self, change: Change, number: int) -> None:
        match change.content:
            case ["begin", dict() as declaration, int() as total]:
                _require(not self.exists and total >= 0, "its number of runs is missing, or is not a whole number")
                _require(change.secret is not None and len(change.secret) == KEY_BYTES, "its key is missing")
                self.declaration, self.total, self.records_key = declaration, total, change.secret
            case ["fingerprint"]:
                self._require_open()
                _require(change.kept and self.fingerprint is None and not self.trials, "a second set of records")
                self.fingerprint = number
            case ["shred", dict() as declaration, str() as ending, str() as certificate, *stopped]:
                _require(not self.exists and stopped in ([], ["stop"]), "a study was begun before it began")
                self.declaration, self.ending, self.certificate = declaration, ending, certificate
                self.stopped = bool(stopped)
            case ["claim", int() as one, dict() as params, str() as tie_key, int() as attempts, str() as machine]:
                self._require_open()
                _require(one == len(self.trials) < (self.total or 0), "a run is missing, or there is one too many")
                _require(0 <= attempts <= MAX_ATTEMPTS, "a run was begun too often")
                seed = ERASED if change.secret is None else int.from_bytes(change.secret[:-_SALT_BYTES], "big")
                self.seeds[one] = number
                self.trials.append(Trial(frozen(params), seed, one, bytes.fromhex(tie_key), attempts, machine))
            case ["attempt", int() as one, int() as attempts, str() as machine, *more]:
                self._require_open()
                _require(0 <= attempts <= MAX_ATTEMPTS and 0 <= one < len(self.trials), "a run was begun too often")
                steps = more[0] if len(more) == 1 and type(more[0]) is int else 0
                _require(not more or steps > 0, "a checkpoint has no step")
                self.trials[one] = replace(self.trials[one], attempts=attempts, machine=machine, steps=steps)
            case ["finish", int() as one, score, failure, bool() as best, bool() as erased, *more]:
                self._finish(one, score, failure, best, erased, more)
                if self.keeps_models and self.results[one].score is not None:
                    self.models[one] = number
                elif best:
                    self.models = {one: number}
            case ["stop"]:
                self._require_open()
                _require(self.complete, "a search stopped before the last outcome of a part")
                self.stopped = True
            case ["release", str() as ending, str() as certificate]:
                self._require_open(stopped=self.stopped)
                _require(self.complete, "a release was made before the last outcome")
                self.ending, self.certificate = ending, certificate
            case _:
                raise tampered("a change is of no known kind")

    def _finish(self, one: int, score: object, failure: object, best: bool, erased: bool, more: list[Any]) -> None:
        self._require_open()
        _require(0 <= one < len(self.trials) and one not in self.results, "an outcome has no run")
        scored = isinstance(score, (int, float)) and not isinstance(score, bool) and math.isfinite(score)
        _require(
            (scored and failure is None) or (score is None and isinstance(failure, str) and not best),
            "an outcome is neither a finite score nor a failure",
        )
        metrics = dict(more[0]) if more else {}  # of a run that has a score
        numbers = all(type(value) is float and math.isfinite(value) for value in metrics.values())
        _require(not more or (len(more) == 1 and numbers and scored), "a metric of a run is not a finite number")
        self.results[one] = Outcome(None, float(score) if scored else None, failure, metrics=metrics)  # type: ignore[arg-type]
        self.best = one if best else self.best
        if erased:
            self.trials[one] = replace(self.trials[one], seed=ERASED)
            self.seeds.pop(one, None)

    def _require_open(self, *, stopped: bool = False) -> None:
        is_open = self.exists and not self.released and self.stopped == stopped
        _require(is_open, "something was committed before the study, or after its end")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise tampered(otherwise)


@dataclass(frozen=True)
class Stop:
    """A search ends with a part before its last: the guarantee of the parts that were run, and their names."""

    guarantee: Composition
    made: tuple[str, ...]


class Journal:
    """One study in a store. Every method is one transaction; ``record`` is what has been committed.

    Every commit checks in the database that this process still has the study and that the journal ends where this
    process left it: a process that was replaced can commit nothing. With a reservation, the ledger learns of every
    commit before it is acted on.
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
        self._agreed: End | None = None  # what the ledger knows of

    def begin(self, declaration: dict[str, Any], draw: Callable[[], int]) -> dict[str, Any]:
        """Take the study for this process and return its declaration.

        If there is no study of this name, T = ``draw()`` is committed in the transaction that creates it: no study
        exists without its T, and none gets a second one. With a ledger, the key of the study is committed together with
        T, and its cost is reserved afterwards.
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
            return record.declaration

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
        """Commit a change that the record allows; return the record with it. The arguments are those of ``append``."""
        end, token, allowed = record.end, self._token or "", False
        after = Record() if alone else record
        with contextlib.suppress(JournalError):
            after.apply(Change(content, kept is not None, kept), end.length)
            allowed = True
        if not allowed:
            raise JournalError(_store.REFUSED)

        def work(connection: Connection) -> End:
            found = _store.append(connection, end, content, owner=token, kept=kept, erase=erase, alone=alone)
            if found is None:
                _check_owner(connection, self._name, self._token)
                raise tampered("it does not end where this process left it")
            return found

        after.end = self._store.commit(work)
        return after

    @property
    def record(self) -> Record:
        """What has been committed. It is read again after an interrupted or failed write, or a lost connection."""
        with self._store.turn():
            if self._record is None or not self._store.holds(self._name):
                self._record = self._load()
            return self._record

    def _load(self) -> Record:
        """Take the study, so that its previous owner can commit nothing more, and read it."""
        token = self._store.hold(self._name)

        def work(connection: Connection) -> Any:
            if token == self._token:  # taken before: this process must still be the owner
                _check_owner(connection, self._name, token)
            _store.take(connection, KIND, self._name, token)
            return _store.read(connection, KIND, self._name)

        found = self._store.commit(work)
        self._token = token
        record = Record(end=End(KIND, self._name))
        if found is not None:
            record.end, changes = found
            record.replay(changes)
        return record

    def _write(self, content: list[Any], kept: bytes | None = None, erase: Iterable[int] = ()) -> None:
        """Commit a change and tell the ledger. If anything goes wrong the record is read again."""
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
        elif self._agreed != record.end:
            self._reservation.agree(record.declaration or {}, None if record.released else record.end)
            self._agreed = record.end

    def claim(self, trial: Trial) -> None:
        """Commit a drawn λ with its seed and tie key, before the run."""
        content = ["claim", trial.number, dict(trial.params), trial.tie_key.hex(), trial.attempts, trial.machine]
        # The hash of a seed stays in the journal when the seed is erased: with random bytes it cannot be inverted.
        self._write(content, trial.seed.to_bytes(SEED_BITS // 8, "big") + secrets.token_bytes(_SALT_BYTES))

    def attempted(self, trial: Trial) -> None:
        """Commit that an attempt at this run starts: how many count, on which machine, and after which step."""
        steps = [trial.steps] if trial.steps else []
        self._write(["attempt", trial.number, trial.attempts, trial.machine, *steps])

    def finish(
        self, trial: Trial, outcome: Outcome, model: bytes | None, *, best: bool = True, erase_seed: bool = False
    ) -> None:
        """Commit the outcome of a run, with its model if it is the best so far or if all models are kept.

        Unless all are kept, the model that it beats is erased. With ``erase_seed`` the seed of the run is erased in the
        same transaction: its noise cannot be drawn again.
        """
        record = self.record
        erase = [] if model is None or record.keeps_models else list(record.models.values())
        if erase_seed and trial.number in record.seeds:
            erase.append(record.seeds[trial.number])
        score = None if outcome.score is None else float(outcome.score)
        more = [dict(outcome.metrics)] if outcome.metrics else []
        content = ["finish", trial.number, score, outcome.failure, model is not None and best, erase_seed, *more]
        self._write(content, model, erase)
        if erase:
            self._store.forget()

    def model(self, run: int | None = None) -> bytes:
        """The model of a run that is kept; by default that of the best so far."""
        wanted = self.record.best if run is None else run
        return self._kept("model", -1 if wanted is None else self.record.models.get(wanted, -1))

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
        end = self.record.end
        found = self._store.commit(lambda connection: _store.read_secret(connection, end, number))
        if found is None:
            raise tampered(f"the {what} that it keeps is not the one that was committed")
        return found

    def release(self, ending: str, certificate: str, stop: Stop | None = None) -> None:
        """Commit the release, after the ledger has closed its entry; ``stop`` if later parts will not be run.

        If the process is killed between the two, the same release is made on resume. That a search stopped is
        committed before its entry is settled: what is paid back can no longer be run.
        """
        with self._store.turn():
            record = self.record
            if not record.complete:
                raise JournalError("the journal does not hold every outcome; nothing was released")
            if stop is not None and not record.stopped:
                self._write(["stop"])
                record = self.record
            if self._reservation is not None and not record.released:
                self._agree(record)
                if stop is None:
                    self._reservation.close(record.end.name, record.end.head)
                else:
                    self._reservation.settle(record.end.name, record.end.head, stop.guarantee, stop.made)
            self._write(["release", ending, certificate])

    def settle(self, guarantee: Composition) -> None:
        """Charge the ledger for this alone: the search is refused before its first run. No journal can continue it.

        If the journal has runs (another version did not refuse the search), the entry stays charged in full.
        """
        record = self.record
        if self._reservation is not None and not record.trials:
            self._reservation.settle(record.end.name, record.end.head, guarantee, (record.end.name,))

    def shred(self) -> None:
        """Reduce the study to its declaration and certificate, in the tables and in the bytes of the storage."""
        with self._store.turn():
            record, self._record = self.record, None
            stopped = ["stop"] if record.stopped else []
            content = ["shred", record.declaration, record.ending, record.certificate, *stopped]
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
    """Refuse to resume without a ledger what was begun with one."""
    if LEDGER in (record.declaration or {}):
        raise LedgerError("this search was begun with a ledger: pass the same ledger= to resume it")


def _check_owner(connection: Connection, name: str, token: str | None) -> None:
    if _store.owner_of(connection, KIND, name) not in (None, "", token):
        raise JournalError(
            "another process has taken this study over since this one opened it, so this one commits nothing more: two "
            "processes that run one study could release two models. Let the other one finish; its release can be read "
            "from the journal"
        )


@contextlib.contextmanager
def keeping(journal: str | Path | Store | None, name: str) -> Iterator[Keep | None]:
    """Keep public numbers that take long to compute in a journal, under the name of a search; None if it is in memory.

    A question holds everything that its number depends on, in public values; it may be asked before the search begins.
    The number is not trusted: what it is used for must be accounted for as if the user had given it.
    """
    if journal is None:
        yield None
        return
    store, table, name = open_store(journal), _store.solved, _validate.line(name=name)

    def solved(question: Mapping[str, Any], solve: Callable[[], float]) -> float:
        where = {"study": name, "question": json.dumps(question, sort_keys=True)}
        with store.turn():
            known = store.commit(lambda connection: connection.scalar(select(table.c.answer).filter_by(**where)))
            if known is None:
                known = float(solve())
                store.hold(name)
                store.commit(lambda connection: connection.execute(insert(table), {**where, "answer": known}))
            return float(known)

    try:
        yield solved
    finally:
        if not isinstance(journal, Store):
            store.rest()
