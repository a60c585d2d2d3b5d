"""The paper's projection: the density of the band nearest to the sampler's in ℓ2."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dphypo.band.clipped import clipped
from dphypo.band.problem import Array, Problem, register


@register("l2")
@dataclass(frozen=True)
class L2:
    """Minimise ‖f − π‖₂ over the band: the functional projection of the paper.

    On cells of base measure μ_i the norm is ‖f − π‖₂² = Σ (f_i − π_i)² / μ_i, the integral of the squared difference
    of the densities. Setting the derivative of the Lagrangian to zero and clipping gives
    f_i = clip(π_i + ν μ_i, c p_i, C p_i), with the ν for which the masses sum to one.

    >>> from dphypo.band import Band
    >>> Band(0.5, 2).project([6, 1, 1], rule=L2()).round(4)
    array([0.6667, 0.1667, 0.1667])
    """

    def ratios(self, problem: Problem) -> Array:
        """u_i = clip(r_i + ν m_i, low, high)."""
        target, base = problem.target, problem.base
        least = float(np.min(base))
        bracket = ((problem.low - float(target.max())) / least, (problem.high - float(target.min())) / least)
        return clipped(problem, target, base, start=0.0, bracket=bracket)
