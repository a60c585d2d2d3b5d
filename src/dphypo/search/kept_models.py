"""The models of published runs, kept in a folder: a model has its name there only once its run is committed.

A model is written under a name of its own, then the outcome of the run is committed to the journal, then the file is
renamed. A process that dies in between leaves a file without a committed run, or a committed run whose file was not
renamed: whoever goes on looks at the journal and removes the first and renames the second.
"""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path

UNCOMMITTED = ".uncommitted-"


class KeptModels:
    """A folder of models.

    Args:
        folder: made when the first model is written.
        format: the ending of the files.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = KeptModels(Path(folder), "bin")
    ...     kept.write(0, b"weights")
    ...     kept.write(1, b"other weights")
    ...     kept.settle(committed={0})  # the process that made run 1 died before the commit
    ...     [path.name for path in Path(folder).iterdir()]
    ['run-001.bin']
    """

    def __init__(self, folder: Path, format: str) -> None:
        self._folder, self._format = folder, format

    def path(self, number: int) -> Path:
        """The model of a run, counted from 0, once the run is committed."""
        return self._folder / model_name(number, self._format)

    def write(self, number: int, model: bytes) -> None:
        """Write a model before its run is committed; :meth:`settle` gives it its name."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{UNCOMMITTED}{model_name(number, self._format)}"
        with open(path, "wb") as file:
            file.write(model)
            file.flush()
            os.fsync(file.fileno())
        os.utime(path, (0, 0))  # when a model was written would tell how long its run took

    def settle(self, committed: Container[int]) -> None:
        """Give the models of committed runs their names, and remove those of all others."""
        for path in self._folder.glob(f"{UNCOMMITTED}run-*.{self._format}"):
            name = path.name.removeprefix(UNCOMMITTED)
            number = name.removeprefix("run-").removesuffix(f".{self._format}")
            if number.isdecimal() and int(number) - 1 in committed:
                path.replace(self._folder / name)
            else:
                path.unlink(missing_ok=True)


def model_name(number: int, format: str) -> str:
    """The file of the model of a run, counted from 0.

    >>> model_name(0, "npz")
    'run-001.npz'
    """
    return f"run-{number + 1:03d}.{format}"
