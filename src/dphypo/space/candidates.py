"""Candidate sets: fresh Sobol points with an independent scramble, drawn from the prior."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dphypo.entropy import Entropy, words
from dphypo.space import unit
from dphypo.space.unit import Array, read_only

if TYPE_CHECKING:
    from dphypo.space.space import Space


Words = npt.NDArray[np.uint64]


@lru_cache(maxsize=64)
def directions(dimension: int, levels: int) -> Words:
    """The public generator of the sequence: direction numbers (dimension, levels), aligned to the top of 64 bits."""
    from scipy.stats import qmc

    engine = qmc.Sobol(dimension, scramble=False, bits=32)
    found = np.empty((dimension, levels), dtype=np.uint64)
    for level in range(levels):
        # Points come in Gray-code order: point number 2^(level+1) − 1 is direction number `level` alone.
        engine.fast_forward(max(1, 2**level - 1))
        found[:, level] = (engine.random(1)[0] * 2.0**32).astype(np.uint64) << np.uint64(32)
    found.flags.writeable = False
    return found


def candidate_points(count: int, dimension: int, entropy: Entropy) -> unit.Array:
    """The first ``count`` points of a Sobol set under a random linear matrix scramble and a random digital shift.

    The shift alone, exclusive-or with 64 uniform bits per coordinate, makes every single point exactly uniform on the
    grid of the cube; the matrix breaks up the poor two-dimensional projections of the plain sequence. Both are drawn
    afresh on every call, so that a set is independent of all earlier ones: a sequence continued from one run to the
    next would not be from the prior given the history, and the band would not hold.
    """
    levels = (count - 1).bit_length()
    random = words(dimension * (levels + 1), entropy).reshape(dimension, levels + 1)
    generator = directions(dimension, levels)
    scrambled = np.zeros_like(generator)
    for level in range(levels):
        # Column `level` of a lower-triangular matrix over two elements: one on the diagonal, random below it.
        diagonal = np.uint64(1 << (63 - level))
        column = (random[:, 1 + level] & (diagonal - np.uint64(1))) | diagonal
        scrambled ^= np.where(generator & diagonal, column[:, None], np.uint64(0))
    result = np.empty((1 << levels, dimension), dtype=np.uint64)
    result[0] = random[:, 0]
    for level in range(levels):
        half = 1 << level
        result[half : 2 * half] = result[:half] ^ scrambled[:, level]
    return unit.from_words(result[:count])


@dataclass(frozen=True, eq=False, repr=False)
class Candidates:
    """Points of the unit cube, each one a draw from the prior; parameters and features are computed when asked for.

    Weights w with c/n ≤ w ≤ C/n and sum 1 on a fresh set give a draw whose density against the prior lies in [c, C],
    in any dimension: each point is from the prior given everything before it, whatever the points are jointly.

    >>> from dphypo.entropy import Seeded
    >>> from dphypo.space import Space
    >>> candidates = Space({"batch": [64, 128], "optimizer": ["sgd", "adam"]}).candidates(4, Seeded(1))
    >>> len(candidates), candidates.masses.tolist(), candidates.features.shape
    (4, [0.25, 0.25, 0.25, 0.25], (4, 3))
    >>> candidates.params(0)
    {'batch': 64, 'optimizer': 'adam'}
    """

    space: Space
    unit: Array

    def __len__(self) -> int:
        return len(self.unit)

    @cached_property
    def masses(self) -> Array:
        """The prior masses: 1/n each."""
        return read_only(np.full(len(self), 1 / len(self)))

    @cached_property
    def features(self) -> Array:
        """One row per candidate for a surrogate model."""
        return read_only(self.space.features(self.unit))

    def params(self, index: int) -> dict[str, Any]:
        """The parameters of one candidate."""
        return self.space.from_unit(self.unit[[index]])[0]

    def __repr__(self) -> str:
        return f"Candidates({len(self)} points of {self.unit.shape[1]} parameters)"
