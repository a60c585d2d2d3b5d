"""Where every random draw of the package comes from.

All randomness enters through one method, :meth:`Entropy.bytes`. :data:`SYSTEM` reads the operating system's
cryptographic generator: with it, the guarantee of a study holds. :class:`Seeded` repeats itself: it is for
simulation and tests, and says of itself that it is not private.

The functions below turn bytes into exact draws: a uniform integer is uniform, a Bernoulli of rational parameter has
that parameter, and a number from [0, 1) is a multiple of 2⁻⁵³ with equal probabilities.
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
        """``count`` fresh, independent, uniform bytes."""

    def child(self, label: str) -> Entropy:
        """An independent source for one purpose; a seeded source gives the same child for the same label."""


class System:
    """The operating system's cryptographic generator: the source a private study uses."""

    private = True

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def child(self, label: str) -> System:
        return self

    def __repr__(self) -> str:
        return "System()"


SYSTEM = System()
_MOST_WORDS = 2**32  # at a time

# Two threads that share a seeded source must not read the same block. One lock for all of them, so that a source
# can still be pickled.
_BLOCKS = threading.Lock()


class Seeded:
    """A reproducible source, for simulation and tests. **Not private**: whoever knows the seed knows every draw.

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
        remedy = "leave it out for private randomness; dphypo.entropy.Seeded(7) repeats itself, without a guarantee"
        raise _validate.fail("entropy", entropy, remedy)


def bits(count: int, entropy: Entropy) -> int:
    """A uniform integer of ``count`` bits."""
    count = _validate.integer(at_least=0, count=count)
    size = (count + 7) // 8
    return int.from_bytes(entropy.bytes(size), "big") >> (8 * size - count)


def below(bound: int, entropy: Entropy) -> int:
    """A uniform integer in [0, ``bound``), exactly, by rejection."""
    bound = _validate.integer(at_least=1, bound=bound)
    width = (bound - 1).bit_length()
    while True:
        value = bits(width, entropy)
        if value < bound:
            return value


def bernoulli(probability: Fraction | float, entropy: Entropy) -> bool:
    """True with exactly the given probability; a float is taken as the rational number it is."""
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


def uniforms(count: int, entropy: Entropy) -> npt.NDArray[np.float64]:
    """``count`` numbers in [0, 1): multiples of 2⁻⁵³, each equally likely."""
    return (words(count, entropy) >> np.uint64(11)).astype(np.float64) * 2.0**-53
