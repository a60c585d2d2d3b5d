"""The database under journals and ledgers: one SQLAlchemy store, for a SQLite file, SQLite in memory or PostgreSQL.

A *book* is a sequence of changes; a journal is a book, and so is a ledger. A change is JSON and is never rewritten. Its
head is SHA-256(head of the change before, content, SHA-256 of its secret). A secret (a seed, a model) is stored in
pieces next to its change and can be erased; the chain keeps only its hash. Every commit compares the head of the book,
and its owner if it has one, and replaces the head. So two processes cannot both continue a book, and damaged rows are
detected. The chain is not a signature: anyone who can write the file can also write a consistent chain.

No table holds a time: times would reveal T to anyone who sees a copy.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import io
import json
import logging
import os
import re
import secrets
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sql
from sqlalchemy import URL, Column, Connection, Integer, Table, Text, bindparam, delete, insert, select, text, update
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import NullPool, StaticPool

from dphypo import _validate
from dphypo.errors import JournalError, JournalInUseError, JournalMissingError

try:
    import fcntl
except ImportError:  # pragma: no cover - not a POSIX system
    fcntl = None  # type: ignore[assignment]

R = TypeVar("R")
FORMAT = 5
PIECE = 2**24
"""Bytes of a secret in one row: neither database stores a model of 1 GB in one value."""
_SHORT = 64  # bytes; shorter secrets (keys, seeds) are read together with their book, models when they are needed
_LONGEST_NAME = 200  # bytes of a file name; the files next to it have longer names, and 255 is the usual limit
_WAIT_S = 2.0  # for another process that has the file open
_WAIT_FOR_SERVER_S = 10.0  # for the first heartbeat of another coordinator
_LEASE_S = 60.0  # how long a coordinator may be silent before another one takes its study
_SEVERAL_NAMES = (
    "the file has another name (a hard link, or a mount of the file alone), and what was committed under one may be "
    "missing under the other: the log and the lock lie next to a name"
)
_LOCKED = "55P03"  # PostgreSQL's lock_timeout

metadata = sql.MetaData()


def _table(name: str, key: str, *columns: Column[Any] | sql.Index) -> Table:
    """A table. Its primary key is the text columns in ``key``, and those of ``columns`` that are declared as such."""
    return Table(f"dphypo_{name}", metadata, *(Column(one, Text, primary_key=True) for one in key.split()), *columns)


book = _table(
    "book",
    "kind name",  # the kind is "journal" or "ledger"
    Column("format", Integer, nullable=False),
    Column("owner", Text, nullable=False),  # a random token of the process that runs the study; empty if there is none
    Column("head", Text, nullable=False),
)
change = _table(
    "change",
    "kind name",
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("about", Text),  # in a ledger, the key of the entry
    Column("content", Text, nullable=False),
    Column("digest", Text),  # of the secret
    Column("head", Text, nullable=False),
    sql.Index("dphypo_change_about", "kind", "name", "about", "number"),
)
secret = _table(
    "secret",
    "kind name",
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("piece", Integer, primary_key=True, autoincrement=False),
    Column("content", sql.LargeBinary, nullable=False),
)
# In a ledger: the heads of the journals of an entry. A row is replaced at each of their commits.
part = _table(
    "part", "ledger entry part", Column("head", Text, nullable=False), Column("closed", sql.Boolean, nullable=False)
)
# Public numbers that take long to compute, such as the noise for a budget.
solved = _table("solved", "study question", Column("answer", sql.Double, nullable=False))
# Where the server cannot see whether the coordinator of a study is alive: a random word that the coordinator replaces
# every few seconds. It is neither a time nor a count.
lease = _table("lease", "study", Column("beat", Text, nullable=False))

# Built once: building a statement takes longer than executing it.
_ADD, _KEEP = insert(change), insert(secret)
_MOVE = (
    update(book)
    .where(
        book.c.kind == bindparam("its_kind"),
        book.c.name == bindparam("its_name"),
        sql.or_(book.c.owner == bindparam("token"), book.c.owner == ""),
        book.c.head == bindparam("old"),
    )
    .values(head=bindparam("new"))
)


@dataclass(frozen=True)
class End:
    """The end of a book: how many changes it has, its head, and the head before the last change."""

    kind: str
    name: str
    length: int = 0
    head: str = ""
    before: str = ""

    def rows(self, table: Table, number: int | None = None) -> list[sql.ColumnElement[bool]]:
        """The condition for the rows of this book in a table, or for those of one change."""
        found = [table.c.kind == self.kind, table.c.name == self.name]
        return found if number is None else [*found, table.c.number == number]

    def next(self, content: str, digest: str | None) -> End:
        """The end of the book after one more change."""
        start = json.dumps([self.kind, self.name, FORMAT])
        head = hashlib.sha256(json.dumps([self.head or start, content, digest]).encode()).hexdigest()
        return replace(self, length=self.length + 1, head=head, before=self.head)


@dataclass(frozen=True, repr=False)
class Change:
    """One change: its content, whether its secret still exists, and the secret itself if it is short."""

    content: Any
    kept: bool = False
    secret: bytes | None = None


def read(connection: Connection, kind: str, name: str) -> tuple[End, list[Change]] | None:
    """A whole book, checked against its head: its end and its changes; None if there is no book of this name."""
    end, changes = End(kind, name), []
    if (head := _head(connection, end)) is None:
        return None
    short = sql.case((sql.func.length(secret.c.content) <= _SHORT, secret.c.content))
    rows = connection.execute(select(secret.c.number, short).where(*end.rows(secret), secret.c.piece == 0))
    kept = {number: None if content is None else bytes(content) for number, content in rows}
    for row in connection.execute(select(change).where(*end.rows(change)).order_by(change.c.number)).all():
        is_kept, found = row.number in kept, kept.pop(row.number, None)
        if found is not None and hashlib.sha256(found).hexdigest() != row.digest:
            raise tampered("a secret value was changed")
        end = _checked(end, row)
        changes.append(Change(_parsed(row.content), is_kept, found))
    if end.head != head or kept:
        raise tampered("changes were edited, added or removed")
    return end, changes


def read_last(connection: Connection, kind: str, name: str) -> tuple[End, Any] | None:
    """The end of a book and the content of its last change, without reading the rest; None if there is no book."""
    start = End(kind, name)
    if (head := _head(connection, start)) is None:
        return None
    last = select(change).where(*start.rows(change)).order_by(change.c.number.desc()).limit(2)
    rows = list(connection.execute(last).all())
    if not rows:
        raise tampered("changes were removed")
    newest, *before = rows
    end = _checked(replace(start, length=newest.number, head=before[0].head if before else ""), newest)
    if end.head != head or len(before) != min(newest.number, 1):
        raise tampered("changes were edited, added or removed")
    return end, _parsed(newest.content)


def read_some(connection: Connection, kind: str, name: str, about: str | None) -> list[Any]:
    """The contents of the changes about one thing, or of the first change, without reading the rest."""
    start, found = End(kind, name), []
    which = change.c.number == 0 if about is None else change.c.about == about
    for row in connection.execute(select(change).where(*start.rows(change), which).order_by(change.c.number)).all():
        before = connection.scalar(select(change.c.head).where(*start.rows(change, row.number - 1)))
        _checked(replace(start, length=row.number, head=before or ""), row)
        found.append(_parsed(row.content))
    return found


def append(
    connection: Connection,
    end: End,
    content: Any,
    *,
    owner: str = "",
    about: str | None = None,
    kept: bytes | None = None,
    erase: Iterable[int] = (),
    alone: bool = False,
) -> End | None:
    """Add a change to a book that ends at ``end``, together with its secret; erase the secrets of earlier changes.

    The first change begins the book: the database refuses a second one of the same name. With ``alone`` the change
    replaces all earlier ones, and the book has no owner any more. Returns None, and changes nothing, if the book ends
    elsewhere or has another owner.
    """
    start = End(end.kind, end.name) if alone else end
    written = json.dumps(content)
    digest = None if kept is None else hashlib.sha256(kept).hexdigest()
    after = start.next(written, digest)
    its = {"kind": end.kind, "name": end.name}
    if not end.length:
        connection.execute(insert(book), {**its, "format": FORMAT, "owner": owner, "head": ""})
    moved = {"its_kind": end.kind, "its_name": end.name, "token": owner, "old": end.head, "new": after.head}
    if connection.execute(_MOVE, moved).rowcount != 1:
        return None
    if alone:
        for table in (secret, change):
            connection.execute(delete(table).where(*end.rows(table)))
        connection.execute(update(book).where(*end.rows(book)).values(owner=""))
    its["number"] = start.length  # type: ignore[assignment]
    connection.execute(_ADD, {**its, "about": about, "content": written, "digest": digest, "head": after.head})
    if kept is not None:
        view = memoryview(kept)
        for piece, at in enumerate(range(0, len(view) or 1, PIECE)):
            connection.execute(_KEEP, {**its, "piece": piece, "content": view[at : at + PIECE]})
    for number in erase:
        connection.execute(delete(secret).where(*end.rows(secret, number)))
    return after


def read_secret(connection: Connection, end: End, number: int) -> bytes | None:
    """The secret of a change, of any length; None if it is not the one that was committed.

    Memory: the secret once, and one piece.
    """
    pieces = connection.scalar(select(sql.func.count()).select_from(secret).where(*end.rows(secret, number))) or 0
    whole, digest = io.BytesIO(), hashlib.sha256()
    for piece in range(pieces):
        content = connection.scalar(select(secret.c.content).where(*end.rows(secret, number), secret.c.piece == piece))
        if content is None:
            return None
        whole.write(content)
        digest.update(content)
    expected = connection.scalar(select(change.c.digest).where(*end.rows(change, number)))
    return whole.getvalue() if pieces and digest.hexdigest() == expected else None


def owner_of(connection: Connection, kind: str, name: str) -> str | None:
    """The token of the process that has a book."""
    return connection.scalar(select(book.c.owner).where(*End(kind, name).rows(book)))


def take(connection: Connection, kind: str, name: str, owner: str) -> None:
    """Make this process the owner of a book: the previous owner can commit nothing more. A shredded book has none."""
    taken = update(book).where(*End(kind, name).rows(book), book.c.owner != "").values(owner=owner)
    connection.execute(taken)


def _head(connection: Connection, end: End) -> str | None:
    found = connection.execute(select(book).where(*end.rows(book))).one_or_none()
    if found is None:
        return None
    if found.format != FORMAT:
        raise JournalError(f"it was written by another version of dphypo (format {found.format!r:.20}): use that one")
    return str(found.head)


def _checked(end: End, row: Any) -> End:
    """The end of the book after the change in this row; refused if the row is not the one that was committed."""
    if row.number != end.length or not isinstance(row.content, str):
        raise tampered("a change is missing")
    after = end.next(row.content, row.digest)
    if after.head != row.head:
        raise tampered("changes were edited, added or removed")
    return after


def _parsed(content: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        pass
    raise tampered("a change cannot be read")  # outside the handler: the parser's error may quote secrets


# What differs between the databases.

_SILENT: dict[str, Any] = {"hide_parameters": True, "logging_name": "dphypo", "pool_logging_name": "dphypo"}
# SQLAlchemy's log would show rows, and their number reveals T.
for _logger in ("engine.Engine", "pool.impl.StaticPool", "pool.impl.NullPool"):
    logging.getLogger(f"sqlalchemy.{_logger}.dphypo").setLevel(logging.CRITICAL + 1)


class Database:
    """What a store needs from a database. The defaults are those of a database that one process uses at a time."""

    durable = True
    """Whether what is committed outlives the connection."""
    beat_s: float | None = None
    """How often a coordinator must send a heartbeat, in seconds; None if the database sees whether it is alive."""
    address: str | None
    """Where it is, in words that may be printed (no password); None if it is in memory."""

    def connect(self) -> Connection:
        """One connection; a commit that has returned survives a power failure."""
        raise NotImplementedError

    def prepare(self, connection: Connection, kind: str) -> None:
        """Create the tables if they are missing, also if several processes do so at once."""
        raise NotImplementedError

    def hold(self, connection: Connection, name: str) -> None:
        """Take a study for this process until the connection ends; ``JournalInUseError`` if another process has it."""

    def beat(self, connection: Connection, names: Iterable[str]) -> None:
        """Send a heartbeat for the studies that this process has."""

    def alone(self, connection: Connection) -> None:
        """Wait until no other transaction uses a ledger of this database; later ones wait for the end of this one.

        A ledger reads several rows before it changes one, so overlapping transactions would decide on outdated values.
        """

    def forget(self, connection: Connection, *, everything: bool) -> None:
        """Remove the bytes of deleted rows; with ``everything``, of a whole study. Called outside a transaction."""
        raise NotImplementedError

    def disconnect(self, connection: Connection) -> None:
        connection.close()
        connection.engine.dispose()


class SQLite(Database):
    """One file, mode 0600, with a write-ahead log; a commit is on the disk before it returns. ``None`` is in memory.

    The file is created with its mode, and SQLite gives its companion files the same mode: no other user can open any of
    them at any moment. ``<file>-lock`` is locked while the file is open. SQLite's own locks are not enough: they are
    POSIX record locks, which end when the process closes *any* descriptor of the file, as a backup thread does.
    """

    def __init__(self, path: Path | None, *, create: bool = True) -> None:
        self.path = None if path is None else Path(os.path.realpath(path))
        self._create = create  # whether a missing file is created
        self.durable = path is not None
        self._lock: FileLock | None = None
        # A path with an @ may be a mistyped URL with a password.
        self.address = None if self.path is None else "(not shown)" if "@" in str(self.path) else str(self.path)

    def connect(self) -> Connection:
        if self.path is None:
            return _open_sqlite(":memory:")
        try:
            return self._connect(self.path)
        except JournalError:  # one of them is an OSError too
            raise
        except OSError as error:
            remedy = "Give a file that you own and others cannot read, in a folder that exists"
            raise JournalError(
                f"{self.address} cannot be used: {error.strerror}. {remedy}", str(error.strerror)
            ) from None

    def _connect(self, path: Path) -> Connection:
        if path.is_dir():
            raise JournalError(f"{self.address} is a folder: give the name of a file in it")
        if path.exists() and not path.is_file():
            raise JournalError(f"{self.address} is not an ordinary file: give the name of one")
        if not self._create and not (path.exists() and path.stat().st_size):
            raise missing(str(self.address))
        lock = FileLock(Path(f"{path}-lock"))
        lock.acquire(_WAIT_S)
        try:
            connection = self._connect_locked(path)
        except BaseException:
            lock.release()
            raise
        self._lock = lock
        return connection

    def _connect_locked(self, path: Path) -> Connection:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            sync_name(path)
        if (what := _something_else(path, empty=self._create)) is not None:
            raise JournalError(
                f"{self.address} cannot be used: {what}. It was not changed; give another file name", what
            )
        if path.stat().st_nlink > 1 or os.path.ismount(path):
            raise JournalError(
                f"{self.address} cannot be used: {_SEVERAL_NAMES}. It was not changed. Copy it and use the copy alone; "
                "of a container, mount the folder and not the file",
                _SEVERAL_NAMES,
            )
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        return _open_sqlite(f"{path.as_uri()}?mode=rw")

    def prepare(self, connection: Connection, kind: str) -> None:
        """A file holds journals or a ledger, not both: a journal is open during all its runs, a ledger for a moment."""
        with connection.begin():
            if not sql.inspect(connection).has_table(book.name):
                metadata.create_all(connection)
            elif other := connection.scalar(select(book.c.kind).where(book.c.kind != kind).limit(1)):
                raise JournalError(f"{self.address} is a {other}, not a {kind}: give another file name")

    def forget(self, connection: Connection, *, everything: bool) -> None:
        """``secure_delete`` has zeroed the deleted rows; this empties the write-ahead log, which still has them."""
        raw: Any = connection.connection.driver_connection
        if everything:
            raw.execute("VACUUM")
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def disconnect(self, connection: Connection) -> None:
        super().disconnect(connection)
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _something_else(path: Path, *, empty: bool) -> str | None:
    """What a file is if it holds neither journals nor a ledger: a mistyped name must not destroy it."""
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
        return "it is a file of another kind" if other else None  # it is damaged, which opening it will report
    return None if book.name in names or (empty and not names) else "it is a database of another program"


def _open_sqlite(uri: str) -> Connection:
    engine = sql.create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(uri, uri=True, timeout=_WAIT_S, isolation_level=None, check_same_thread=False),
        poolclass=StaticPool,
        **_SILENT,
    )
    sql.event.listen(engine, "connect", lambda connection, _: _configure(connection))
    sql.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine.connect()


def _configure(connection: Any) -> None:
    for pragma in (
        "locking_mode = EXCLUSIVE",  # before the log is used: then it needs no shared memory
        "temp_store = MEMORY",  # VACUUM would write a copy of everything to a temporary file
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "secure_delete = ON",
        "wal_checkpoint(TRUNCATE)",  # a killed process may have left a beaten model in the log
    ):
        connection.execute(f"PRAGMA {pragma}")


def sync_name(path: Path) -> None:
    """Make the file's name survive a power failure too. Not every file system can."""
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class FileLock:
    """An exclusive lock on the file ``path``, which exists while the lock is held."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        inherited.add(self)  # a forked child that outlives its parent must not keep the parent's lock

    def acquire(self, wait_s: float) -> None:
        """Take the lock, waiting at most this many seconds if another process has it."""
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
                raise not_writable() from None
            raise
        if self._replaced:  # the previous holder has removed this file
            self.leave()
            return False
        return True

    @property
    def _replaced(self) -> bool:
        """Whether another file, or none, has the name of the locked file."""
        assert self._descriptor is not None
        try:
            return not os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except OSError:
            return True

    def release(self) -> None:
        """Remove the file and release the lock."""
        if self._descriptor is not None and not self._replaced:
            with contextlib.suppress(OSError):
                self._path.unlink()
        self.leave()

    def leave(self) -> None:
        """Close only this descriptor. In a forked child this does not release the parent's lock."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


_HOLDER = text(
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND "
    "((classid::bigint << 32) | objid::bigint) = :key AND "
    "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class PostgreSQL(Database):
    """A database reached by URL. It may hold many studies and ledgers, each with its own name.

    A beaten model leaves the files of the tables when it is beaten, and the rest of a study when it is shredded: the
    tables are then recreated, so that neither their statistics (``pg_stat_user_tables``) nor the transaction numbers
    of their rows reveal the number of runs. Privileges on the tables are those of new tables afterwards: grant them by
    ``ALTER DEFAULT PRIVILEGES``. **What remains** is out of a client's reach: the counters of the whole database
    (``pg_stat_database``, ``pg_stat_statements``), the server's write-ahead log and transaction counter, its log if it
    logs statements, its replicas and its backups. Keep them as secret as the data.
    """

    beat_s = 5.0

    def __init__(self, url: URL) -> None:
        self._url = url.set(drivername="postgresql+psycopg")
        self.address = f"postgresql://{self._url.host or ''}/{self._url.database or ''}"

    def connect(self) -> Connection:
        try:
            engine = sql.create_engine(self._url, poolclass=NullPool, **_SILENT)
        except ModuleNotFoundError:
            needs = "a journal in PostgreSQL needs the package psycopg: pip install 'dphypo[postgres]'"
            raise JournalError(needs) from None
        connection = engine.connect()
        connection.execute(text("SET synchronous_commit = on"))
        connection.commit()
        return connection

    def prepare(self, connection: Connection, kind: str) -> None:
        """One process at a time: PostgreSQL's CREATE TABLE IF NOT EXISTS fails if two processes execute it at once."""
        found = sql.inspect(connection).has_table(book.name)
        connection.rollback()
        if found:
            return
        with connection.begin():
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _key("tables of dphypo")})
            metadata.create_all(connection)

    def hold(self, connection: Connection, name: str) -> None:
        """Take a session lock, which ends with the session. End the session of a coordinator that is silent for long.

        The server sees at once that a process was killed. If a machine was cut off or a process is frozen, its session
        remains, and only its heartbeat is missing. A coordinator that was replaced can commit nothing more.
        """
        key = {"key": _key(f"dphypo {name}")}
        began = since = time.monotonic()
        known: str | None = None
        while not connection.execute(text("SELECT pg_try_advisory_lock(:key)"), key).scalar():
            beat = connection.scalar(select(lease.c.beat).where(lease.c.study == name))
            connection.commit()
            now = time.monotonic()
            if beat != known:
                if known is not None:
                    raise in_use()  # it is alive
                known, since = beat, now
            if known is None and now > began + _WAIT_FOR_SERVER_S:
                raise in_use()  # it has sent no heartbeat yet
            if known is not None and now > since + _LEASE_S:
                try:
                    connection.execute(_HOLDER, key)
                    connection.commit()
                except DBAPIError:  # the session belongs to another user
                    connection.rollback()
                    raise in_use() from None
                since = now
            time.sleep(0.05)
        connection.execute(delete(lease).where(lease.c.study == name))
        connection.execute(insert(lease), {"study": name, "beat": secrets.token_hex(8)})
        connection.commit()

    def beat(self, connection: Connection, names: Iterable[str]) -> None:
        connection.execute(update(lease).where(lease.c.study.in_(list(names))).values(beat=secrets.token_hex(8)))

    def alone(self, connection: Connection) -> None:
        """A statement sees what was committed before it began, so those after the lock see all earlier transactions."""
        connection.execute(text("SET LOCAL lock_timeout = '30s'"))  # the process that has the lock may be frozen
        shared = text("SELECT pg_advisory_xact_lock_shared(:key)")  # the tables are not recreated meanwhile
        connection.execute(shared, {"key": _key("tables of dphypo")})
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _key("ledgers of dphypo")})

    def forget(self, connection: Connection, *, everything: bool) -> None:
        if everything:
            self._recreate_tables(connection)
            return
        # VACUUM runs only outside a transaction, which is what AUTOCOMMIT means.
        connection.execution_options(isolation_level="AUTOCOMMIT")
        try:
            connection.execute(text(f"VACUUM FULL {secret.name}"))
        finally:
            connection.rollback()
            connection.execution_options(isolation_level=connection.default_isolation_level)

    def _recreate_tables(self, connection: Connection) -> None:
        """Statistics belong to a table, transaction numbers to a row: new tables with new rows have neither."""
        tables = metadata.sorted_tables
        with connection.begin():
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _key("tables of dphypo")})
            # Every transaction of a journal uses its book first; locking in the same order avoids deadlocks.
            names = ", ".join(table.name for table in (book, *(one for one in tables if one is not book)))
            connection.execute(text(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE"))
            for table in tables:
                copy = f"CREATE TEMPORARY TABLE {table.name}_kept ON COMMIT DROP AS SELECT * FROM {table.name}"
                connection.execute(text(copy))
            metadata.drop_all(connection)
            metadata.create_all(connection)
            for table in tables:
                if table is lease:
                    continue
                columns = ", ".join(column.name for column in table.columns)
                put_back = f"INSERT INTO {table.name} ({columns}) SELECT {columns} FROM {table.name}_kept"
                connection.execute(text(put_back))


def _key(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


# The store.

inherited: weakref.WeakSet[Any] = weakref.WeakSet()
"""Open stores, and locks. A forked child calls ``leave`` on each of them, so that the parent's are unaffected."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [one.leave() for one in list(inherited)])


class Store:
    """A database that holds journals or a ledger, and the one connection through which this process uses it.

    Threads may share it: their transactions are executed one after the other. A forked child may not use what its
    parent has open.
    """

    def __init__(self, database: Database, *, create: bool = True, kind: str = "journal") -> None:
        self._database = database
        self._create, self._kind = create, kind
        self._connection: Connection | None = None
        self._process: int | None = None  # which has opened it
        self._held: dict[str, str] = {}  # the token under which this process has each study
        self._end = threading.Event()  # of the heartbeats
        self._lock = threading.RLock()
        inherited.add(self)

    @property
    def address(self) -> str | None:
        """Where it is, in words that may be printed; None if it is in memory."""
        return self._database.address

    def beside(self, suffix: str) -> Path | None:
        """A file next to the journal, for what is as secret; None if the journal is not a file."""
        path = self._database.path if isinstance(self._database, SQLite) else None
        return None if path is None else path.with_name(path.name + suffix)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """A block in which no other thread uses the store. Refused in a forked child."""
        if self.foreign:  # before the lock, which a thread of the parent may have held
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

    def commit(self, work: Callable[[Connection], R]) -> R:
        """Execute ``work`` in one transaction. On return it is on the disk; after an error nothing has changed."""

        def transaction(connection: Connection) -> R:
            with connection.begin():
                if self._kind == "ledger":
                    self._database.alone(connection)
                return work(connection)

        return self._use(transaction)

    def names(self) -> list[str]:
        """The studies in it."""
        statement = select(book.c.name).where(book.c.kind == "journal")
        found: list[object] = self.commit(lambda connection: list(connection.scalars(statement)))
        if not all(isinstance(name, str) for name in found):
            raise tampered("the name of a study cannot be read")
        return [str(name) for name in found]

    def hold(self, name: str) -> str:
        """Take a study for this process; returns the token that every commit compares."""
        with self.turn():
            if name not in self._held:
                self._use(lambda connection: self._database.hold(connection, name))
                self._held[name] = secrets.token_hex(16)
                if self._database.beat_s is not None and len(self._held) == 1:
                    self._end = threading.Event()
                    arguments = (weakref.ref(self), self._end, self._database.beat_s)
                    threading.Thread(target=_keep_beating, args=arguments, name="dphypo journal", daemon=True).start()
            return self._held[name]

    def beat(self) -> None:
        """Send a heartbeat for the studies that this process has."""
        with self.turn(), contextlib.suppress(JournalError):  # the next commit reports that the database is gone
            if self._connection is not None and self._held:
                self.commit(lambda connection: self._database.beat(connection, list(self._held)))

    def holds(self, name: str) -> bool:
        """Whether this process has had the study without interruption: the hold ends with the connection."""
        return name in self._held

    def forget(self, *, everything: bool = False) -> None:
        """Remove the bytes of deleted rows; with ``everything``, of a whole study."""
        self._use(lambda connection: self._database.forget(connection, everything=everything))

    def _use(self, work: Callable[[Connection], R]) -> R:
        failure: JournalError
        with self.turn():
            try:
                return work(self._open())
            except (SQLAlchemyError, sqlite3.Error) as error:
                failure = translate(error)
                if isinstance(error, DBAPIError) and error.connection_invalidated:
                    self.close()  # the hold on the study ended with the connection: it must be taken again
            except UnicodeDecodeError:
                failure = tampered("it holds text that is not UTF-8")
        # Raised outside the handler, so that the driver's error, which quotes rows, is not attached to it.
        raise failure

    def _open(self) -> Connection:
        if self._connection is None:
            connection = self._database.connect()
            try:
                if not self._create and not sql.inspect(connection).has_table(book.name):
                    raise missing(self.address or "memory")
                connection.rollback()
                self._database.prepare(connection, self._kind)
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
        """End the connection, and with it the hold on the studies. In a forked child the parent's stay as they are."""
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
        """In a forked child: reset the lock, and never write to the parent's connection or close it."""
        self._lock = threading.RLock()  # a thread of the parent may have held it
        if self._connection is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))  # it is never collected

    def __del__(self) -> None:
        try:  # noqa: SIM105 - modules may be gone: the interpreter may be shutting down
            self.close()
        except Exception:
            pass


def _keep_beating(store: weakref.ref[Store], end: threading.Event, every_s: float) -> None:
    while not end.wait(every_s) and (found := store()) is not None:
        found.beat()
        del found


def open_store(where: str | Path | Store | None, *, create: bool = True, kind: str = "journal") -> Store:
    """The store for what a user passes as a journal: a path, a URL, an open store, or None (memory).

    Unless ``create``, there must be one. ``kind`` is "journal" or "ledger".
    """
    if isinstance(where, Store):
        return where
    database: Database = SQLite(None) if where is None else find_database(where, kind, create=create)
    return Store(database, create=create, kind=kind)


def find_database(where: str | Path, kind: str = "journal", *, create: bool = True) -> Database:
    """The database at a path or a URL; a missing file is created if ``create``."""
    given: object = where
    remedy = "give a file name or a URL such as postgresql://user@host/database, or None to keep it in memory"
    if not isinstance(given, (str, Path)) or not str(given).strip() or "\0" in str(given) or given == Path():
        raise _validate.fail(kind, given, remedy)
    written = str(where)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9_.-]+)(\+\w+)?:/", written)
    if scheme is None and (isinstance(where, Path) or "://" not in written):
        return _file(Path(where), kind, create)
    with contextlib.suppress(ArgumentError, ValueError):  # ValueError: a port that is not a number
        url = sql.make_url(written)
        if url.get_backend_name() == "postgresql":
            return PostgreSQL(url)
        if url.get_backend_name() == "sqlite" and url.database:
            return _file(Path(url.database), kind, create)
    raise _validate.fail(kind, "(not shown)", remedy)


def _file(path: Path, kind: str, create: bool) -> SQLite:
    database = SQLite(path, create=create)
    assert database.path is not None
    if len(os.fsencode(database.path.name)) > _LONGEST_NAME:
        raise _validate.fail(
            kind,
            path.name,
            f"give a file name of at most {_LONGEST_NAME} bytes: files next to it have longer names",
        )
    return database


def in_use() -> JournalInUseError:
    """The error for a journal that another process holds."""
    return JournalInUseError(
        "the journal is in use by another process, or by another open study in this one. Only one process runs a study "
        "at a time (it may have many workers): if a run were executed twice, the faster of two outcomes would count. "
        "Wait for the other one, or stop or close it, and try again",
        "another process uses it",
    )


def not_writable() -> JournalError:
    """The error for a journal that can only be read."""
    return JournalError(
        "the journal cannot be written: its file, its folder or its file system is read-only. To start a search, give "
        "journal= in a writable folder; to resume one, or to read its release, copy the file there first",
        "it cannot be written",
    )


def missing(address: str) -> JournalMissingError:
    """The error for an address at which there is no journal."""
    return JournalMissingError(f"there is no journal at {address}: give the journal= of the search")


def tampered(what: str) -> JournalError:
    """The error for rows that are not those that were committed."""
    return JournalError(
        f"the journal was changed by something other than this library: {what}. Nothing was released from it, and "
        "releases saved earlier are not affected. Do not continue with these runs: restore an unchanged copy of the "
        "latest state. If there is none, the study is lost, and its guarantee counts as spent",
    )


REFUSED = "the journal refused a change that would contradict what it holds; nothing was changed"
_SQLITE = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk could not be read or written",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is not a database",
    sqlite3.SQLITE_CANTOPEN: "the file or its folder cannot be opened",
}


def translate(error: SQLAlchemyError | sqlite3.Error) -> JournalError:
    """The same failure in words that quote no row: the driver's messages do."""
    cause = getattr(error, "orig", error)
    code = getattr(cause, "sqlite_errorcode", -1) & 0xFF  # 255 elsewhere, which is none of SQLite's
    state = getattr(cause, "sqlstate", None)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or state == _LOCKED:
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
        f"the journal could not be used: {reason}. Everything committed before is safe. Solve the problem and run the "
        "same search again: it resumes",
        reason,
    )
