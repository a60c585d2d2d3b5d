"""Keyed counter generators, streams of uniform 64-bit words, one stream a purpose; and Poisson sampling with them.

A stream is numpy's Philox 4x64 with a 128-bit key. Keys come from SHA-256 of the run's key and the name of the stream,
so that streams of different names, and of different runs, share no word. Every guarantee takes the words as ideal:
uniform, independent and unknown to the attacker.

A record is in a sample if its word is below ⌊q·2⁶⁴⌋. ``rand() < q`` compares q with a multiple of 2⁻²⁴ or 2⁻⁵³, and so
samples at another rate than was declared. The rate here is never above q, and a smaller rate never costs more privacy.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dphypo import _validate

U64 = npt.NDArray[np.uint64]
_KEY_BYTES = 16


class Words:
    """A stream of uniform 64-bit words, and the root of further streams.

    Args:
        key: at least 16 bytes, random and secret. Equal keys give equal words.

    >>> run = Words(bytes(16))
    >>> noise, again = run.stream("noise"), Words(bytes(16)).stream("noise")
    >>> bool((noise.draw(5) == again.draw(5)).all()), bool((noise.draw(5) == run.stream("dither").draw(5)).any())
    (True, False)
    """

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) < _KEY_BYTES:
            shown = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__  # a key is secret
            raise ValueError(f"key = {shown} is not valid: give at least {_KEY_BYTES} random bytes")
        self._root = _hash(b"key", key)
        self.key = _hash(b"philox", self._root)[:_KEY_BYTES]
        """The Philox key, for a kernel that makes the same words elsewhere."""
        self._source = np.random.Philox(key=int.from_bytes(self.key, "little"))

    @classmethod
    def of_seed(cls, seed: int) -> Words:
        """The words of a run whose randomness is one whole number; the number is the secret, of any size.

        >>> bool(Words.of_seed(1).draw(1)[0] == Words.of_seed(2**64 + 1).draw(1)[0])
        False
        """
        seed = _validate.integer(at_least=0, seed=seed)
        return cls(_hash(b"seed", b"run", b"%x" % seed))

    def stream(self, name: str) -> Words:
        """A separate stream for one purpose. A second call starts again at its first word."""
        return Words(_hash(b"stream", self._root, name.encode()))

    def draw(self, count: int) -> U64:
        """The next words of the stream; no word is given twice."""
        return np.asarray(self._source.random_raw(count), dtype=np.uint64)

    def __repr__(self) -> str:
        return "Words(...)"


def _hash(*parts: bytes) -> bytes:
    """SHA-256 of the parts, each with its length, so that no two lists of parts are one text."""
    return hashlib.sha256(b"dphypo.noise" + b"".join(len(part).to_bytes(8, "big") + part for part in parts)).digest()


def threshold(rate: float) -> int:
    """⌊rate·2⁶⁴⌋, exactly; 2⁶⁴ if the rate is 1, and then every word is below it.

    >>> threshold(0.5) == 2**63, threshold(1.0) == 2**64
    (True, True)
    """
    return int(Fraction(_validate.within(0.0, 1.0, closed="both", rate=rate)) * 2**64)


def poisson_sample(rate: float, words: Words, size: int) -> npt.NDArray[np.int64]:
    """The places of 0, ..., ``size − 1`` that are in, each independently with probability ⌊rate·2⁶⁴⌋/2⁶⁴.

    It takes ``size`` words whatever the rate is.

    >>> from dphypo.noise import Words
    >>> poisson_sample(1.0, Words(bytes(16)), 3).tolist(), poisson_sample(0.0, Words(bytes(16)), 3).tolist()
    ([0, 1, 2], [])
    """
    bound, drawn = threshold(rate), words.draw(size)
    if bound == 2**64:
        return np.arange(size)
    return np.flatnonzero(drawn < np.uint64(bound))
