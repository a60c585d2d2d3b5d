"""What a database must do to hold journals and ledgers, and how one is found by the scheme of its URL."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from sqlalchemy import URL, Connection

from dphypo._registry import Registry

SILENT: dict[str, Any] = {"hide_parameters": True, "logging_name": "dphypo", "pool_logging_name": "dphypo"}
"""How to make an SQLAlchemy engine that logs nothing: its log would show rows, and their number shows T."""

for _logger in ("engine.Engine", "pool.impl.StaticPool", "pool.impl.NullPool"):
    logging.getLogger(f"sqlalchemy.{_logger}.dphypo").setLevel(logging.CRITICAL + 1)


class Database(Protocol):
    """A database that a store can stand on. :func:`dphypo.testing.check_store` tests one."""

    @property
    def durable(self) -> bool:
        """Whether what is committed outlives the connection."""
        ...

    @property
    def address(self) -> str | None:
        """Where it is, in words that may be printed (no password); None if it is in memory."""
        ...

    def connect(self, *, read_only: bool = False) -> Connection:
        """One connection on which a commit that has returned survives the loss of power.

        With ``read_only`` nothing is created, converted or changed. Without, ``JournalReadOnlyError`` if it cannot be
        written.
        """
        ...

    def prepare(self, connection: Connection, kind: str) -> None:
        """Create the tables that are missing, safely when several processes do so at once.

        ``kind`` is "journal" or "ledger"; a database for one user may refuse to hold both.
        """
        ...

    def hold(self, connection: Connection, name: str) -> None:
        """Take the study for this process until the connection ends, however it ends.

        ``JournalInUseError`` if another process has it.
        """
        ...

    def guard(self, connection: Connection) -> AbstractContextManager[None]:
        """Wraps every transaction: ``JournalMovedError`` if what is open is no longer what others find there."""
        ...

    def forget(self, connection: Connection, *, everything: bool) -> None:
        """Called outside a transaction after rows were deleted: leave none of their bytes behind.

        With ``everything``, rewrite the storage: a study was reduced to its certificate.
        """
        ...

    def disconnect(self, connection: Connection) -> None:
        """End a connection and what it holds."""
        ...


@runtime_checkable
class Beating(Protocol):
    """A database that cannot see whether a process that holds a study lives, and wants a sign of life now and then.

    A lock of the operating system, as on SQLite's file, needs none: it ends with its process.
    """

    @property
    def beat_s(self) -> float:
        """How often, in seconds."""
        ...

    def beat(self, connection: Connection, names: Iterable[str]) -> None:
        """Give a sign of life for studies that are held."""
        ...


class FromUrl(Protocol):
    """What makes a database of a URL: a class with one argument, or a function."""

    def __call__(self, url: URL, /) -> Database: ...


stores: Registry[FromUrl] = Registry("dphypo.journal")
"""Databases by the scheme of their URL. ``@stores.register("mysql")`` on a class of your own adds one."""


def leak(connection: Connection) -> None:
    """Keep a connection from ever being closed: the file or the session is another process's to write to."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
