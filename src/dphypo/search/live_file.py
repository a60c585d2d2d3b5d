"""What ``dphypo watch`` shows: a file beside the journal while a search runs, since the journal is locked then.

Of a search with a study it holds the cost alone, and no time: its age would be the study's duration. Of surveys and
last runs it holds the table so far, the number of the step and the time left. Times are secret: the file has the
journal's permissions and is erased when the search stops. Only ``run`` begins one, since it knows when it stops.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dphypo import _files
from dphypo.errors import FileError
from dphypo.search.checkpoint import erase

ENDING = "-watch"
_SHORT = 200  # runs


@dataclass(frozen=True)
class LiveFile:
    """The file; nothing happens if there is no place for one. It tells when it was written if it is ``timed``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     live = LiveFile(Path(folder) / "tune.db-watch")
    ...     live.update(cost="Privacy: ε = 1"), live.update(step=3)
    ...     live.read()["cost"], live.read()["step"]
    (None, None)
    ('Privacy: ε = 1', 3)
    """

    path: Path | None
    timed: bool = True

    def read(self) -> dict[str, Any] | None:
        """What is known; None if no search runs."""
        if self.path is None:
            return None
        try:
            found = json.loads(_files.read(self.path, "file of a search", most=_files.MOST_TABLE_BYTES))
        except (FileError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def due(self, runs: int) -> bool:
        """Whether to show a table of so many runs, in a file that was begun.

        A long table is shown seldom, so that a run costs the same after any number.
        """
        return self.path is not None and (runs <= _SHORT or runs % _SHORT == 0) and self.path.exists()

    def update(self, **known: Any) -> None:
        """Add to what is known. A file that cannot be written must not stop a search."""
        if self.path is not None:
            with contextlib.suppress(OSError):
                content = {**(self.read() or {}), **known} | ({"written": time.time()} if self.timed else {})
                _files.write(self.path, json.dumps(content).encode(), mode=0o600)
                if not self.timed:
                    os.utime(self.path, (0, 0))

    def erase(self) -> None:
        """The search has stopped."""
        erase(self.path)


NOWHERE = LiveFile(None)
"""For a search that shows nothing, or whose journal is not a file."""
