"""The information projection: the density of the band nearest to the sampler's in Kullback–Leibler divergence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dphypo.band.clipped import clipped
from dphypo.band.problem import Array, Problem, register

# What a weight of zero counts as, relative to the prior: below any ratio that could matter, above what would overflow.
TRACE = 2.0**-500


@register("kl")
@dataclass(frozen=True)
class KL:
    """Minimise KL(π, f), or KL(f, π), over the band: both give f_i = clip(s π_i, c p_i, C p_i).

    The s is the one for which the masses sum to one. Where π_i = 0 a trace of the prior stands in for it, so that an s
    exists even when all other cells are at C p_i: the cells without weight then share what is left in proportion to
    their prior masses. Neither divergence depends on the base measure.

    >>> from dphypo.band import Band
    >>> Band(0.5, 2).project([6, 2, 1], rule=KL()).round(4)
    array([0.625 , 0.2083, 0.1667])
    >>> Band(0.5, 2).project([1, 0, 0, 0], rule=KL()).round(4)
    array([0.5   , 0.1667, 0.1667, 0.1667])
    """

    def ratios(self, problem: Problem) -> Array:
        """u_i = clip(s r_i, low, high)."""
        slope = np.maximum(problem.target, TRACE)
        bracket = (problem.low / float(slope.max()), problem.high / float(slope.min()))
        return clipped(problem, 0.0, slope, start=1.0, bracket=bracket)
