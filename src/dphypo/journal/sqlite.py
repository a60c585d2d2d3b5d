"""Journals, or a ledger, in one file, with SQLite; also in memory. A file of another kind is left exactly as it is.

SQLite's own locks are POSIX record locks, which end when the process closes *any* descriptor of the file: a backup
thread would let a second process in. ``flock`` on a file of its own has no such gap.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, event, inspect, select
from sqlalchemy.pool import StaticPool

from dphypo.errors import JournalError, JournalReadOnlyError
from dphypo.journal.chain import OLD, UNREADABLE, book, metadata
from dphypo.journal.database import SILENT, MovedError, in_use, inherited, leak, missing, not_writable

try:
    import fcntl
except ImportError:  # pragma: no cover - not a POSIX system
    fcntl = None  # type: ignore[assignment]

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
        self._lock: FileLock | None = None
        self._leaked: Connection | None = None  # must not be closed
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
        try:
            return self._connect(self.path, read_only)
        except JournalError:  # one of them is an OSError too
            raise
        except OSError as error:
            remedy = "Give a file of your own, which others cannot read, in a folder that exists"
            raise JournalError(
                f"{self.address} cannot be used: {error.strerror}. {remedy}", str(error.strerror)
            ) from None

    def _connect(self, path: Path, read_only: bool) -> Connection:
        if path.is_dir():
            raise JournalError(f"{self.address} is a folder: give the name of a file in it")
        if path.exists() and not path.is_file():
            raise JournalError(f"{self.address} is not an ordinary file: give the name of one")
        if (read_only or not self._create) and not (path.exists() and path.stat().st_size):
            raise missing(str(self.address))
        lock = FileLock(Path(f"{path}-lock"))
        try:
            lock.acquire(_WAIT_S)
        except JournalReadOnlyError:
            if not read_only:
                raise
            if _has_log(path) and os.access(path.parent, os.W_OK):  # to read it without a lock could remove it
                raise in_use() from None
        try:
            connection = self._connect_locked(path, read_only)
        except BaseException:
            lock.release()
            raise
        self._lock = lock
        return connection

    def _connect_locked(self, path: Path, read_only: bool) -> Connection:
        if self._identity is not None and _identity(path) != self._identity:
            raise MovedError(f"the journal {self.address} was replaced or deleted")
        if not read_only:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
                keep_name(path)
        if (what := _foreign(path, empty=self._create)) is not None:
            remedy = "It was not changed; give another file name"
            raise JournalError(f"{self.address} cannot be used: {what}. {remedy}", what)
        if not read_only and path.stat().st_mode & 0o077:
            path.chmod(0o600)
        # A log is read into memory, without SQLite's locks: they need a file that can be written.
        only = "ro&vfs=unix-none" if _has_log(path) else "ro&immutable=1"
        connection = _open(f"{path.as_uri()}?mode={only if read_only else 'rw'}", read_only=read_only)
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
        self._check(self.path, connection)
        if self._written is not None and _written(self.path) != self._written:
            raise MovedError(f"the journal {self.address} was written by another program")
        try:
            yield
        finally:
            self._written = _written(self.path)
        self._check(self.path, connection)  # what was just committed is where others find it
        self._log = _identity(Path(f"{self.path}-wal"))

    def _check(self, path: Path, connection: Connection) -> None:
        if _identity(path) != self._identity:
            raise MovedError(f"the journal {self.address} was replaced or deleted")
        if self._log is not None and _identity(Path(f"{path}-wal")) != self._log:
            raise MovedError(f"the log {self.address}-wal of the journal was replaced or deleted")
        if self._lock is not None and self._lock.lost:
            # Another process may be writing: closing would write what this connection remembers over that.
            leak(connection)
            self._leaked = connection
            raise MovedError(f"the lock {self.address}-lock of the journal was replaced or deleted")

    def forget(self, connection: Connection, *, everything: bool) -> None:
        """``secure_delete`` has zeroed the deleted rows; this empties the write-ahead log, where they still are."""
        raw: Any = connection.connection.driver_connection
        if everything:
            raw.execute("VACUUM")
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def disconnect(self, connection: Connection) -> None:
        if connection is not self._leaked:
            connection.close()
            connection.engine.dispose()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _has_log(path: Path) -> bool:
    log = Path(f"{path}-wal")
    return log.exists() and log.stat().st_size > 0


def _foreign(path: Path, *, empty: bool) -> str | None:
    """What a file is that holds neither a journal nor a ledger, nor is ``empty``, if that is allowed.

    It is left exactly as it is.
    """
    with open(path, "rb") as file:
        header = file.read(16)
    if not header:
        return None
    if header != b"SQLite format 3\0":  # SQLite would take a short file for an empty one, and write over it
        return "it is a file of another kind"
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError as error:
        other = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_NOTADB) & 0xFF == sqlite3.SQLITE_NOTADB
        return "it is a file of another kind" if other else None  # damaged: what opens it says so
    if OLD in names or {"about", "entries"} <= names:
        return f"it was written by dphypo 0.1 or 0.2, {UNREADABLE}"
    return None if book.name in names or (empty and not names) else "it is a database of another program"


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
    event.listen(engine, "connect", lambda connection, _: _configure(connection, read_only))
    begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine.connect()


def _configure(connection: Any, read_only: bool) -> None:
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # before the log is touched: no shared-memory file is needed
    connection.execute("PRAGMA temp_store = MEMORY")  # VACUUM would write a copy of everything to a temporary file
    if read_only:
        return
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "secure_delete = ON",
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
        inherited.add(self)  # a forked child that outlives its parent must not keep the parent's lock

    def acquire(self, wait_s: float) -> None:
        """Take the lock, waiting a while for whoever has it."""
        if fcntl is None:  # pragma: no cover
            raise JournalError("a journal in a file needs a POSIX system: give a postgresql:// URL")
        deadline = time.monotonic() + wait_s
        while not self._try():
            if time.monotonic() > deadline:
                raise in_use()
            time.sleep(0.02)

    def _try(self) -> bool:
        try:
            self._descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.leave()
            return False
        except OSError as error:
            opened = self._descriptor is not None
            self.leave()
            if opened:
                remedy = "keep it on a local disk, or in PostgreSQL"
                raise JournalError(
                    f"the journal's file system cannot lock files ({error.strerror}): {remedy}"
                ) from None
            if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                if self._is_held():
                    return False
                raise not_writable() from None
            raise
        if self.lost:  # the holder before us has removed this file
            self.leave()
            return False
        return True

    def _is_held(self) -> bool:
        """Whether another process has the lock, where no lock can be taken: on a disk that cannot be written."""
        with contextlib.suppress(FileNotFoundError, PermissionError):
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(descriptor)
        return False

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
        self.leave()

    def leave(self) -> None:
        """Close our descriptor alone. In a forked child this leaves the parent's lock as it is."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
