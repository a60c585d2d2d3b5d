"""The band (c, C) of densities around the prior, the exact draw from it, and the proof after rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo._validate import Floats
from dphypo.band.projections import (
    L2,
    SUM_TOLERANCE,
    TINY,
    Projection,
    checked_prior,
    checked_secret,
    make_problem,
)
from dphypo.entropy import Entropy, below, bernoulli

# The narrowed band keeps to ratios in between: what lies outside is lost when masses are added up to 1 in any case.
RATIO_LIMIT = 2.0**64

# By how much the band is narrowed before a projection, and by how much its result must be inside. The second covers
# the rounding of each quotient f_i / p_i and that neither masses nor prior sum to 1 exactly: (1 + SUM_TOLERANCE) /
# (1 − SUM_TOLERANCE) is 1 + 2⁻³⁹. The first leaves room for the rounding of the projection itself.
NARROWING = 2.0**-36
MARGIN = 2.0**-38

SCALE = 61  # counts sum to about 2^61, which leaves room for every one of them to be rounded up

_PAPER = L2()


@dataclass(frozen=True)
class Band:
    """The densities f with c ≤ f/π₀ ≤ C relative to the prior π₀: the set S_{C,c} of the paper.

    **Guarantee.** Whatever the weights, :meth:`project` returns masses f_i with c p_i ≤ f_i ≤ C p_i, and :meth:`draw`
    draws from them with probabilities that keep to the band as rational numbers: no rounding is left to trust. This is
    the condition on the sampling density under which the privacy theorems hold for any adaptive search.

    Args:
        c: lower limit of the density ratio, in (0, 1); or 1 together with C = 1.
        C: upper limit of the density ratio, above 1; or 1 together with c = 1, for a search that is not adaptive.

    >>> band = Band(0.75, 2)
    >>> masses = band.project([5, 1, 1, 1])
    >>> masses.round(4)
    array([0.4375, 0.1875, 0.1875, 0.1875])
    >>> from dphypo.entropy import Seeded
    >>> band.draw(masses, Seeded(1))
    3
    """

    c: float
    C: float

    def __post_init__(self) -> None:
        c, C = _validate.positive(c=self.c), _validate.positive(C=self.C)
        if c > 1:
            raise _validate.fail("c", self.c, "it must be at most 1: densities integrate to 1, so all cannot exceed it")
        if C < 1:
            raise _validate.fail("C", self.C, "it must be at least 1: densities integrate to 1, so all cannot be less")
        if (c == 1) != (C == 1):
            remedy = "this band contains only the prior, since densities integrate to 1; give c < 1 < C, or c = C = 1"
            raise _validate.fail("(c, C)", (c, C), remedy)
        object.__setattr__(self, "c", c)
        object.__setattr__(self, "C", C)

    @classmethod
    def of(cls, band: BandLike) -> Band:
        """A band from itself, or from the pair (c, C).

        >>> Band.of((0.5, 2))
        Band(c=0.5, C=2.0)
        >>> Band.of(2)
        Traceback (most recent call last):
        ValueError: band = 2 is not valid: give a band, such as dphypo.Band(0.75, 2), or the pair (0.75, 2)
        """
        if isinstance(band, cls):
            return band
        if not isinstance(band, (tuple, list)) or len(band) != 2:
            raise _validate.fail("band", band, "give a band, such as dphypo.Band(0.75, 2), or the pair (0.75, 2)")
        return cls(*band)

    @property
    def log_ratio(self) -> float:
        """L = log(C/c): what the band adds to the privacy loss of a run, at most."""
        return math.log(self.C) - math.log(self.c)

    @property
    def p(self) -> float:
        """(1−c)/(C−c): the largest prior mass that can be at C while the rest is at c.

        With c = C = 1 every mass is; the value is then ½, by convention, and nothing depends on it.
        """
        return (1.0 - self.c) / (self.C - self.c) if self.C > 1 else 0.5

    @property
    def q(self) -> float:
        """min(p, 1 − p): the largest prior mass that can be at C in one density and at c in another.

        It is not computed from p: where C is close to 1, so is p, and 1 − p would be rounding alone.
        """
        return min(1.0 - self.c, self.C - 1.0) / (self.C - self.c) if self.C > 1 else 0.5

    def project(
        self,
        weights: npt.ArrayLike,
        prior: npt.ArrayLike | None = None,
        projection: Projection = _PAPER,
    ) -> Floats:
        """The masses in the band that replace the sampler's weights.

        The density π that is projected has masses π_i = weights_i / Σ weights: a sampler that thinks of a density on
        cells of unequal size multiplies it by their masses first.

        The masses satisfy c p_i ≤ f_i ≤ C p_i in exact arithmetic and sum to 1 within 2⁻⁴⁰ ≈ 9e-13. For that the
        projection is onto a band narrower by a factor 1 ± 2⁻³⁶, its ratios within 2^±64; cells of prior mass below
        2⁻¹⁰⁰ keep it, and in a band too narrow to narrow, as with c = C = 1, all cells do.

        Args:
            weights: non-negative, finite, not all zero; any scale.
            prior: prior masses p_i > 0 that sum to 1; by default all are 1/N, as for candidates drawn from the prior.
            projection: which density of the band to take; the paper's ℓ2 projection by default.

        Raises:
            ValueError: every weight is zero.
            ValueError: an argument is not valid.

        >>> Band(0.5, 2).project([0, 1, 3], prior=[0.5, 0.25, 0.25]).round(4)
        array([0.25, 0.25, 0.5 ])
        """
        checked = checked_secret(weights=weights)
        prior_masses = checked_prior(prior, len(checked))
        low = max(self.c * (1.0 + NARROWING), 1.0 / RATIO_LIMIT)
        high = min(self.C * (1.0 - NARROWING), RATIO_LIMIT)
        problem = make_problem(checked, prior_masses, low, high)
        if low > 1.0 - MARGIN or high < 1.0 + MARGIN:
            return np.array(np.broadcast_to(prior_masses, checked.shape))
        masses = np.asarray(projection.ratios(problem) * prior_masses, dtype=np.float64)
        if not isinstance(prior_masses, float):
            masses = np.where(prior_masses < TINY, prior_masses, masses)
        if masses.shape != checked.shape or not within(masses, prior_masses, self.c, self.C):
            raise RuntimeError(f"{projection!r} is faulty: its result left the band after rounding. Nothing was drawn")
        return masses

    def draw(self, masses: npt.ArrayLike, entropy: Entropy, prior: npt.ArrayLike | None = None) -> int:
        """An index, drawn with a probability that is in the band for certain.

        The probability of index i is the rational number f̂_i = f_i / Σf, the floats taken at their exact values. The
        prior is taken likewise, p̂_i = p_i / Σp, or 1/N when none is given, and c p̂_i ≤ f̂_i ≤ C p̂_i is verified.

        Args:
            masses: what :meth:`project` returned for the same prior.
            entropy: where the randomness comes from.
            prior: as given to :meth:`project`.

        Raises:
            ValueError: the masses are not in the band by the margin that rounding needs.

        >>> from dphypo.entropy import Seeded
        >>> Band(1, 1).draw([0.25, 0.25, 0.25, 0.25], Seeded(0))
        1
        """
        checked = checked_secret(masses=masses)
        if not within(checked, checked_prior(prior, len(checked)), self.c, self.C):
            raise ValueError(f"masses are not in {self!r} for this prior: use the masses that project returned for it")
        return draw_exactly(checked, entropy)


BandLike = Band | tuple[float, float]
"""A band, or its two numbers (c, C)."""


def within(masses: Floats, prior: Floats | float, c: float, C: float) -> bool:
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


def draw_exactly(masses: Floats, entropy: Entropy) -> int:
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
