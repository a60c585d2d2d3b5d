"""The checkpoint of a last run: its state between two steps, in a file next to the journal.

The file holds unpublished weights and the state of the optimiser, so only its owner may read it. A run that resumes
from it has the same seed and ends in the same model: nothing more is released or paid. The file is erased when the
outcome of the run is committed.

The state is streamed to and from the file, so that no second copy of it is held in memory. After the state come the
number of steps and a hash of everything before it, by which a damaged file is detected.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, cast

from dphypo import _files
from dphypo._stderr import shielded
from dphypo.executors.executor import Every

_MARK = b"dphypo checkpoint 2\n"
_HASH_BYTES, _STEP_BYTES, _PIECE = 32, 8, 2**20
_NONE: tuple[int, IO[bytes] | None] = (0, None)


@dataclass
class CheckpointFile:
    """The checkpoint file of one run; ``every`` says how often it is written."""

    path: Path
    every: Every = None
    _made: int = field(default=0, init=False)  # steps when it was written last, and the time then
    _time: float = field(default_factory=lambda: time.monotonic(), init=False)

    def due(self, made: int) -> bool:
        """Whether a checkpoint is due after this many steps; if so, it counts as written."""
        now, every = time.monotonic(), self.every
        steps = isinstance(every, int) and made - self._made >= every
        if steps or (isinstance(every, timedelta) and now - self._time >= every.total_seconds()):
            self._made, self._time = made, now
            return True
        return False

    def write(self, made: int, state: Callable[[IO[bytes]], object]) -> None:
        """Replace the checkpoint by the state after ``made`` steps, which ``state`` writes to a file."""
        with _files.writing(self.path, mode=0o600) as file:
            hashed = _Hashed(file)
            state(cast(IO[bytes], hashed))
            hashed.write(_MARK + made.to_bytes(_STEP_BYTES, "big"))
            file.write(hashed.digest.digest())

    def read(self) -> IO[bytes] | None:
        """The open file, which begins with the state; None if there is no checkpoint, or it is damaged."""
        return shielded(self._checked, otherwise=_NONE)[1]

    @property
    def steps(self) -> int:
        """The number of steps after which the checkpoint was written; 0 if there is none, or it is damaged."""
        steps, file = shielded(self._checked, otherwise=_NONE)
        if file is not None:
            file.close()
        return steps

    def _checked(self) -> tuple[int, IO[bytes] | None]:
        if not self.path.is_file():
            return _NONE
        file = self.path.open("rb")
        try:
            digest, left = hashlib.sha256(), os.fstat(file.fileno()).st_size - _HASH_BYTES
            end = b""
            while left > 0 and (piece := file.read(min(left, _PIECE))):
                digest.update(piece)
                left, end = left - len(piece), (end + piece)[-len(_MARK) - _STEP_BYTES :]
            if end.startswith(_MARK) and file.read() == digest.digest():
                file.seek(0)
                return int.from_bytes(end[len(_MARK) :], "big"), file
        except BaseException:
            file.close()
            raise
        file.close()
        return _NONE


class _Hashed:
    """A file for writing that hashes what is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def write(self, content: Any) -> int:
        self.digest.update(content)
        return self._file.write(content)

    def flush(self) -> None:
        self._file.flush()


def erase(path: Path | None) -> None:
    """Remove a file, and what a process left that was killed while it wrote the file. Nothing is raised."""
    for one in [] if path is None else [path, *path.parent.glob(f".{glob.escape(path.name)}.*")]:
        with contextlib.suppress(OSError):
            one.unlink(missing_ok=True)
