"""The way of a page to a file: whole or not at all, and never over a file that is something else."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path

from dphypo import _files, _validate


class Kind(StrEnum):
    """What a page is. Its comment at the beginning of the file tells an earlier report from any other file."""

    PUBLIC = "dphypo: public report of a release"
    SECRET = "dphypo: SECRET report for a curator"


def write(page: str, path: str | os.PathLike[str], kind: Kind) -> Path:
    """Write a page. An earlier report of the same kind is replaced.

    Raises:
        FileExistsError: there is a file that is no report of this kind.
        FileNotFoundError: there is no such folder.
    """
    target = _validate.path(path=path)
    if target.exists() and not _is_report(target, kind):
        raise FileExistsError(f"{str(target)!r} exists and is not a {kind.value[8:]}: give a new name")
    return _files.write(target, page.encode(), mode=0o644 if kind is Kind.PUBLIC else 0o600)


def _is_report(path: Path, kind: Kind) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return kind.value.encode() in file.read(200)
