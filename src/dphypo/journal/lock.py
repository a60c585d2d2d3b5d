"""A lock on a file, held until it is released or the process ends.

SQLite's own locks are POSIX record locks, which end when the process closes *any* descriptor of the file: a backup
thread, or a trainer that hashes its folder, would let a second process in. ``flock`` on a file of its own has no such
gap.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import weakref
from pathlib import Path

from dphypo.errors import JournalError, JournalInUseError
from dphypo.errors.faults import JournalReadOnlyError

try:
    import fcntl
except ImportError:  # pragma: no cover - not a POSIX system
    fcntl = None  # type: ignore[assignment]

_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


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
