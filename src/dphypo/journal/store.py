"""An open database with the tables of journals and ledgers in it."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, inspect, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from dphypo import _validate
from dphypo.errors import JournalError, JournalReadOnlyError
from dphypo.journal import chain
from dphypo.journal.chain import tampered
from dphypo.journal.database import Beating, Database, MovedError, inherited, leak, missing, translate
from dphypo.journal.postgresql import PostgreSQL
from dphypo.journal.sqlite import SQLite

R = TypeVar("R")


class Store:
    """A database that holds journals or a ledger, and the one connection through which a process uses it.

    Threads may share it: their transactions come one after the other. A forked child may not use what its parent has
    open.
    """

    def __init__(self, database: Database, *, read_only: bool = False, kind: str = "journal") -> None:
        self._database = database
        self._read_only, self._kind = read_only, kind
        self._connection: Connection | None = None
        self._process: int | None = None  # which has opened it
        self._held: dict[str, str] = {}  # the token under which this process has each study
        self._end = threading.Event()  # of the signs of life
        self._lock = threading.RLock()
        inherited.add(self)

    @property
    def address(self) -> str | None:
        """Where it is, in words that may be printed; None if it is in memory."""
        return self._database.address

    def beside(self, ending: str) -> Path | None:
        """A file beside it, for what is as secret as it is; None if it is not a file."""
        path = self._database.path if isinstance(self._database, SQLite) else None
        return None if path is None else path.with_name(path.name + ending)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """A block in which no other thread uses the store. Refused in a process that was forked off."""
        if self.foreign:  # before the lock, which a thread of the parent may have held for ever
            raise JournalError(
                "this process was forked from the one that has the journal open, and must not use it: commits of both "
                "would damage it or be lost. Call ask and tell in the process that opened it; a child that a run forks "
                "must end by os._exit(), also when it fails",
                "another process has opened it",
            )
        with self._lock:
            yield

    @property
    def foreign(self) -> bool:
        """Whether this process was forked from the one that opened the store."""
        return self._process not in (None, os.getpid())

    @property
    def writable(self) -> bool:
        """Whether it was opened for writing, and could be."""
        return self._use(lambda connection: not connection.info.get("read only", False))

    def commit(self, work: Callable[[Connection], R]) -> R:
        """Do ``work`` in one transaction. On return it is on the disk; on an error nothing of it is."""

        def transaction(connection: Connection) -> R:
            with self._database.guard(connection), connection.begin():
                return work(connection)

        return self._use(transaction)

    def names(self) -> list[str]:
        """The studies in it."""
        statement = select(chain.book.c.name).where(chain.book.c.kind == "journal")
        found: list[object] = self.commit(lambda connection: list(connection.scalars(statement)))
        if not all(isinstance(name, str) for name in found):
            raise tampered("the name of a study cannot be read")
        return [str(name) for name in found]

    def hold(self, name: str) -> str:
        """Take a study for this process; the token says so in every commit."""
        with self.turn():
            if name not in self._held:
                if self.writable:
                    self._use(lambda connection: self._database.hold(connection, name))
                self._held[name] = secrets.token_hex(16)
                if isinstance(self._database, Beating) and self.writable and len(self._held) == 1:
                    self._end = threading.Event()
                    arguments = (weakref.ref(self), self._end, self._database.beat_s)
                    threading.Thread(target=_keep_beating, args=arguments, name="dphypo journal", daemon=True).start()
            return self._held[name]

    def beat(self) -> None:
        """Give a sign of life for the studies that are held."""
        with self.turn(), contextlib.suppress(JournalError):  # whoever commits next is told that the database is gone
            database = self._database
            if isinstance(database, Beating) and self._connection is not None and self._held:
                self.commit(lambda connection: database.beat(connection, list(self._held)))

    def holds(self, name: str) -> bool:
        """Whether this process has had the study without a break: the hold ends with the connection."""
        return name in self._held

    def forget(self, *, everything: bool = False) -> None:
        """Leave no bytes of deleted rows."""

        def guarded(connection: Connection) -> None:
            with self._database.guard(connection):
                self._database.forget(connection, everything=everything)

        self._use(guarded)

    def _use(self, work: Callable[[Connection], R]) -> R:
        failure: JournalError
        with self.turn():
            try:
                return work(self._open())
            except MovedError:
                self.close()
                raise
            except (SQLAlchemyError, sqlite3.Error) as error:
                failure = translate(error)
                if isinstance(error, DBAPIError) and error.connection_invalidated:
                    self.close()  # the hold on the study went with the connection: it must be taken again
            except UnicodeDecodeError:
                failure = tampered("it holds text that is not UTF-8")
        # Raised here, outside the handler, so that the driver's error, which quotes rows, is not attached to it.
        raise failure

    def _open(self) -> Connection:
        if self._connection is None:
            try:
                connection = self._database.connect(read_only=self._read_only)
                read_only = self._read_only
            except JournalReadOnlyError:
                connection, read_only = self._database.connect(read_only=True), True
            try:
                connection.info["read only"] = read_only
                if not read_only:
                    self._database.prepare(connection, self._kind)
                elif not inspect(connection).has_table(chain.book.name):
                    raise missing(self.address or "memory")
                connection.rollback()
            except BaseException:
                self._database.disconnect(connection)
                raise
            self._connection, self._process = connection, os.getpid()
        return self._connection

    def rest(self) -> None:
        """Let other processes use the database, unless it would be lost with the connection."""
        if self._database.durable:
            self.close()

    def close(self) -> None:
        """End the connection and with it the hold on the studies. In a forked child the parent's stay as they are."""
        if self.foreign:
            self._connection = self._process = None
            self._held = {}
            return
        with self._lock:
            self._held.clear()
            self._end.set()
            if self._connection is not None:
                connection, self._connection, self._process = self._connection, None, None
                self._database.disconnect(connection)

    def leave(self) -> None:
        """In a forked child: keep the parent's connection from being written to or closed, and reset the lock."""
        self._lock = threading.RLock()  # a thread of the parent may have held it
        if self._connection is not None:
            leak(self._connection)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be shutting down
            self.close()


def _keep_beating(store: weakref.ref[Store], end: threading.Event, every_s: float) -> None:
    while not end.wait(every_s) and (found := store()) is not None:
        found.beat()
        del found


def open_store(where: str | Path | Store | None, *, read_only: bool = False, kind: str = "journal") -> Store:
    """The store for what a user calls a journal: a path, a URL, an open store, or None (memory).

    With ``read_only`` nothing at that place is created or changed. ``kind`` is "journal" or "ledger"; a ledger is not
    created by being opened.
    """
    if isinstance(where, Store):
        return where
    database: Database = SQLite(None) if where is None else find_database(where, kind)
    return Store(database, read_only=read_only and where is not None, kind=kind)


def find_database(where: str | Path, kind: str = "journal") -> Database:
    """The database at a path or a URL."""
    given: object = where
    remedy = "give a file name or a URL such as postgresql://user@host/database, or None to keep it in memory"
    if not isinstance(given, (str, Path)) or not str(given).strip() or "\0" in str(given) or given == Path():
        raise _validate.fail(kind, given, remedy)
    text = str(where)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9_.-]+)(\+\w+)?:/", text)
    if scheme is None and (isinstance(where, Path) or "://" not in text):
        return SQLite(Path(where), create=kind == "journal")
    with contextlib.suppress(ArgumentError, ValueError):  # ValueError: a port that is not a number
        url = make_url(text)
        if url.get_backend_name() == "sqlite" and url.database:
            return SQLite(Path(url.database), create=kind == "journal")
        if url.get_backend_name() == "postgresql":
            return PostgreSQL(url)
    raise _validate.fail(kind, "(not shown)", remedy)
