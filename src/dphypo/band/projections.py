"""The paper's ℓ2 projection, the one by Kullback–Leibler divergence, and the greedy one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dphypo._floats import half_way
from dphypo.band.problem import Array, Problem, mass_of


def crossing(
    evaluate: Callable[[float], tuple[float, float]], start: float, low: float, high: float, tolerance: float
) -> float:
    """Where ``evaluate`` crosses zero between ``low`` and ``high``: Newton's method inside a shrinking bracket.

    ``evaluate(x)`` gives the value and the slope there; the value is below zero left of the crossing and above zero
    right of it. Newton's step is exact on the linear piece that holds the root. Where a step leaves the bracket, or the
    last two have not halved the value, the bracket is halved instead: in turn at its mean, which suits a root of
    ordinary size, and at the float half way through the floats it holds, after at most 64 of which no float is left.
    """
    x, by_mean = min(max(start, low), high), True
    older = previous = math.inf
    while True:
        value, slope = evaluate(x)
        if abs(value) <= tolerance:
            return x
        if value < 0:
            low = x
        else:
            high = x
        step = x - value / slope if slope > 0 else math.nan
        if low < step < high and abs(value) <= older / 2:
            x, older, previous = step, previous, abs(value)
            continue
        x = 0.5 * low + 0.5 * high if by_mean else half_way(low, high)
        older = previous = math.inf
        by_mean = not by_mean
        if not low < x < high:
            x = half_way(low, high)
            if not low < x < high:  # neighbouring floats: the crossing lies between them
                return low


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


# What a weight of zero counts as, relative to the prior: below any ratio that could matter, above what would overflow.
TRACE = 2.0**-500


@dataclass(frozen=True)
class KL:
    """Minimise KL(π, f), or KL(f, π), over the band: both give f_i = clip(s π_i, c p_i, C p_i).

    The s is the one for which the masses sum to one. Where π_i = 0 a trace of the prior stands in for it, so that an s
    exists even when all other cells are at C p_i: the cells without weight then share what is left in proportion to
    their prior masses. Neither divergence depends on the base measure.

    >>> from dphypo.band import Band
    >>> Band(0.5, 2).project([6, 2, 1], projection=KL()).round(4)
    array([0.625 , 0.2083, 0.1667])
    """

    history_only: ClassVar[bool] = True  # the ratios are a function of the problem

    def ratios(self, problem: Problem) -> Array:
        """u_i = clip(s r_i, low, high)."""
        slope = np.maximum(problem.target, TRACE)
        bracket = (problem.low / float(slope.max()), problem.high / float(slope.min()))
        return clipped(problem, 0.0, slope, start=1.0, bracket=bracket)


@dataclass(frozen=True)
class L2:
    """Minimise ‖f − π‖₂ over the band: the functional projection of the paper.

    On cells of base measure μ_i the norm is ‖f − π‖₂² = Σ (f_i − π_i)² / μ_i, the integral of the squared difference
    of the densities. Setting the derivative of the Lagrangian to zero and clipping gives
    f_i = clip(π_i + ν μ_i, c p_i, C p_i), with the ν for which the masses sum to one.

    >>> from dphypo.band import Band
    >>> Band(0.5, 2).project([6, 1, 1], projection=L2()).round(4)
    array([0.6667, 0.1667, 0.1667])
    """

    history_only: ClassVar[bool] = True  # the ratios are a function of the problem

    def ratios(self, problem: Problem) -> Array:
        """u_i = clip(r_i + ν m_i, low, high)."""
        target, base = problem.target, problem.base
        least = float(np.min(base))
        bracket = ((problem.low - float(target.max())) / least, (problem.high - float(target.min())) / least)
        return clipped(problem, target, base, start=0.0, bracket=bracket)


@dataclass(frozen=True)
class Greedy:
    """Maximise Σ f_i w_i over the band: C p_i on the cells of greatest weight, c p_i on the rest.

    Only the order of the weights matters. A density of the band can be at C on prior mass p = (1−c)/(C−c) while the
    rest is at c. Going down the weights, the one at which that mass is reached is the boundary: its cells share what
    is left in proportion to their prior masses, so the result does not depend on the order of the candidates.

    Without a base measure the weights are scores. With one they are masses, as for the other projections, and cells are
    ranked by their density w_i / μ_i: give the prior masses as ``base`` when the weights are masses on unequal cells.

    >>> from dphypo.band import Band
    >>> Band(0.5, 2).project([3, 1, 7, 2], projection=Greedy()).round(4)
    array([0.25 , 0.125, 0.5  , 0.125])
    """

    history_only: ClassVar[bool] = True  # the ratios are a function of the problem

    def ratios(self, problem: Problem) -> Array:
        """u_i = high above the boundary, low below it, and what is left on it."""
        scores, low, high = problem.scores, problem.low, problem.high
        above = (1.0 - low * problem.total(np.ones_like(scores))) / (high - low)
        boundary = _score_at(scores, problem.prior, above)
        ratios = np.where(scores > boundary, high, low)
        on = scores == boundary
        # What the mass on the boundary has to make up, so that all sums to one; rounding alone can leave [low, high].
        short, held = 1.0 - problem.total(np.where(on, 0.0, ratios)), problem.total(on)
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
