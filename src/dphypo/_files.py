"""Files that are written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(path: str | os.PathLike[str], content: bytes, mode: int = 0o644) -> Path:
    """Write a file, or leave what is there as it is if anything goes wrong; an existing file is replaced.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(target.parent)!r}: make it first")
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return target


def write_json(path: str | os.PathLike[str], document: Mapping[str, Any]) -> Path:
    """Write a document for people and programs to read."""
    return write(path, (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())
