"""Tables that were built once: a few in memory, the large ones on disk.

A file holds the SHA-256 of what it should be and the thresholds themselves. One that does not match (another σ, another
version, a damaged disk) is built again. Files are written whole or not at all. Where nothing can be written, tables
stay in memory.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from pathlib import Path

import numpy as np

from dphypo import _files, _validate
from dphypo.noise.table import Table

_VERSION = "1"
_LARGE = 2.0**9  # tables of smaller σ take milliseconds to build
_FILES = 8


@functools.lru_cache(maxsize=8)
def table(sigma: float) -> Table:
    """The table of a σ: from memory, from disk, or built.

    >>> table(3.0) is table(3.0)
    True
    """
    sigma = _validate.positive(sigma=sigma)
    if sigma < _LARGE:
        return Table.build(sigma)
    path = folder() / f"gaussian-{sigma.hex()}.v{_VERSION}"
    found = _read(path, sigma)
    if found is None:
        found = Table.build(sigma)
        _write(path, found)
    return found


def folder() -> Path:
    """Where tables are kept: ``$DPHYPO_CACHE``, or the user's folder for caches."""
    if given := os.environ.get("DPHYPO_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dphypo"


def _digest(sigma: float, content: bytes) -> bytes:
    return hashlib.sha256(f"dphypo.noise {_VERSION} {sigma.hex()} ".encode() + content).digest()


def _read(path: Path, sigma: float) -> Table | None:
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    digest, content = stored[:32], stored[32:]
    if digest != _digest(sigma, content) or len(content) % 16:
        return None
    words = np.frombuffer(content, dtype="<u8").reshape(2, -1)
    return Table(sigma, words[0].astype(np.int64), words[1].astype(np.uint64))


def _write(path: Path, built: Table) -> None:
    content = np.stack([built.high.astype("<u8"), built.low.astype("<u8")]).tobytes()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        _files.write(path, _digest(built.sigma, content) + content)
        for old in sorted(path.parent.glob("gaussian-*"), key=lambda file: file.stat().st_mtime)[:-_FILES]:
            old.unlink(missing_ok=True)
