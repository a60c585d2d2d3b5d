"""Data sets packed losslessly, for a machine that takes only so much.

``python -m paper pack data/cifar10 packed/cifar10`` makes of each of CIFAR-10's binary batches one WebP picture of all
images with the labels in front, half its size, and gzips the files of MNIST's kind; :func:`paper.data.sets.load` reads
packed files as it reads plain ones, with the same checksums.
"""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
from PIL import Image

_ACROSS = 50


def packed(content: bytes) -> bytes:
    """A binary batch (one label and 3 072 pixels a row) as its labels and one picture.

    >>> batch = bytes(np.random.default_rng(0).integers(0, 10, 100 * 3073, dtype=np.uint8))
    >>> unpacked(packed(batch)) == batch
    True
    """
    rows = np.frombuffer(content, np.uint8).reshape(-1, 3073)
    if len(rows) % _ACROSS:
        raise ValueError(f"{len(rows)} images do not fill rows of {_ACROSS}")
    tiles = rows[:, 1:].reshape(-1, _ACROSS, 3, 32, 32)
    picture = tiles.transpose(0, 3, 1, 4, 2).reshape(-1, 32 * _ACROSS, 3)
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "WEBP", lossless=True, quality=75, method=4, exact=True)
    return len(rows).to_bytes(4, "big") + rows[:, 0].tobytes() + buffer.getvalue()


def unpacked(content: bytes) -> bytes:
    """The inverse of :func:`packed`."""
    count = int.from_bytes(content[:4], "big")
    labels = np.frombuffer(content, np.uint8, count, offset=4)
    picture = np.asarray(Image.open(io.BytesIO(content[4 + count :])).convert("RGB"))
    tiles = picture.reshape(-1, 32, _ACROSS, 32, 3).transpose(0, 2, 4, 1, 3)
    return np.concatenate([labels[:, None], tiles.reshape(count, 3072)], axis=1).tobytes()


def pack_folder(source: Path, target: Path) -> None:
    """Pack every file of a data set from ``source`` into ``target``."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.glob("*-ubyte")):
        (target / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
    for path in sorted(source.glob("*-ubyte.gz")):
        (target / path.name).write_bytes(path.read_bytes())
    for path in sorted(source.glob("*_batch*.bin")):
        (target / f"{path.name}.webp").write_bytes(packed(path.read_bytes()))
