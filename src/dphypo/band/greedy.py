"""The strongest use of a band: as much as it allows on the best candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dphypo.band.problem import Array, Problem, mass_of, register


@register("greedy")
@dataclass(frozen=True)
class Greedy:
    """Maximise Σ f_i w_i over the band: C p_i on the cells of greatest weight, c p_i on the rest.

    Only the order of the weights matters. A density of the band can be at C on prior mass p = (1−c)/(C−c) while the
    rest is at c. Going down the weights, the one at which that mass is reached is the boundary: its cells share what
    is left in proportion to their prior masses, so the result does not depend on the order of the candidates.

    Without a base measure the weights are scores. With one they are masses, as for the other rules, and cells are
    ranked by their density w_i / μ_i: give the prior masses as ``base`` when the weights are masses on unequal cells.

    >>> from dphypo.band import Band
    >>> Band(0.5, 2).project([3, 1, 7, 2], rule=Greedy()).round(4)
    array([0.25 , 0.125, 0.5  , 0.125])
    >>> Band(0.5, 2).project([7, 1, 1, 1], rule=Greedy()).round(4)
    array([0.5   , 0.1667, 0.1667, 0.1667])
    """

    def ratios(self, problem: Problem) -> Array:
        """u_i = high above the boundary, low below it, and what is left on it."""
        scores, low, high = problem.scores, problem.low, problem.high
        above = (1.0 - low * problem.total(np.ones_like(scores))) / (high - low)
        boundary = _score_at(scores, problem.prior, above)
        ratios = np.where(scores > boundary, high, low)
        on = scores == boundary
        # What the mass on the boundary has to make up, so that all sums to one; rounding alone can leave [low, high].
        short, held = 1.0 - problem.total(np.where(on, 0.0, ratios)), mass_of(problem.prior, on)
        ratios[on] = min(max(short / held, low), high) if held > 0 else low
        return ratios


def _score_at(scores: Array, prior: Array | float, mass: float) -> float:
    """The greatest score such that cells of it or more have at least this prior mass: a weighted quickselect."""
    while True:
        middle = len(scores) // 2
        pivot = float(np.partition(scores, middle)[middle])
        greater, less = scores > pivot, scores < pivot
        if greater.any() and mass_of(prior, greater) >= mass:
            keep = greater
        elif not less.any() or mass_of(prior, ~less) >= mass:
            return pivot
        else:
            mass -= mass_of(prior, ~less)
            keep = less
        scores = scores[keep]
        prior = prior if isinstance(prior, float) else prior[keep]
