"""Journals and ledgers in PostgreSQL."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager

from sqlalchemy import URL, Connection, create_engine, delete, insert, inspect, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from dphypo.errors import JournalError
from dphypo.journal.chain import OLD, UNREADABLE, book, lease, metadata, secret
from dphypo.journal.database import SILENT, in_use

_WAIT_S = 10.0
_LEASE_S = 60.0  # how long a coordinator may be silent before another takes its study

_HOLDER = text(
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND "
    "((classid::bigint << 32) | objid::bigint) = :key AND "
    "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class PostgreSQL:
    """A database reached by URL; it may hold many studies, told apart by name.

    A beaten model leaves the files of the tables when it is beaten, and the rest of a study when it is shredded: the
    tables are then made afresh, so that neither their statistics (``pg_stat_user_tables``) nor the transaction numbers
    of their rows count its runs. Privileges on the tables are those of new tables afterwards: grant them by ``ALTER
    DEFAULT PRIVILEGES``. **What stays** is outside the reach of a client: the counters of the whole database
    (``pg_stat_database``, ``pg_stat_statements``), the server's write-ahead log and transaction counter, its log if it
    logs statements, its replicas and its backups. Keep them as secret as the data.
    """

    durable = True
    beat_s = 5.0  # how often a coordinator gives a sign of life

    def __init__(self, url: URL) -> None:
        self._url = url.set(drivername="postgresql+psycopg")

    @property
    def address(self) -> str | None:
        host = "" if self._url.host is None else self._url.host
        return f"postgresql://{host}/{self._url.database or ''}"

    def connect(self, *, read_only: bool = False) -> Connection:
        try:
            engine = create_engine(self._url, poolclass=NullPool, **SILENT)
        except ModuleNotFoundError:
            needs = "a journal in PostgreSQL needs the package psycopg: pip install 'dphypo[postgres]'"
            raise JournalError(needs) from None
        connection = engine.connect()
        connection.execute(text("SET synchronous_commit = on"))
        if read_only:
            connection.execute(text("SET default_transaction_read_only = on"))
        connection.commit()
        return connection

    def prepare(self, connection: Connection, kind: str) -> None:
        """One process at a time: PostgreSQL's own CREATE TABLE IF NOT EXISTS fails if two run at once."""
        tables = inspect(connection).get_table_names()
        connection.rollback()
        if OLD in tables:
            raise JournalError(f"{self.address} has journals of dphypo 0.1 or 0.2, {UNREADABLE}: use another database")
        if book.name in tables:
            return
        with connection.begin():
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _key("tables of dphypo")})
            metadata.create_all(connection)

    def hold(self, connection: Connection, name: str) -> None:
        """Take a session lock, which ends with the session. End the session of a coordinator that is silent for long.

        The server sees at once that a process was killed. If a machine was cut off, or a process is frozen, its session
        goes on, and only its sign of life is missing. A coordinator that was replaced commits nothing more.
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
                    raise in_use()  # it lives
                known, since = beat, now
            if known is None and now > began + _WAIT_S:
                raise in_use()  # it gave no sign of life yet
            if known is not None and now > since + _LEASE_S:
                try:
                    connection.execute(_HOLDER, key)
                    connection.commit()
                except DBAPIError:  # the session is of another user
                    connection.rollback()
                    raise in_use() from None
                since = now
            time.sleep(0.05)
        connection.execute(delete(lease).where(lease.c.study == name))
        connection.execute(insert(lease), {"study": name, "beat": secrets.token_hex(8)})
        connection.commit()

    def beat(self, connection: Connection, names: Iterable[str]) -> None:
        """Give a sign of life for studies that are held."""
        connection.execute(update(lease).where(lease.c.study.in_(list(names))).values(beat=secrets.token_hex(8)))

    def guard(self, connection: Connection) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def forget(self, connection: Connection, *, everything: bool) -> None:
        if everything:
            self._make_afresh(connection)
            return
        # VACUUM runs only outside a transaction, which is what AUTOCOMMIT means.
        connection.execution_options(isolation_level="AUTOCOMMIT")
        try:
            connection.execute(text(f"VACUUM FULL {secret.name}"))
        finally:
            connection.rollback()
            connection.execution_options(isolation_level=connection.default_isolation_level)

    def _make_afresh(self, connection: Connection) -> None:
        """Statistics belong to a table, transaction numbers to a row: new tables and new rows have neither."""
        tables = metadata.sorted_tables
        with connection.begin():
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _key("tables of dphypo")})
            # Every transaction of a journal touches its book first; locking in the same order avoids deadlocks.
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

    def disconnect(self, connection: Connection) -> None:
        connection.close()
        connection.engine.dispose()


def _key(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
