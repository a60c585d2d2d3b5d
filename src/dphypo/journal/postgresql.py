"""Journals in PostgreSQL."""

from __future__ import annotations

import hashlib
import time

from sqlalchemy import URL, Connection, create_engine, text
from sqlalchemy.pool import NullPool

from dphypo.journal.engine import SILENT
from dphypo.journal.errors import JournalInUseError
from dphypo.journal.schema import metadata

_WAIT_S = 10.0


class PostgreSQL:
    """A database reached by URL; it may hold many studies, told apart by name.

    Deleted rows leave the tables at once and their files when PostgreSQL rewrites them (``forget``). The server's
    write-ahead log, its replicas and its backups are outside the reach of a client: keep them as secret as the data.
    """

    durable = True

    def __init__(self, url: URL) -> None:
        self._url = url.set(drivername="postgresql+psycopg")

    def connect(self) -> Connection:
        engine = create_engine(self._url, poolclass=NullPool, **SILENT)
        connection = engine.connect()
        connection.execute(text("SET synchronous_commit = on"))
        connection.commit()
        return connection

    def hold(self, connection: Connection, name: str) -> None:
        """A session lock. The server may need a moment to notice that a killed process is gone."""
        key = int.from_bytes(hashlib.sha256(f"dphypo {name}".encode()).digest()[:8], "big", signed=True)
        deadline = time.monotonic() + _WAIT_S
        while True:
            held = connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": key}).scalar()
            connection.commit()
            if held:
                return
            if time.monotonic() > deadline:
                raise JournalInUseError
            time.sleep(0.05)

    def forget(self, connection: Connection, *, everything: bool) -> None:
        kind = "VACUUM FULL" if everything else "VACUUM"
        # VACUUM runs only outside a transaction, which is what AUTOCOMMIT means.
        connection.execution_options(isolation_level="AUTOCOMMIT")
        try:
            for table in metadata.sorted_tables:
                connection.execute(text(f"{kind} {table.name}"))
        finally:
            connection.rollback()
            connection.execution_options(isolation_level=connection.default_isolation_level)
