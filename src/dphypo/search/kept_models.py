"""The models of a survey's runs, in a folder of files that people may open."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Container
from pathlib import Path

from dphypo import _validate

MARKER = ".search.json"
"""In the folder: which search it belongs to."""


class KeptModels:
    """The models of published runs, in a folder that belongs to one search; ``format`` ends the names of its files.

    ``owner`` tells this search apart from all others: a folder of another one, or with anything else in it, is refused.

    A model stands in the folder only once its run is committed. It is written to a private folder beside it first, then
    the outcome of the run is committed to the journal, then the file is moved. A process that dies in between leaves a
    model whose run is committed, which is moved at the next start, or one whose run is not, which is removed then.
    """

    def __init__(self, folder: Path, format: str, owner: str) -> None:
        self._folder, self._format = folder, format
        self._private = folder.with_name(f".{folder.name}-uncommitted")
        mark = json.dumps({"the models of a dphypo search": owner}).encode()
        check_folder(folder, mark)
        marker = folder / MARKER
        if not marker.exists():
            marker.write_bytes(mark)
            os.utime(marker, (0, 0))

    def write(self, number: int, model: bytes) -> None:
        """Write a model before its run is committed; :meth:`settle_one` moves it to where it is published."""
        path = self._private / self._name(number)
        try:
            self._private.mkdir(mode=0o700, exist_ok=True)
            with open(path, "wb") as file:
                file.write(model)
                file.flush()
                os.fsync(file.fileno())
            os.utime(path, (0, 0))  # when a model was written would tell how long its run took
        except OSError as error:
            path.unlink(missing_ok=True)
            raise OSError(
                error.errno,
                f"the model of a run cannot be written ({error.strerror}), so that its outcome is not committed. Make "
                "room for it, and run the same program again",
                str(self._folder),
            ) from None

    def settle_one(self, number: int, *, committed: bool) -> None:
        """Publish the model of a run that is committed, or remove that of one that is not."""
        path, published = self._private / self._name(number), self._folder / self._name(number)
        if committed and path.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                path.replace(published)
            except OSError:  # the folder is on another file system
                beside = self._folder / f".{path.name}"
                shutil.copy2(path, beside)
                beside.replace(published)
        path.unlink(missing_ok=True)
        if self._private.is_dir() and not any(self._private.iterdir()):
            self._private.rmdir()

    def settle(self, committed: Container[int]) -> None:
        """Settle all files that earlier processes left."""
        for path in list(self._private.glob(f"run-*.{self._format}")):
            number = path.name.removeprefix("run-").removesuffix(f".{self._format}")
            if number.isdecimal():
                self.settle_one(int(number) - 1, committed=int(number) - 1 in committed)

    def _name(self, number: int) -> str:
        return f"run-{number + 1:03d}.{self._format}"


def check_folder(folder: Path, mark: bytes = b"") -> None:
    """Make a folder for models. One of another search, or with anything else in it, is refused."""
    marker = folder / MARKER
    try:
        if folder.exists() and not folder.is_dir():
            problem = "it is a file: give the name of a folder"
        elif folder.exists() and any(folder.iterdir()) and (not marker.is_file() or marker.read_bytes()[:200] != mark):
            problem = "it belongs to another search, or holds other files: give a new folder for the models of this one"
        else:
            folder.mkdir(parents=True, exist_ok=True)
            return
    except OSError as error:
        problem = f"it cannot be used ({error.strerror}): give a folder that can be written"
    raise _validate.fail("models", str(folder), problem)
