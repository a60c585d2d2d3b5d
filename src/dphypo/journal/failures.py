"""What a database says when it fails, in words that hold nothing of the rows: driver messages quote them."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from dphypo.errors import JournalError, JournalInUseError
from dphypo.errors.faults import JournalReadOnlyError

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
    code = getattr(cause, "sqlite_errorcode", None)
    state = getattr(cause, "sqlstate", None)
    if code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return JournalInUseError()
    if (code is not None and code & 0xFF == sqlite3.SQLITE_READONLY) or state == "25006":
        return JournalReadOnlyError()
    if isinstance(error, IntegrityError):
        return JournalError(REFUSED)
    if code is not None:
        reason = _SQLITE.get(code & 0xFF, getattr(cause, "sqlite_errorname", "an SQLite error"))
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
