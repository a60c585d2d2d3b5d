"""The draw from masses in a band, exactly, and the proof after rounding that they are in it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dphypo.band.problem import SUM_TOLERANCE, Array
from dphypo.entropy import Entropy, below, bernoulli

# By how much the band is narrowed before a projection, and by how much its result must be inside. The second covers
# the rounding of each quotient f_i / p_i and that neither masses nor prior sum to 1 exactly: (1 + SUM_TOLERANCE) /
# (1 − SUM_TOLERANCE) is 1 + 2⁻³⁹. The first leaves room for the rounding of the projection itself.
NARROWING = 2.0**-36
MARGIN = 2.0**-38

SCALE = 61  # counts sum to about 2^61, which leaves room for every one of them to be rounded up


def within(masses: Array, prior: Array | float, c: float, C: float) -> bool:
    """Whether c p̂_i ≤ f̂_i ≤ C p̂_i for certain, where f̂_i = f_i / Σf and p̂_i = p_i / Σp as rational numbers.

    Also, then, c p_i ≤ f_i ≤ C p_i for the floats themselves. One number for ``prior`` means p̂_i = 1/N. False may mean
    only that the masses are too close to a limit to tell; :meth:`Band.project` stays clear of it.
    """
    if not (masses.max() <= 2.0 and abs(float(masses.sum()) - 1.0) <= SUM_TOLERANCE):
        return False
    if isinstance(prior, float):
        least, greatest = float(masses.min()) * len(masses), float(masses.max()) * len(masses)
    else:
        with np.errstate(over="ignore"):
            ratios = masses / prior
        least, greatest = float(ratios.min()), float(ratios.max())
    if c * (1.0 + MARGIN) <= least and greatest <= C * (1.0 - MARGIN):
        return True
    # The prior itself is in every band, without a margin: equal masses have equal sums.
    return bool((masses == (masses[0] if isinstance(prior, float) else prior)).all())


def draw(masses: Array, entropy: Entropy) -> int:
    """An index whose probability is exactly masses[i] / Σ masses, as a rational number.

    Each mass, times 2^61, is rounded up to a whole number; an index drawn by those is accepted with the probability
    that the rounding added, as a fraction. A rejection has probability below N / 2^61.
    """
    counts = np.ceil(masses * 2.0**SCALE).astype(np.int64)  # exact: a power of two, and ceil of a float is a float
    ends = np.cumsum(counts)
    while True:
        point = below(int(ends[-1]), entropy)
        index = int(np.searchsorted(ends, point, side="right"))
        exact = Fraction(float(masses[index])) * 2**SCALE
        if bernoulli(exact / int(counts[index]), entropy):
            return index
