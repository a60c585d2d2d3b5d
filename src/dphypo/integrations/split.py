"""Setting records apart for scoring, in a way that costs no more than either part."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from dphypo import _validate


def split_by_hash(
    inputs: npt.ArrayLike, targets: npt.ArrayLike, *, share: float = 0.2, key: str = ""
) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Set records apart for scoring by a hash of each record's own bytes: ``(train, held_out)``.

    Where a record goes depends on that record and the key alone, not on its position or on the others: adding or
    removing a record moves no other. That is what lets training and scoring cost the worse of the two, not the sum.
    Equal records go to the same part.

    Args:
        inputs, targets: arrays with one row a record.
        share: about how much to set apart.
        key: another key gives another split.

    >>> train, held_out = split_by_hash(np.arange(1000.0).reshape(-1, 1), np.zeros(1000), share=0.2)
    >>> len(train[0]), len(held_out[0])
    (778, 222)
    """
    first, second = np.asarray(inputs), np.asarray(targets)
    apart = hashed_apart(first, second, share=share, key=key)
    return (first[~apart], second[~apart]), (first[apart], second[apart])


def hashed_apart(
    inputs: npt.NDArray[Any], targets: npt.NDArray[Any], *, share: float, key: str = ""
) -> npt.NDArray[np.bool_]:
    """Which records :func:`split_by_hash` sets apart."""
    share = _validate.within(0.0, 1.0, share=share)
    salt = hashlib.sha256(key.encode()).digest()
    values = [
        int.from_bytes(hashlib.sha256(salt + _bytes(row) + b"|" + _bytes(target)).digest()[:8], "big")
        for row, target in zip(inputs, targets, strict=True)
    ]
    return np.array(values, dtype=np.uint64) < np.uint64(share * 2.0**64)


def _bytes(values: Any) -> bytes:
    """A record as bytes; objects, such as the mixed columns of a frame, by their text."""
    array = np.asarray(values)
    return repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
