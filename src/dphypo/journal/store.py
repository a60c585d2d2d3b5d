"""An open database with the journal's tables in it."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sqlite3
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, inspect, make_url, select
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from dphypo import _validate
from dphypo.errors import (
    JournalError,
    JournalMissingError,
    JournalMovedError,
    JournalReadOnlyError,
    JournalTamperedError,
)
from dphypo.journal import schema
from dphypo.journal.engine import Beating, Engine, engines
from dphypo.journal.failures import translate
from dphypo.journal.sqlite import SQLite

R = TypeVar("R")
_beating: weakref.WeakSet[Store] = weakref.WeakSet()


def machine() -> str:
    """A name for this machine since it was started; empty where the system gives none."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def machine_of(token: object) -> str:
    """On which machine a process ran, by the token under which it had a study; empty if the token is damaged."""
    return token.rpartition(" ")[0] if isinstance(token, str) else ""


class Store:
    """A database that holds journals, and the one connection through which a process uses it.

    Threads may share it: their transactions come one after the other.

    >>> store = Store(SQLite(None))
    >>> store.commit(lambda connection: connection.exec_driver_sql("SELECT 1").scalar())
    1
    >>> store.close()
    """

    def __init__(self, engine: Engine, *, read_only: bool = False) -> None:
        self._engine = engine
        self._read_only = read_only
        self._connection: Connection | None = None
        self._held: dict[str, str] = {}  # the token under which this process has each study
        self._end = threading.Event()  # of the signs of life
        self.lock = threading.RLock()

    @property
    def address(self) -> str | None:
        """Where it is, in words that may be printed; None if it is in memory."""
        return self._engine.address

    @property
    def writable(self) -> bool:
        """Whether it was opened for writing, and could be."""
        return self._use(lambda connection: not connection.info.get("read only", False))

    def commit(self, work: Callable[[Connection], R]) -> R:
        """Do ``work`` in one transaction. On return it is on the disk; on an error nothing of it is."""

        def transaction(connection: Connection) -> R:
            with self._engine.guard(connection), connection.begin():
                return work(connection)

        return self._use(transaction)

    def names(self) -> list[str]:
        """The studies in it."""
        found: list[object] = self.commit(lambda connection: list(connection.scalars(select(schema.study.c.name))))
        if not all(isinstance(name, str) for name in found):
            raise JournalTamperedError("the name of a study cannot be read")
        return [str(name) for name in found]

    def hold(self, name: str) -> str:
        """Take a study for this process; the token says so in every commit."""
        with self.lock:
            if name not in self._held:
                if self.writable:
                    self._use(lambda connection: self._engine.hold(connection, name))
                self._held[name] = f"{machine()} {secrets.token_hex(16)}"
                self._begin_to_beat()
            return self._held[name]

    def _begin_to_beat(self) -> None:
        if isinstance(self._engine, Beating) and self.writable and len(self._held) == 1:
            self._end = threading.Event()
            _beating.add(self)
            arguments = (weakref.ref(self), self._end, self._engine.beat_s)
            threading.Thread(target=_keep_beating, args=arguments, name="dphypo journal", daemon=True).start()

    def beat(self) -> None:
        """Give a sign of life for the studies that are held."""
        with self.lock, contextlib.suppress(JournalError):  # whoever commits next is told that the database is gone
            engine = self._engine
            if isinstance(engine, Beating) and self._connection is not None and self._held:
                self.commit(lambda connection: engine.beat(connection, list(self._held)))

    def holds(self, name: str) -> bool:
        """Whether this process has had the study without a break: the hold ends with the connection."""
        return name in self._held

    def forget(self, *, everything: bool = False) -> None:
        """Leave no bytes of deleted rows."""

        def guarded(connection: Connection) -> None:
            with self._engine.guard(connection):
                self._engine.forget(connection, everything=everything)

        self._use(guarded)

    def _use(self, work: Callable[[Connection], R]) -> R:
        failure: JournalError
        with self.lock:
            try:
                return work(self._open())
            except JournalMovedError:
                self.close()
                raise
            except (SQLAlchemyError, sqlite3.Error) as error:
                failure = translate(error)
                if getattr(error, "connection_invalidated", False):
                    self.close()  # the hold on the study went with the connection: it must be taken again
            except UnicodeDecodeError:
                failure = JournalTamperedError("it holds text that is not UTF-8")
        # Raised here, outside the handler, so that the driver's error, which quotes rows, is not attached to it.
        raise failure

    def _open(self) -> Connection:
        if self._connection is None:
            try:
                connection = self._engine.connect(read_only=self._read_only)
                read_only = self._read_only
            except JournalReadOnlyError:
                connection, read_only = self._engine.connect(read_only=True), True
            try:
                connection.info["read only"] = read_only
                if not read_only:
                    self._engine.prepare(connection)
                elif not inspect(connection).has_table(schema.study.name):
                    raise JournalMissingError(self.address or "memory")
                connection.rollback()
            except BaseException:
                self._engine.disconnect(connection)
                raise
            self._connection = connection
        return self._connection

    def rest(self) -> None:
        """Let other processes use the database, unless it would be lost with the connection."""
        if self._engine.durable:
            self.close()

    def close(self) -> None:
        """End the connection and with it the hold on the studies."""
        with self.lock:
            self._held.clear()
            self._end.set()
            if self._connection is not None:
                connection, self._connection = self._connection, None
                self._engine.disconnect(connection)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be shutting down
            self.close()


def _keep_beating(store: weakref.ref[Store], end: threading.Event, every_s: float) -> None:
    while not end.wait(every_s):
        found = store()
        if found is None:
            return
        found.beat()
        del found


def _wait_for_beats() -> None:
    for store in list(_beating):
        store.lock.acquire()


def _go_on() -> None:
    for store in list(_beating):
        with contextlib.suppress(RuntimeError):  # it was opened in between
            store.lock.release()


# A forked child would copy the lock as it is, and nobody there would ever release it.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_beats, after_in_parent=_go_on, after_in_child=_go_on)


def open_store(where: str | Path | Store | None, *, read_only: bool = False) -> Store:
    """The store for what a user calls a journal: a path, a URL, an open store, or None (memory).

    With ``read_only`` nothing at that place is created or changed.
    """
    if isinstance(where, Store):
        return where
    if where is None:
        return Store(SQLite(None))
    given: object = where
    if not isinstance(given, (str, Path)):
        raise _validate.fail("journal", given, f"{_GIVE}, or None to keep it in memory")
    text = str(where)
    if not text.strip() or "\0" in text or (isinstance(where, Path) and text == "."):
        raise _validate.fail("journal", text, _GIVE)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9_.-]+)(\+\w+)?:/", text)
    if scheme is None and (isinstance(where, Path) or "://" not in text):
        return Store(SQLite(Path(where)), read_only=read_only)
    try:
        url = make_url(text)
        engine = engines.find(url.get_backend_name())
    except (ArgumentError, ValueError):  # ValueError: a port that is not a number
        engine = None
    if engine is None:
        raise _validate.fail("journal", "(not shown)", f"{_GIVE}, or None to keep it in memory")
    return Store(engine(url), read_only=read_only)


_GIVE = "give a file name or a URL such as postgresql://user@host/database"
