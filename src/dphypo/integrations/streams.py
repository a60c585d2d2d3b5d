"""Independent random streams for the purposes of one run, all derived from the run's seed by hashing."""

from __future__ import annotations

import hashlib

import numpy as np


def digest(seed: int, purpose: str, count: int) -> bytes:
    """SHAKE-256 of the seed and the purpose.

    >>> digest(7, "noise", 4) == digest(7, "noise", 4), digest(7, "noise", 4) == digest(7, "sampling", 4)
    (True, False)
    """
    return hashlib.shake_256(f"dphypo.integrations {purpose} {seed}".encode()).digest(count)


def philox(seed: int, purpose: str) -> np.random.Generator:
    """numpy's Philox generator with a 128-bit key of its own."""
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest(seed, purpose, 16), "big")))
