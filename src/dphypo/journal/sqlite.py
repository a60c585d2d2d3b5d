"""Journals, or a ledger, in one file, with SQLite; also in memory. A file of another kind is left exactly as it is.

SQLite's own locks are POSIX record locks, which end when the process closes *any* descriptor of the file: a backup
thread would let a second process in. ``flock`` on a file of its own has no such gap.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, event, inspect, select
from sqlalchemy.pool import StaticPool

from dphypo.errors import JournalError, JournalInUseError
from dphypo.errors.faults import JournalMissingError, JournalMovedError, JournalReadOnlyError
from dphypo.journal.chain import OLD, UNREADABLE, book, metadata
from dphypo.journal.database import SILENT, leak

try:
    import fcntl
except ImportError:  # pragma: no cover - not a POSIX system
    fcntl = None  # type: ignore[assignment]

_WAIT_S = 2.0
_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


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
        self._lock: FileLock | None = None
        self._connection: Connection | None = None
        self._identity: tuple[int, int] | None = None  # of the file, for as long as this object lives
        self._log: tuple[int, int] | None = None  # of the write-ahead log
        self._written: tuple[int, int] | None = None  # the file's size and time of change after our last commit

    @property
    def address(self) -> str | None:
        """The path, unless it may be a mistyped URL with a password in it."""
        return None if self.path is None else "(not shown)" if "@" in str(self.path) else str(self.path)

    def connect(self, *, read_only: bool = False) -> Connection:
        if self.path is None:
            return _open(":memory:", read_only=False)
        self._refuse_other_kinds(self.path)
        if (read_only or not self._create) and not self.path.exists():
            raise JournalMissingError(str(self.address))
        lock = FileLock(Path(f"{self.path}-lock"))
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
            raise JournalMovedError(f"the journal {self.address} was replaced or deleted")
        if not read_only:
            self._create_private(path)
        self._refuse_foreign(path)
        log = Path(f"{path}-wal")
        if read_only and not (log.exists() and log.stat().st_size):
            connection = _open(f"{path.as_uri()}?mode=ro&immutable=1", read_only=True)
        else:
            self._make_private(path)
            connection = _open(f"{path.as_uri()}?mode=rw", read_only=False)
        self._identity, self._log, self._written = _identity(path), None, None
        return connection

    def _refuse_other_kinds(self, path: Path) -> None:
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError:
            return
        except OSError as error:
            raise JournalError(f"{self.address} cannot be opened: {error.strerror}") from None
        if stat.S_ISDIR(mode):
            raise JournalError(f"{self.address} is a folder: give the name of a file in it")
        if not stat.S_ISREG(mode):
            raise JournalError(f"{self.address} is not an ordinary file: give the name of one")

    def _create_private(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except FileExistsError:
            return
        except OSError as error:
            raise JournalError(f"{self.address} cannot be created: {error.strerror}") from None
        os.close(descriptor)
        keep_name(path)

    def _refuse_foreign(self, path: Path) -> None:
        """Before anything is changed: a file that holds something else is left exactly as it is."""
        what = None
        try:
            with open(path, "rb") as file:
                header = file.read(16)
            if not header:
                return
            if header != b"SQLite format 3\0":  # SQLite would take a short file for an empty one, and write over it
                raise sqlite3.DatabaseError
            with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
                names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if OLD in names or {"about", "entries"} <= names:
                what = f"it was written by dphypo 0.1 or 0.2, {UNREADABLE}"
            elif names and book.name not in names:
                what = "it is a database of another program"
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_NOTADB) & 0xFF != sqlite3.SQLITE_NOTADB:
                return  # damaged: what opens it says so
            what = "it is a file of another kind"
        except OSError as error:
            what = f"it cannot be read ({error.strerror})"
        if what is not None:
            remedy = "It was not changed; give another file name"
            raise JournalError(f"{self.address} cannot be used: {what}. {remedy}", what)

    def _make_private(self, path: Path) -> None:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            try:
                path.chmod(0o600)
            except OSError as error:
                raise JournalError(
                    f"others may read the journal {self.address}, and its mode cannot be changed ({error.strerror}): "
                    "let its owner make it private (chmod 600), or give another file name"
                ) from None

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
            raise JournalMovedError(f"the journal {self.address} was written by another program")
        try:
            yield
        finally:
            self._written = _written(self.path)
        self._check(self.path)  # what was just committed is where others find it
        self._log = _identity(Path(f"{self.path}-wal"))

    def _check(self, path: Path) -> None:
        if _identity(path) != self._identity:
            raise JournalMovedError(f"the journal {self.address} was replaced or deleted")
        if self._log is not None and _identity(Path(f"{path}-wal")) != self._log:
            raise JournalMovedError(f"the log {self.address}-wal of the journal was replaced or deleted")
        if self._lock is not None and self._lock.lost:
            # Another process may be writing: closing would write what this connection remembers over that.
            if self._connection is not None:
                leak(self._connection)
                self._connection = None
            raise JournalMovedError(f"the lock {self.address}-lock of the journal was replaced or deleted")

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


def keep_name(path: Path) -> None:
    """The file's name must survive the loss of power as well as its contents. Not every file system can do this."""
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class FileLock:
    """An exclusive lock, kept on the file ``path``, which exists while the lock is held."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self, wait_s: float) -> None:
        """Take the lock, waiting a while for whoever has it."""
        if fcntl is None:  # pragma: no cover
            raise JournalError("a journal in a file needs a POSIX system: give a postgresql:// URL")
        deadline = time.monotonic() + wait_s
        while not self._try():
            if time.monotonic() > deadline:
                raise JournalInUseError
            time.sleep(0.02)

    def _try(self) -> bool:
        try:
            descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise JournalReadOnlyError from None
            raise JournalError(f"the journal cannot be created: {error.strerror}; its folder must exist") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return False
            remedy = "keep it on a local disk, or in PostgreSQL"
            raise JournalError(f"the journal's file system cannot lock files ({error.strerror}): {remedy}") from None
        self._descriptor = descriptor
        if self.lost:  # the holder before us has removed this file
            self.drop()
            return False
        _held.add(self)
        return True

    @property
    def lost(self) -> bool:
        """Whether it is held, and others no longer find the locked file under its name."""
        if self._descriptor is None:
            return False
        try:
            return not os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except OSError:
            return True

    def release(self) -> None:
        """Remove the file and give up the lock."""
        if self._descriptor is not None and not self.lost:
            with contextlib.suppress(OSError):
                self._path.unlink()
        self.drop()

    def drop(self) -> None:
        """Close our descriptor alone. In a forked child this leaves the parent's lock as it is."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _drop_all() -> None:
    """A forked child that outlives its parent must not keep the parent's lock."""
    for lock in list(_held):
        lock.drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_all)
