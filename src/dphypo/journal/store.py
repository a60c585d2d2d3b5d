"""An open database with the journal's tables in it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from dphypo import _validate
from dphypo.journal.engine import Engine
from dphypo.journal.errors import JournalError, translate
from dphypo.journal.postgresql import PostgreSQL
from dphypo.journal.schema import metadata
from dphypo.journal.sqlite import SQLite

R = TypeVar("R")


class Store:
    """A database that holds journals, and the one connection through which a process uses it.

    >>> store = Store(SQLite(None))
    >>> store.commit(lambda connection: connection.exec_driver_sql("SELECT 1").scalar())
    1
    >>> store.close()
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None
        self._held: set[str] = set()

    def commit(self, work: Callable[[Connection], R]) -> R:
        """Do ``work`` in one transaction. On return it is on the disk; on an error nothing of it is."""

        def transaction(connection: Connection) -> R:
            with connection.begin():
                return work(connection)

        return self._use(transaction)

    def hold(self, name: str) -> None:
        """Take a study for this process."""
        if not self.holds(name):
            self._use(lambda connection: self._engine.hold(connection, name))
            self._held.add(name)

    def holds(self, name: str) -> bool:
        """Whether this process has had the study without a break: the hold ends with the connection."""
        return name in self._held

    def forget(self, *, everything: bool = False) -> None:
        """Leave no bytes of deleted rows."""
        self._use(lambda connection: self._engine.forget(connection, everything=everything))

    def _use(self, work: Callable[[Connection], R]) -> R:
        failure: JournalError
        try:
            return work(self._open())
        except (SQLAlchemyError, sqlite3.Error) as error:
            failure = translate(error)
            if getattr(error, "connection_invalidated", False):
                self.close()  # the hold on the study went with the connection: it must be taken again
        # Raised here, outside the handler, so that the driver's error, which quotes rows, is not attached to it.
        raise failure

    def _open(self) -> Connection:
        if self._connection is None:
            connection = self._engine.connect()
            try:
                with connection.begin():
                    metadata.create_all(connection)
            except BaseException:
                _end(connection)
                raise
            self._connection = connection
        return self._connection

    def rest(self) -> None:
        """Let other processes use the database, unless it would be lost with the connection."""
        if self._engine.durable:
            self.close()

    def close(self) -> None:
        """End the connection and with it the hold on the study."""
        self._held.clear()
        if self._connection is not None:
            connection, self._connection = self._connection, None
            _end(connection)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be shutting down
            self.close()


def _end(connection: Connection) -> None:
    connection.close()
    connection.engine.dispose()


def open_store(where: str | Path | Store | None) -> Store:
    """The store for what a user calls a journal: a path, a ``postgresql://`` URL, an open store, or None (memory)."""
    if isinstance(where, Store):
        return where
    if where is None:
        return Store(SQLite(None))
    if isinstance(where, Path) or "://" not in where:
        return Store(SQLite(Path(where).absolute()))
    try:
        url = make_url(where)
    except ArgumentError:
        url = None
    if url is not None and url.get_backend_name() == "postgresql":
        return Store(PostgreSQL(url))
    if url is not None and url.get_backend_name() == "sqlite" and url.database:
        return Store(SQLite(Path(url.database).absolute()))
    raise _validate.fail(
        "journal", "(not shown)", "give a file name, a postgresql:// URL, or None to keep it in memory"
    )
