"""Journals, or a ledger, in one file, with SQLite; also in memory."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, event, inspect, select
from sqlalchemy.pool import StaticPool

from dphypo.errors import JournalError
from dphypo.errors.faults import JournalMissingError, JournalMovedError, JournalReadOnlyError
from dphypo.journal import files
from dphypo.journal.chain import book, metadata
from dphypo.journal.database import SILENT, leak

_WAIT_S = 2.0


class SQLite:
    """One file, mode 0600, write-ahead log, every commit on the disk before it returns; ``None`` keeps it in memory.

    The file is created with its mode, and SQLite gives its companion files the mode of the file: there is no moment
    at which another user could open any of them. While it is open, ``<file>-lock`` is locked: one process at a time,
    whatever else that process does with the file. Every transaction checks that the files are still those under their
    names, and that nobody else has written to them.
    """

    def __init__(self, path: Path | None, *, create: bool = True) -> None:
        self.path = None if path is None else Path(os.path.realpath(path))
        self._create = create  # whether to make a file that is missing
        self.durable = path is not None
        self._lock: files.FileLock | None = None
        self._connection: Connection | None = None
        self._identity: tuple[int, int] | None = None  # of the file, for as long as this object lives
        self._log: tuple[int, int] | None = None  # of the write-ahead log
        self._written: tuple[int, int] | None = None  # the file's size and time of change after our last commit

    @property
    def address(self) -> str | None:
        return None if self.path is None else files.shown(self.path)

    def connect(self, *, read_only: bool = False) -> Connection:
        if self.path is None:
            return _open(":memory:", read_only=False)
        files.refuse_other_kinds(self.path)
        if (read_only or not self._create) and not self.path.exists():
            raise JournalMissingError(files.shown(self.path))
        lock = files.FileLock(Path(f"{self.path}-lock"))
        try:
            lock.acquire(_WAIT_S)
        except JournalReadOnlyError:
            if not read_only:
                raise
        try:
            connection = self._connect_locked(self.path, read_only)
        except BaseException:
            lock.release()
            raise
        self._lock, self._connection = lock, connection
        return connection

    def _connect_locked(self, path: Path, read_only: bool) -> Connection:
        if self._identity is not None and _identity(path) != self._identity:
            raise JournalMovedError(f"the journal {files.shown(path)} was replaced or deleted")
        if not read_only:
            files.create_private(path)
        files.refuse_foreign(path)
        log = Path(f"{path}-wal")
        if read_only and not (log.exists() and log.stat().st_size):
            connection = _open(f"{path.as_uri()}?mode=ro&immutable=1", read_only=True)
        else:
            files.make_private(path)
            connection = _open(f"{path.as_uri()}?mode=rw", read_only=False)
        self._identity, self._log, self._written = _identity(path), None, None
        return connection

    def prepare(self, connection: Connection, kind: str) -> None:
        """A file holds journals or a ledger: a ledger is open for a moment, and a journal for as long as its runs."""
        with connection.begin():
            if not inspect(connection).has_table(book.name):
                metadata.create_all(connection)
            elif other := connection.scalar(select(book.c.kind).where(book.c.kind != kind).limit(1)):
                raise JournalError(f"{self.address} is a {other}, and not a {kind}: give another file name")

    def hold(self, connection: Connection, name: str) -> None:
        """The lock that was taken with the connection is enough."""

    @contextlib.contextmanager
    def guard(self, connection: Connection) -> Iterator[None]:
        if self.path is None:
            yield
            return
        self._check(self.path)
        if self._written is not None and _written(self.path) != self._written:
            raise JournalMovedError(f"the journal {files.shown(self.path)} was written by another program")
        try:
            yield
        finally:
            self._written = _written(self.path)
        self._check(self.path)  # what was just committed is where others find it
        self._log = _identity(Path(f"{self.path}-wal"))

    def _check(self, path: Path) -> None:
        if _identity(path) != self._identity:
            raise JournalMovedError(f"the journal {files.shown(path)} was replaced or deleted")
        if self._log is not None and _identity(Path(f"{path}-wal")) != self._log:
            raise JournalMovedError(f"the log {files.shown(path)}-wal of the journal was replaced or deleted")
        if self._lock is not None and self._lock.held and not self._lock.intact:
            # Another process may be writing: closing would write what this connection remembers over that.
            if self._connection is not None:
                leak(self._connection)
                self._connection = None
            raise JournalMovedError(f"the lock {files.shown(path)}-lock of the journal was replaced or deleted")

    def forget(self, connection: Connection, *, everything: bool) -> None:
        """``secure_delete`` has zeroed the deleted rows; this empties the write-ahead log, where they still are."""
        raw: Any = connection.connection.driver_connection
        if everything:
            raw.execute("VACUUM")
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def disconnect(self, connection: Connection) -> None:
        if self.path is None or self._connection is connection:
            connection.close()
            connection.engine.dispose()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        self._connection = None


def _identity(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None


def _written(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_size, found.st_mtime_ns
    return None


def _open(uri: str, *, read_only: bool) -> Connection:
    engine = create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(uri, uri=True, timeout=_WAIT_S, isolation_level=None, check_same_thread=False),
        poolclass=StaticPool,
        **SILENT,
    )
    if not read_only:
        event.listen(engine, "connect", _configure)
    begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine.connect()


def _configure(connection: Any, _record: Any) -> None:
    for pragma in (
        "locking_mode = EXCLUSIVE",  # before the log is touched: then it needs no shared-memory file
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "secure_delete = ON",
        "temp_store = MEMORY",  # VACUUM would write a copy of everything to a temporary file
        "wal_checkpoint(TRUNCATE)",  # a killed process may have left a beaten model in the log
    ):
        connection.execute(f"PRAGMA {pragma}")
