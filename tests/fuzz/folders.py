"""Random release folders of strangers: a good one, with one or two files replaced, edited, or turned into traps."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

NAMES = ["release.json", "certificate.json", "surveys.json", "model.npz"]
VALUES: list[Any] = [
    *(None, True, 0, -1, 1.5, 1e308, 2**70, "x", "", "\x1b[31m", "MODEL", "NO_RUN", [], {}, [1], {"a": 1}, [[]]),
    *({"rows": []}, {"rows": 3, "maximize": True}, {"rows": [{}], "maximize": 1}, [{"rows": [{"params": 3}]}]),
    *("\ud800", "model", "../../etc/passwd", "a" * 10_000, [None] * 100, {"": ""}, {"rows": [None]}),
]
TEXTS = [
    *(b"", b"null", b"[]", b"{", b"NaN", b'{"a": 1, "a": 2}', b"[" * 100_000, b"\xff\xfe", b"9" * 50_000, b'"x"'),
    *(b"{}", b"PK\x03\x04", b"0" * 5_000_000, b'{"ending": "MODEL"}', b"[" * 1000 + b"]" * 1000),
]


def spoil(rng: random.Random, folder: Path) -> str:
    """Spoil the folder of a release; what was done, in words."""
    return "; ".join(_spoil_one(rng, folder) for _ in range(rng.choice([1, 1, 2])))


def _spoil_one(rng: random.Random, folder: Path) -> str:
    path = folder / rng.choice(NAMES)
    kind = rng.choice(["edit", "edit", "edit", "edit", "replace", "remove", "trap", "trap", "bytes", "bytes", "more"])
    ordinary = path.is_file() and not path.is_symlink() and path.stat().st_size < 10**7
    if kind == "edit" and path.suffix == ".json" and ordinary and _edited(rng, path):
        return f"{path.name} edited"
    if kind == "bytes" and ordinary:
        content = bytearray(path.read_bytes())
        for _ in range(rng.choice([1, 1, 5])):
            if content:
                content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content[: rng.randrange(len(content) + 1)] if rng.random() < 0.3 else content)
        return f"{path.name} with other bytes"
    if kind == "more":
        more = rng.choice(["model.txt", "model.npz.bak", "model.", "x\x1b[31m", ".uncommitted-run-1"])
        (folder / more).write_bytes(rng.choice(TEXTS))
        return f"{more!r} more"
    _remove(path)
    if kind == "remove":
        return f"{path.name} removed"
    if kind == "trap":
        trap = rng.choice(["pipe", "device", "folder", "loop", "outside", "holes"])
        _set(trap, path)
        return f"{path.name} is a {trap}"
    path.write_bytes(rng.choice(TEXTS))
    return f"{path.name} replaced"


def _set(trap: str, path: Path) -> None:
    if trap == "pipe":
        os.mkfifo(path)
    elif trap == "folder":
        path.mkdir()
    elif trap == "holes":
        path.touch()
        os.truncate(path, 2**42)
    else:
        path.symlink_to({"device": "/dev/zero", "loop": path.name, "outside": "/etc/passwd"}[trap])


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _edited(rng: random.Random, path: Path) -> bool:
    """One value somewhere in a JSON file is replaced, or removed."""
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    at: Any = document
    while isinstance(at, (dict, list)) and at:
        key = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
        if isinstance(at[key], (dict, list)) and at[key] and rng.random() < 0.7:
            at = at[key]
            continue
        if rng.random() < 0.2:
            del at[key]
        else:
            at[key] = rng.choice(VALUES)
        path.write_text(json.dumps(document))
        return True
    return False
