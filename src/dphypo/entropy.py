"""The source of all randomness, and exact draws from it.

All randomness enters through one method, :meth:`Entropy.bytes`. :data:`SYSTEM` reads the operating system's
cryptographic generator, and a private search must use it. :class:`Seeded` is reproducible, for simulation and tests; it
is not private, and certificates say so.

The functions turn bytes into exact draws: integers are exactly uniform, a Bernoulli variable has exactly the given
rational probability, and numbers in [0, 1) are multiples of 2⁻⁵³ with equal probabilities.
"""

from __future__ import annotations

import hashlib
import os
import threading
from fractions import Fraction
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dphypo import _validate


@runtime_checkable
class Entropy(Protocol):
    """A source of random bytes."""

    @property
    def private(self) -> bool:
        """Whether draws from this source may carry a privacy guarantee."""

    def bytes(self, count: int) -> bytes:
        """``count`` independent uniform bytes."""

    def child(self, label: str) -> Entropy:
        """An independent source for one purpose; a seeded source returns the same child for the same label."""


class System:
    """The operating system's cryptographic generator."""

    private = True

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def child(self, label: str) -> System:
        return self

    def __repr__(self) -> str:
        return "System()"


SYSTEM = System()
SEED_BITS = 256
"""The length of the seed of a run that draws only from :mod:`dphypo.noise`, which accepts seeds of any length."""
_MOST_WORDS = 2**32  # per call

# Threads that share a seeded source must not read the same block. The lock is global so that sources can be pickled.
_BLOCKS = threading.Lock()


class Seeded:
    """A reproducible source, for simulation and tests. **Not private**: anyone who knows the seed knows every draw.

    >>> Seeded(7).child("T").bytes(4) == Seeded(7).child("T").bytes(4)
    True
    >>> Seeded(7).private
    False
    """

    private = False

    def __init__(self, seed: int) -> None:
        self.seed = _validate.integer(seed=seed)
        self._key = hashlib.sha256(f"dphypo seed {self.seed}".encode()).digest()
        self._counter = 0
        self._depth = 0

    def bytes(self, count: int) -> bytes:
        """SHAKE-256 of the key and the number of the call."""
        with _BLOCKS:
            self._counter += 1
            block = self._key + self._counter.to_bytes(16, "big")
        return hashlib.shake_256(block).digest(count)

    def child(self, label: str) -> Seeded:
        child = Seeded(self.seed)
        child._key = hashlib.sha256(self._key + label.encode()).digest()
        child._depth = self._depth + 1
        return child

    def __repr__(self) -> str:
        return f"Seeded({self.seed}){'.child(...)' * self._depth}"


def check_entropy(entropy: object) -> None:
    """Refuse a value that is not a source of randomness, such as a number."""
    if not isinstance(entropy, Entropy) or isinstance(entropy, type):
        remedy = "leave it out for private randomness; dphypo.entropy.Seeded(7) is reproducible, without a guarantee"
        raise _validate.fail("entropy", entropy, remedy)


def bits(count: int, entropy: Entropy) -> int:
    """A uniform integer of ``count`` bits."""
    count = _validate.integer(at_least=0, count=count)
    size = (count + 7) // 8
    return int.from_bytes(entropy.bytes(size), "big") >> (8 * size - count)


def below(bound: int, entropy: Entropy) -> int:
    """An exactly uniform integer in [0, ``bound``), by rejection."""
    bound = _validate.integer(at_least=1, bound=bound)
    width = (bound - 1).bit_length()
    while True:
        value = bits(width, entropy)
        if value < bound:
            return value


def bernoulli(probability: Fraction | float, entropy: Entropy) -> bool:
    """True with exactly the given probability; a float counts as the rational number that it represents."""
    exact = probability if isinstance(probability, Fraction) else Fraction(_validate.number(probability=probability))
    if not 0 <= exact <= 1:
        raise _validate.fail("probability", probability, "it must lie in [0, 1]")
    return below(exact.denominator, entropy) < exact.numerator


def words(count: int, entropy: Entropy) -> npt.NDArray[np.uint64]:
    """``count`` uniform 64-bit words."""
    count = _validate.integer(at_least=0, count=count)
    if count > _MOST_WORDS:
        raise _validate.fail("count", count, f"it must be at most {_MOST_WORDS}")
    return np.frombuffer(entropy.bytes(8 * count), dtype="<u8").astype(np.uint64)


def uniforms(count: int, entropy: Entropy) -> _validate.Floats:
    """``count`` numbers in [0, 1): multiples of 2⁻⁵³, each equally likely."""
    return (words(count, entropy) >> np.uint64(11)).astype(np.float64) * 2.0**-53
