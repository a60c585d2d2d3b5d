"""The checkpoint of a long last run: a secret file beside the journal, with the journal's permissions.

It holds the run between two steps: weights that are not published, and what the optimiser remembers. The run that goes
on from it has the same seed, so that it is the same run, made once: nothing more is released, and nothing more is paid.
It is replaced as the run goes on, and erased when the outcome of the run is committed.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

from dphypo import _files
from dphypo.errors import FileError
from dphypo.executors.executor import Every

_HEAD = b"dphypo checkpoint 1\n"


@dataclass(frozen=True)
class CheckpointFile:
    """The file of one run; ``every`` says how often it is written."""

    path: Path
    every: Every

    def read(self) -> bytes | None:
        """What was written last; None if there is nothing, or it is damaged: the run then begins anew."""
        try:
            content = _files.read(self.path, "checkpoint", most=_files.MOST_MODEL_BYTES)
        except FileError:
            return None
        head, state = content[: len(_HEAD) + 32], content[len(_HEAD) + 32 :]
        return state if head == _HEAD + hashlib.sha256(state).digest() else None

    def write(self, state: bytes) -> None:
        """Replace it as a whole."""
        _files.write(self.path, _HEAD + hashlib.sha256(state).digest() + state, mode=0o600)


def erase(path: Path | None) -> None:
    """Remove a file, if there is a place for one, and what a process left that was killed while it wrote."""
    for one in [] if path is None else [path, *path.parent.glob(f".{glob.escape(path.name)}.*")]:
        with contextlib.suppress(OSError):
            one.unlink(missing_ok=True)


class Clock:
    """Says when the next checkpoint is due."""

    def __init__(self, every: Every, made: int) -> None:
        self._every, self._made, self._time = every, made, time.monotonic()

    def due(self, made: int) -> bool:
        """Whether one is due after so many steps; if so, it counts as written."""
        if self._every is None:
            return False
        if isinstance(self._every, int):
            due = made - self._made >= self._every
        else:
            due = time.monotonic() - self._time >= self._every.total_seconds()
        if due:
            self._made, self._time = made, time.monotonic()
        return due
