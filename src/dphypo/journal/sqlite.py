"""Journals in an SQLite file."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, create_engine, event
from sqlalchemy.pool import StaticPool

from dphypo.journal.engine import SILENT
from dphypo.journal.errors import JournalError

_WAIT_S = 2.0


class SQLite:
    """One file, mode 0600, write-ahead log, every commit on the disk before it returns; ``None`` keeps it in memory.

    The file is created with its mode, and SQLite gives its companion files the mode of the file: there is no moment
    at which another user could open any of them. The connection holds the file alone (exclusive locking), which is
    also what keeps two processes from making the same run; the lock ends with the process.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.durable = path is not None

    def connect(self) -> Connection:
        if self.path is not None:
            _create_private(self.path)
        engine = create_engine(
            URL.create("sqlite", database=None if self.path is None else str(self.path)),
            poolclass=StaticPool,
            **SILENT,
            connect_args={"timeout": _WAIT_S, "check_same_thread": False},
        )
        event.listen(engine, "connect", _configure)
        event.listen(engine, "begin", _begin)
        return engine.connect()

    def hold(self, connection: Connection, name: str) -> None:
        """The exclusive lock on the file, taken by the first transaction, is enough."""

    def forget(self, connection: Connection, *, everything: bool) -> None:
        """``secure_delete`` has zeroed the deleted rows; this empties the write-ahead log, where they still are."""
        raw: Any = connection.connection.driver_connection
        if everything:
            raw.execute("VACUUM")
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _create_private(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    except FileExistsError:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(0o600)
        return
    except OSError as error:
        raise JournalError(f"the journal {path} cannot be created: {error.strerror}") from None
    os.close(descriptor)
    # The file's name must survive the loss of power as well as its contents. Not every file system can do this.
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _configure(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions are begun and ended here, not guessed by the driver
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


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
