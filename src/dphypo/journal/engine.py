"""What a database must do to hold a journal."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from sqlalchemy import Connection

SILENT: dict[str, Any] = {"hide_parameters": True, "logging_name": "dphypo", "pool_logging_name": "dphypo"}
"""How to create an SQLAlchemy engine that logs nothing: its log would show rows, and their number shows T."""

for _logger in ("engine.Engine", "pool.impl.StaticPool", "pool.impl.NullPool"):
    logging.getLogger(f"sqlalchemy.{_logger}.dphypo").setLevel(logging.CRITICAL + 1)


class Engine(Protocol):
    """A database that can hold journals. SQLite and PostgreSQL are built in."""

    @property
    def durable(self) -> bool:
        """Whether what is committed outlives the connection."""
        ...

    def connect(self) -> Connection:
        """One connection on which a commit that has returned survives the loss of power."""
        ...

    def hold(self, connection: Connection, name: str) -> None:
        """Take the study for this process until the connection ends, however it ends.

        ``JournalInUseError`` if another process has it.
        """
        ...

    def forget(self, connection: Connection, *, everything: bool) -> None:
        """Called outside a transaction after rows were deleted: leave none of their bytes behind.

        With ``everything``, rewrite the storage: the study was reduced to its certificate.
        """
        ...
