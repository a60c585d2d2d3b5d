"""The paper's general projection: ℓ2 distance with a Kullback–Leibler penalty."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dphypo import _validate
from dphypo.band.problem import Array, Problem, register
from dphypo.band.projections import ROUNDING, crossing

GREATEST = 2.0**100  # for ν
SMALLEST = 2.0**-200  # in place of a root of 0, which is that of a cell at the lower limit


@register("mixed")
@dataclass(frozen=True)
class Mixed:
    """Minimise ‖f − π‖₂ + ν KL(π, f) over the band; ν = 0 is :class:`L2`, and ν → ∞ tends to :class:`KL`.

    **Optimality.** With ‖f − π‖₂² = Σ (f_i − π_i)² / μ_i, KL(π, f) = Σ π_i log(π_i / f_i), n = ‖f − π‖₂ > 0 and λ the
    multiplier of Σ f_i = 1, a cell strictly inside the band has

        (f_i − π_i) / (n μ_i) − ν π_i / f_i = λ.

    The left side increases in f_i, so a cell at a limit is the solution clipped to it. Write κ = ν n and x = λ n: this
    is a quadratic in f_i whose positive root is

        f_i = clip( (b_i + √(b_i² + 4 κ μ_i π_i)) / 2, c p_i, C p_i ),  b_i = π_i + x μ_i.

    For fixed κ each f_i increases in x, so Σ f_i = 1 is one monotone root. What remains is one equation in κ,

        κ = ν ‖f(κ) − π‖₂.

    If π lies in the band it is the minimiser, with n = 0. Otherwise there is one solution, and it is not below ν n(0):
    docs/theory/search.md, section "Projection".

    ``base`` sets the scale of the norm, and so what a given ν means: with the default, the prior, a space of volume 1.

    Args:
        nu: ν, the weight of the divergence; 0 or greater.

    >>> from dphypo.band import Band
    >>> Band(0.5, 2).project([6, 2, 1], projection=Mixed(0.5)).round(4)
    array([0.638 , 0.1954, 0.1667])
    """

    nu: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "nu", _validate.non_negative(nu=self.nu))

    def ratios(self, problem: Problem) -> Array:
        """u_i = clip((b_i + √(b_i² + 4 κ m_i r_i)) / 2, low, high) with b_i = r_i + x m_i."""
        target = problem.target
        if problem.low <= target.min() and target.max() <= problem.high:
            return target
        family = _Family(problem)
        # The problem's base is μ divided by Σμ: the norm in it is larger by the root of that, and κ by all of it. The
        # cap keeps κ finite; far below it the divergence decides alone.
        nu = min(self.nu * problem.base_root, GREATEST)

        def evaluate(kappa: float) -> tuple[float, float]:
            norm, steepness = family.norm(kappa)
            return kappa - nu * norm, 1.0 - nu * steepness

        nearest, _ = family.norm(0.0)
        tolerance = ROUNDING * nu * (nearest + family.size())
        kappa = crossing(evaluate, nu * nearest, 0.0, nu * family.farthest(), tolerance)
        x = family.solve(kappa)
        return np.concatenate([_cells(part, kappa, x)[0] for part in family.parts])


class _Family:
    """f(κ) for every κ ≥ 0, each search for x starting where the one before ended."""

    def __init__(self, problem: Problem) -> None:
        self.parts = problem.parts()
        self.low, self.high = problem.low, problem.high
        self.greatest = float(problem.target.max())
        self.least = float(np.min(problem.base))
        self.x = 0.0

    def sums(self, terms: Callable[[Problem], tuple[float, ...]]) -> tuple[float, ...]:
        """The terms, each added up over the parts."""
        return tuple(math.fsum(column) for column in zip(*map(terms, self.parts), strict=True))

    def solve(self, kappa: float) -> float:
        """The x for which f(κ) sums to one."""

        def mass_and_rise(part: Problem, x: float) -> tuple[float, float]:
            ratios, per_root = _cells(part, kappa, x)
            # u′ = m u / √(b² + 4κmr) on the cells inside the band.
            return part.total(ratios), part.total(part.base * ratios * per_root)

        def evaluate(x: float) -> tuple[float, float]:
            mass, rise = self.sums(lambda part: mass_and_rise(part, x))
            return mass - 1.0, rise

        # A cell leaves low at x = (low − r)/m − κ r/low and reaches high at (high − r)/m − κ r/high.
        first = (self.low - self.greatest) / self.least - kappa * self.greatest / self.low
        self.x = crossing(evaluate, self.x, first, self.high / self.least, ROUNDING)
        return self.x

    def norm(self, kappa: float) -> tuple[float, float]:
        """n(κ) = ‖f(κ) − π‖ and dn/dκ.

        Inside the band √(b² + 4κmr) u′ = m (r + u x′), by differentiating the quadratic in κ; the other cells stand
        still, and Σ p u′ = 0 gives x′.
        """
        x = self.solve(kappa)

        def terms(part: Problem) -> tuple[float, ...]:
            ratios, per_root = _cells(part, kappa, x)
            gap, target = ratios - part.target, part.target
            return (
                part.total(gap * (gap / part.base)),
                part.total(part.base * ratios * per_root),
                part.total(part.base * target * per_root),
                part.total(gap * ratios * per_root),
                part.total(gap * target * per_root),
            )

        square, across, along, gap_across, gap_along = self.sums(terms)
        norm = math.sqrt(square)
        if norm == 0.0 or across == 0.0:
            return norm, 0.0
        return norm, (gap_along - gap_across * along / across) / norm

    def size(self) -> float:
        """‖π‖."""
        return math.sqrt(*self.sums(lambda part: (part.total(part.target * (part.target / part.base)),)))

    def farthest(self) -> float:
        """A norm that no density of the band exceeds."""

        def terms(part: Problem) -> tuple[float]:
            gap = np.maximum(part.target - part.low, part.high - part.target)
            return (part.total(gap * (gap / part.base)),)

        return math.sqrt(*self.sums(terms))


def _cells(part: Problem, kappa: float, x: float) -> tuple[Array, Array]:
    """The ratios u_i, and 1/√(b_i² + 4 κ m_i r_i) for those inside the band, 0 for those at a limit."""
    b = part.target + x * part.base
    pull = kappa * (part.base * part.target)
    root = np.maximum(np.sqrt(b * b + 4.0 * pull), SMALLEST)
    # The positive root of u² − b u − pull, without the cancellation of b + √(…) where b < 0.
    free = 2.0 * pull / (np.abs(b) + root) + np.maximum(b, 0.0)
    ratios = free.clip(part.low, part.high)
    return ratios, (free == ratios) / root
