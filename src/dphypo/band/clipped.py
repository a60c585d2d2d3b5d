"""The density of the band of the form u = clip(a + x b, low, high): what ℓ2 and KL both come to."""

from __future__ import annotations

import numpy as np

from dphypo.band.problem import Array, Problem, mass_of
from dphypo.band.root import crossing

ROUNDING = 2.0**-48
"""How close to 1 the total mass is brought: some thirty times the rounding of one number near 1."""


def clipped(
    problem: Problem, offset: Array | float, slope: Array | float, start: float, bracket: tuple[float, float]
) -> Array:
    """u_i = clip(offset_i + x slope_i, low, high) with the x for which Σ p_i u_i = 1; every slope_i > 0.

    The sum does not decrease in x and is linear between the breakpoints (low − offset_i) / slope_i and
    (high − offset_i) / slope_i. Newton's method finds the piece that holds the root and ends on it exactly, in a few
    passes over the cells, which is cheaper than sorting the breakpoints.
    """
    low, high = problem.low, problem.high
    rise: Array | float = problem.prior * slope
    free, kept = np.empty_like(problem.target), np.empty_like(problem.target)  # fresh memory every pass would cost more

    def move(x: float) -> None:
        np.add(offset, x * slope if isinstance(slope, float) else np.multiply(x, slope, out=free), out=free)
        free.clip(low, high, out=kept)

    def evaluate(x: float) -> tuple[float, float]:
        move(x)
        excess = problem.total(kept) - 1.0
        steepness = mass_of(rise, free == kept)
        if steepness == 0.0:
            # Every cell is clipped and Newton has no slope. The root lies on the side that lets go of the cells beyond
            # the nearer limit: take those as unclipped, as variable-fixing methods do, and aim at their root.
            movable = free < high if excess < 0 else free > low
            beyond = problem.total(np.abs(free - kept) * movable)
            steepness = mass_of(rise, movable) * abs(excess) / (abs(excess) + beyond)
        return excess, steepness

    move(crossing(evaluate, start, *bracket, tolerance=ROUNDING))
    return kept
