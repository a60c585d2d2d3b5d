"""What a database must do to hold journals and ledgers, how one is found by its URL, and what it says when it fails."""

from __future__ import annotations

import ctypes
import logging
import os
import sqlite3
import weakref
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from dphypo.errors import JournalError, JournalInUseError, JournalMissingError, JournalReadOnlyError

SILENT: dict[str, Any] = {"hide_parameters": True, "logging_name": "dphypo", "pool_logging_name": "dphypo"}
"""How to make an SQLAlchemy engine that logs nothing: its log would show rows, and their number shows T."""

for _logger in ("engine.Engine", "pool.impl.StaticPool", "pool.impl.NullPool"):
    logging.getLogger(f"sqlalchemy.{_logger}.dphypo").setLevel(logging.CRITICAL + 1)


class Database(Protocol):
    """A database that a store can stand on."""

    @property
    def durable(self) -> bool:
        """Whether what is committed outlives the connection."""

    @property
    def address(self) -> str | None:
        """Where it is, in words that may be printed (no password); None if it is in memory."""

    def connect(self, *, read_only: bool = False) -> Connection:
        """One connection on which a commit that has returned survives the loss of power.

        With ``read_only`` nothing is created, converted or changed. Without, ``JournalReadOnlyError`` if it cannot be
        written.
        """

    def prepare(self, connection: Connection, kind: str) -> None:
        """Create the tables that are missing, safely when several processes do so at once.

        ``kind`` is "journal" or "ledger"; a database for one user may refuse to hold both.
        """

    def hold(self, connection: Connection, name: str) -> None:
        """Take the study for this process until the connection ends, however it ends.

        ``JournalInUseError`` if another process has it.
        """

    def guard(self, connection: Connection) -> AbstractContextManager[None]:
        """Wraps every transaction: ``MovedError`` if what is open is no longer what others find there."""

    def forget(self, connection: Connection, *, everything: bool) -> None:
        """Called outside a transaction after rows were deleted: leave none of their bytes behind.

        With ``everything``, rewrite the storage: a study was reduced to its certificate.
        """

    def disconnect(self, connection: Connection) -> None:
        """End a connection and what it holds."""


@runtime_checkable
class Beating(Protocol):
    """A database that cannot see whether the process that holds a study is alive, and needs a heartbeat.

    A lock of the operating system, as on SQLite's file, needs none: it ends with its process.
    """

    @property
    def beat_s(self) -> float:
        """How often, in seconds."""

    def beat(self, connection: Connection, names: Iterable[str]) -> None:
        """Give a sign of life for studies that are held."""


def leak(connection: Connection) -> None:
    """Keep a connection open for ever: closing it would write to another process's file or session."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


inherited: weakref.WeakSet[Any] = weakref.WeakSet()
"""What is open: in a forked child, the ``leave`` of each leaves the parent's as it is."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [one.leave() for one in list(inherited)])


class MovedError(JournalError):
    """What is open is no longer what others find at the journal's address."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} while the study was open: nothing was released, and nothing more is committed. The study belongs "
            "to the file that was there before: put that file back under its name and run the study again. A new file "
            "would start a new study, whose guarantee composes with this one's"
        )


def in_use() -> JournalInUseError:
    """The error for a journal that another process holds."""
    return JournalInUseError(
        "the journal is in use by another process, or by another open study in this one. Only one process runs a study "
        "at a time (it may have many workers): if a run were executed twice, the faster of two outcomes would count. "
        "Wait for the other one, or stop or close it, and try again",
        "another process uses it",
    )


def not_writable() -> JournalReadOnlyError:
    """The error for a journal that can only be read."""
    return JournalReadOnlyError(
        "the journal cannot be written: its file, its folder or its file system is read-only. A release that it holds "
        "can be read; to resume a study, copy the file to a writable folder",
        "it cannot be written",
    )


def missing(address: str) -> JournalMissingError:
    """The error for an address at which there is no journal."""
    return JournalMissingError(f"there is no journal at {address}: give the journal with which the study was run")


REFUSED = "the journal refused a change that would contradict what it holds; nothing was changed"
_SQLITE = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk could not be read or written",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is no database",
    sqlite3.SQLITE_CANTOPEN: "the file or its folder cannot be opened",
    sqlite3.SQLITE_TOOBIG: "the model is larger than the database can hold in one piece",
}


def translate(error: SQLAlchemyError | sqlite3.Error) -> JournalError:
    """The same failure in words that hold nothing of the rows: driver messages quote them."""
    cause = getattr(error, "orig", error)
    code = getattr(cause, "sqlite_errorcode", -1) & 0xFF  # 255, which is none of SQLite's, elsewhere
    state = getattr(cause, "sqlstate", None)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return in_use()
    if code == sqlite3.SQLITE_READONLY or state == "25006":
        return not_writable()
    if isinstance(error, IntegrityError):
        return JournalError(REFUSED)
    if hasattr(cause, "sqlite_errorname"):
        reason = _SQLITE.get(code, cause.sqlite_errorname)
    elif isinstance(error, DBAPIError) and error.connection_invalidated:
        reason = "the connection to the database was lost"
    elif state is not None:
        reason = f"PostgreSQL error {state}"
    elif type(cause).__name__ == "OperationalError":
        reason = "the database cannot be reached, or refuses the user or the password"
    else:
        reason = type(cause).__name__
    return JournalError(
        f"the journal could not be used: {reason}. Everything committed before is safe: put it right and run the same "
        "study again; it goes on where it was",
        reason,
    )
