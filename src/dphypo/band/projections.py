"""Projections into the band: the paper's ℓ2 one and its general form, the one by Kullback–Leibler divergence, and the
greedy one.

A density of the band is written as its ratio to the prior, u_i = f_i / p_i. Then the band is c ≤ u_i ≤ C for every
cell, the masses sum to one when Σ p_i u_i = 1, and nothing depends on how small the masses are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo._validate import Floats, half_way

Mask: TypeAlias = npt.NDArray[np.bool_]

SUM_TOLERANCE = 2.0**-40
"""The largest difference from 1 of the sum of a prior's masses, and of those that a projection returns."""

# A cell whose prior mass is smaller keeps it and counts for nothing: no product or quotient of the projections then
# overflows, or loses digits to underflow.
TINY = 2.0**-100


@dataclass(frozen=True, repr=False, eq=False)
class Problem:
    """The input of a :class:`Projection`. It has no ``repr``: the weights come from the secret history."""

    scores: Floats
    """In proportion to ``target``, without the rounding of its sum: their order is that of the candidates."""
    target: Floats
    """r_i = π_i / p_i: the density π of the sampler relative to the prior."""
    prior: Floats | float
    """p_i, with 0 for the cells that keep their prior mass; one number when all are equal."""
    low: float
    """The least ratio u_i allowed; above c by the margin that rounding needs."""
    high: float
    """The greatest ratio u_i allowed; below C by the same margin."""

    def total(self, values: Floats | Mask) -> float:
        """Σ p_i · values_i."""
        return mass_of(self.prior, values)


def mass_of(masses: Floats | float, values: Floats | Mask) -> float:
    """Σ masses_i · values_i; one number means that each cell has it, and a mask sums over some of the cells.

    By numpy's pairwise summation, whose error is a few units in the last place.
    """
    return masses * float(values.sum()) if isinstance(masses, float) else float((masses * values).sum())


@runtime_checkable
class Projection(Protocol):
    """A rule that chooses a density of the band. It cannot break the band: its result is checked after rounding."""

    def ratios(self, problem: Problem) -> Floats:
        """u_i = f_i / p_i in [low, high] with Σ p_i u_i = 1."""


def checked_secret(**named: npt.ArrayLike) -> Floats:
    """Non-negative finite numbers, one a candidate, that came from the secret history: the errors show none of them."""
    ((name, values),) = named.items()
    try:
        result = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} are not numbers: give a one-dimensional array of them") from None
    if result.ndim != 1 or not len(result):
        raise ValueError(f"{name} have shape {result.shape}: give a one-dimensional array, one number per candidate")
    if not 0 <= float(result.min()) <= float(result.max()) < math.inf:  # both are nan when any number is
        raise ValueError(f"{name} are not all finite and non-negative: give finite numbers that are 0 or greater")
    return result


def checked_prior(prior: npt.ArrayLike | None, length: int) -> Floats | float:
    """Positive masses that sum to 1 within :data:`SUM_TOLERANCE`; ``1 / length``, one number, when None are given."""
    if prior is None:
        return 1.0 / length
    result = _validate.vector(length=length, prior=prior)
    if not result.min() > 0:
        where = int(np.argmin(result))
        raise ValueError(f"prior[{where}] = {result[where]}: all must be greater than 0; leave out the rest")
    with np.errstate(over="ignore"):
        total = float(result.sum())
    if not abs(total - 1.0) <= SUM_TOLERANCE:
        raise ValueError(f"prior masses sum to {total!r}: they must sum to 1 within {SUM_TOLERANCE:.1g}")
    return result


def make_problem(weights: Floats, prior: Floats | float, low: float, high: float) -> Problem:
    """The projection of checked weights and masses, scaled. Weights in proportion to the prior have equal targets."""
    greatest = weights.max()
    if greatest == 0:
        raise ValueError(
            "all weights are 0, so no candidate can be chosen: give at least one positive weight, or equal weights to "
            "prefer none"
        )
    scores = weights / greatest  # so that the sum of huge weights is finite
    total, largest = float(scores.sum()), float(np.max(prior))
    if not isinstance(prior, float):
        scores /= np.maximum(prior, TINY) / largest
        prior = np.where(prior < TINY, 0.0, prior)
    return Problem(scores, scores / (total * largest), prior, low, high)


def crossing(
    evaluate: Callable[[float], tuple[float, float]], start: float, low: float, high: float, tolerance: float
) -> float:
    """The zero of ``evaluate`` between ``low`` and ``high``, by Newton's method inside a shrinking bracket.

    ``evaluate(x)`` gives the value and the slope there; the value is below zero left of the crossing and above zero
    right of it. Newton's step is exact on the linear piece that contains the root. If a step leaves the bracket, or the
    last two have not halved the value, the bracket is halved instead: in turn at its mean, which suits a root of
    ordinary size, and in float order, which takes at most 64 steps.
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
"""The tolerance of the total mass: some thirty times the rounding of one number near 1."""


def clipped(
    problem: Problem, offset: Floats | float, slope: Floats | float, start: float, bracket: tuple[float, float]
) -> Floats:
    """u_i = clip(offset_i + x slope_i, low, high) with the x for which Σ p_i u_i = 1; every slope_i > 0.

    The sum does not decrease in x and is linear between the breakpoints (low − offset_i) / slope_i and
    (high − offset_i) / slope_i. Newton's method finds the piece that contains the root and ends on it exactly, in a few
    passes over the cells, which is cheaper than sorting the breakpoints.
    """
    low, high = problem.low, problem.high
    rise: Floats | float = problem.prior * slope
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

    With this s the masses sum to one. Where π_i = 0, a trace of the prior replaces it, so that an s exists even if all
    other cells are at C p_i: the cells without weight then share the rest in proportion to their prior masses.

    >>> from dphypo.band import Band
    >>> Band(0.5, 2).project([6, 2, 1], projection=KL()).round(4)
    array([0.625 , 0.2083, 0.1667])
    """

    history_only: ClassVar[bool] = True  # the ratios are a function of the problem

    def ratios(self, problem: Problem) -> Floats:
        """u_i = clip(s r_i, low, high)."""
        slope = np.maximum(problem.target, TRACE)
        bracket = (problem.low / float(slope.max()), problem.high / float(slope.min()))
        return clipped(problem, 0.0, slope, start=1.0, bracket=bracket)


@dataclass(frozen=True)
class L2:
    """Minimise ‖f − π‖₂ over the band: the functional projection of the paper.

    The norm is ‖f − π‖₂² = Σ (f_i − π_i)² / p_i, the integral over the prior of the squared difference of the
    densities. Setting the derivative of the Lagrangian to zero and clipping gives
    f_i = clip(π_i + ν p_i, c p_i, C p_i), with the ν for which the masses sum to one.

    >>> from dphypo.band import Band
    >>> Band(0.5, 2).project([6, 1, 1], projection=L2()).round(4)
    array([0.6667, 0.1667, 0.1667])
    """

    history_only: ClassVar[bool] = True  # the ratios are a function of the problem

    def ratios(self, problem: Problem) -> Floats:
        """u_i = clip(r_i + ν, low, high)."""
        target = problem.target
        bracket = (problem.low - float(target.max()), problem.high - float(target.min()))
        return clipped(problem, target, 1.0, start=0.0, bracket=bracket)


@dataclass(frozen=True)
class Greedy:
    """Maximise Σ f_i r_i over the band, r_i = π_i / p_i: C p_i on the cells of greatest density, c p_i on the rest.

    Only the order of the densities matters. A density of the band can be at C on prior mass p = (1−c)/(C−c) while the
    rest is at c. Going down, the density at which that mass is reached is the boundary: its cells share what is left in
    proportion to their prior masses, so the result does not depend on the order of the candidates.

    >>> from dphypo.band import Band
    >>> Band(0.5, 2).project([3, 1, 7, 2], projection=Greedy()).round(4)
    array([0.25 , 0.125, 0.5  , 0.125])
    """

    history_only: ClassVar[bool] = True  # the ratios are a function of the problem

    def ratios(self, problem: Problem) -> Floats:
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


def _score_at(scores: Floats, prior: Floats | float, mass: float) -> float:
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


GREATEST = 2.0**100  # for ν
SMALLEST = 2.0**-200  # in place of a root of 0, which is that of a cell at the lower limit


@dataclass(frozen=True)
class Mixed:
    """Minimise ‖f − π‖₂ + ν KL(π, f) over the band; ν = 0 is :class:`L2`, and ν → ∞ tends to :class:`KL`.

    The norm is that of :class:`L2`, and KL(π, f) = Σ π_i log(π_i / f_i). With n = ‖f − π‖₂ > 0, κ = ν n and x the
    multiplier of Σ f_i = 1 times n, the optimality condition is a quadratic in f_i whose positive root is

        f_i = clip( (b_i + √(b_i² + 4 κ p_i π_i)) / 2, c p_i, C p_i ),  b_i = π_i + x p_i.

    For fixed κ each f_i increases in x, so Σ f_i = 1 is one monotone root. What remains is one equation in κ,
    κ = ν n(κ). If π lies in the band it is the minimiser, with n = 0. Otherwise there is one solution, and it is not
    below ν n(0): docs/theory/search.md, section "Projection".

    Args:
        nu: ν, the weight of the divergence; 0 or greater.

    >>> from dphypo.band import Band
    >>> Band(0.5, 2).project([6, 2, 1], projection=Mixed(0.5)).round(4)
    array([0.638 , 0.1954, 0.1667])
    """

    history_only: ClassVar[bool] = True
    nu: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "nu", _validate.non_negative(nu=self.nu))

    def ratios(self, problem: Problem) -> Floats:
        """u_i = clip((b_i + √(b_i² + 4 κ r_i)) / 2, low, high) with b_i = r_i + x."""
        target, total, x = problem.target, problem.total, 0.0
        if problem.low <= target.min() and target.max() <= problem.high:
            return target
        nu = min(self.nu, GREATEST)  # the cap keeps κ finite; far below it the divergence decides alone

        def norm(kappa: float) -> tuple[float, float]:
            """n(κ) = ‖f(κ) − π‖ and dn/dκ, each search for x starting where the one before ended.

            Inside the band √(b² + 4κr) u′ = r + u x′, by differentiating the quadratic in κ; the other cells do
            not move, and Σ p u′ = 0 gives x′.
            """
            nonlocal x
            x = _solve(problem, kappa, x)
            ratios, per_root = _cells(problem, kappa, x)
            gap = ratios - target
            size, across = math.sqrt(total(gap * gap)), total(ratios * per_root)
            if size == 0.0 or across == 0.0:
                return size, 0.0
            turn = total(gap * ratios * per_root) * total(target * per_root) / across
            return size, (total(gap * target * per_root) - turn) / size

        def evaluate(kappa: float) -> tuple[float, float]:
            size, steepness = norm(kappa)
            return kappa - nu * size, 1.0 - nu * steepness

        nearest, _ = norm(0.0)
        tolerance = ROUNDING * nu * (nearest + math.sqrt(total(target * target)))
        gap = np.maximum(target - problem.low, problem.high - target)
        farthest = math.sqrt(total(gap * gap))  # no density of the band is farther
        kappa = crossing(evaluate, nu * nearest, 0.0, nu * farthest, tolerance)
        return _cells(problem, kappa, _solve(problem, kappa, x))[0]


def _solve(problem: Problem, kappa: float, start: float) -> float:
    """The x for which f(κ) sums to one."""
    low, greatest = problem.low, float(problem.target.max())

    def evaluate(x: float) -> tuple[float, float]:
        ratios, per_root = _cells(problem, kappa, x)
        # u′ = u / √(b² + 4κr) on the cells inside the band.
        return problem.total(ratios) - 1.0, problem.total(ratios * per_root)

    # A cell leaves low at x = low − r − κ r/low and reaches high at high − r − κ r/high.
    return crossing(evaluate, start, low - greatest - kappa * greatest / low, problem.high, ROUNDING)


def _cells(problem: Problem, kappa: float, x: float) -> tuple[Floats, Floats]:
    """The ratios u_i, and 1/√(b_i² + 4 κ r_i) for those inside the band, 0 for those at a limit."""
    b = problem.target + x
    pull = kappa * problem.target
    root = np.maximum(np.sqrt(b * b + 4.0 * pull), SMALLEST)
    # The positive root of u² − b u − pull, without the cancellation of b + √(…) where b < 0.
    free = 2.0 * pull / (np.abs(b) + root) + np.maximum(b, 0.0)
    ratios = free.clip(problem.low, problem.high)
    return ratios, (free == ratios) / root


def named_projection(name: str) -> Projection:
    """The projection of this name: "greedy", "kl" or "l2"."""
    known: dict[str, Projection] = {"greedy": Greedy(), "kl": KL(), "l2": L2()}
    if name not in known:
        raise _validate.fail("projection", name, f"it is one of {', '.join(known)}, or dphypo.band.Mixed(nu)")
    return known[name]
