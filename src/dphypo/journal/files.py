"""What a file must be to hold a journal or a ledger, and a lock on it. A file of another kind is left exactly as it is.

SQLite's own locks are POSIX record locks, which end when the process closes *any* descriptor of the file: a backup
thread, or a trainer that hashes its folder, would let a second process in. ``flock`` on a file of its own has no such
gap.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
import time
import weakref
from pathlib import Path

from dphypo.errors import JournalError, JournalInUseError
from dphypo.errors.faults import JournalReadOnlyError
from dphypo.journal.chain import OLD, UNREADABLE, book

try:
    import fcntl
except ImportError:  # pragma: no cover - not a POSIX system
    fcntl = None  # type: ignore[assignment]

_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


def shown(path: Path) -> str:
    """The path, unless it may be a mistyped URL with a password in it."""
    return "(not shown)" if "@" in str(path) else str(path)


def refuse_other_kinds(path: Path) -> None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise JournalError(f"{shown(path)} cannot be opened: {error.strerror}") from None
    if stat.S_ISDIR(mode):
        raise JournalError(f"{shown(path)} is a folder: give the name of a file in it")
    if not stat.S_ISREG(mode):
        raise JournalError(f"{shown(path)} is not an ordinary file: give the name of one")


def refuse_foreign(path: Path) -> None:
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
        raise JournalError(f"{shown(path)} cannot be used: {what}. It was not changed; give another file name", what)


def create_private(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        raise JournalError(f"{shown(path)} cannot be created: {error.strerror}") from None
    os.close(descriptor)
    _keep_name(path)


def publish(made: Path, path: Path) -> None:
    """Give a finished file its name, in the same file system; ``FileExistsError`` if there is one of that name."""
    try:
        os.link(made, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError from None
        os.rename(made, path)
    _keep_name(path)


def _keep_name(path: Path) -> None:
    """The file's name must survive the loss of power as well as its contents. Not every file system can do this."""
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def make_private(path: Path) -> None:
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        try:
            path.chmod(0o600)
        except OSError as error:
            raise JournalError(
                f"others may read the journal {shown(path)}, and its mode cannot be changed ({error.strerror}): let "
                "its owner make it private (chmod 600), or give another file name"
            ) from None


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
            if error.errno in _READ_ONLY:
                raise JournalReadOnlyError from None
            raise JournalError(f"the journal cannot be created: {error.strerror}; its folder must exist") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            os.close(descriptor)
            raise JournalError(
                f"the journal's file system cannot lock files ({error.strerror}): keep it on a local disk, or in "
                "PostgreSQL"
            ) from None
        if not _same(descriptor, self._path):  # the holder before us has removed this file
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        _held.add(self)
        return True

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    @property
    def intact(self) -> bool:
        """Whether others still find the locked file under its name."""
        return self._descriptor is not None and _same(self._descriptor, self._path)

    def release(self) -> None:
        """Remove the file and give up the lock."""
        if self._descriptor is not None:
            if self.intact:
                with contextlib.suppress(OSError):
                    self._path.unlink()
            self.drop()

    def drop(self) -> None:
        """Close our descriptor alone. In a forked child this leaves the parent's lock as it is."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _drop_all() -> None:
    for lock in list(_held):
        lock.drop()


# A forked child that outlives its parent must not keep the parent's lock.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_all)
