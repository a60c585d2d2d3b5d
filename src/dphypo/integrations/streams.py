"""Independent random streams for the purposes of one run, all derived from the run's seed by hashing."""

from __future__ import annotations

import hashlib
import warnings

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


LOUD = 0.2


def warn_of_noise(noise: float, stacklevel: int = 2) -> None:
    """Warn of a score whose noise swamps it; ``noise`` is its standard deviation, in units of the score's range."""
    if noise > LOUD:
        warnings.warn(
            f"the noise of the score has a standard deviation of {noise:.2g} of the score's whole range: runs are "
            f"ranked by noise more than by merit. Score on more records, or with a smaller noise_multiplier, or leave "
            f'it to dphypo.tune with noise_multiplier="calibrate"',
            stacklevel=stacklevel + 1,
        )
