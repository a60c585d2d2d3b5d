"""The paper's general projection: ℓ2 distance with a Kullback–Leibler penalty."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dphypo import _validate
from dphypo.band._clipped import ROUNDING
from dphypo.band._problem import Array, Problem
from dphypo.band._root import crossing

GREATEST = 2.0**100  # for ν
SMALLEST = 2.0**-200  # in place of a zero that would be divided by


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

    f(κ) minimises ½‖f − π‖₂² + κ KL(π, f). If π lies in the band it is the minimiser, with n = 0. Otherwise n(0) > 0,
    n does not decrease in κ (a heavier penalty never brings f nearer to π) and is bounded, so a solution exists, not
    below ν n(0). It is the only one: each solution satisfies the optimality conditions of the whole problem, and that
    has one minimiser. (Between two, the objective would be constant; then KL makes them agree where π_i > 0, and the
    norm makes f − π parallel, hence equal unless f = π on all those cells, which leaves no mass for the others.)

    ``base`` sets the scale of the norm, and so what a given ν means: with the default, the prior, a space of volume 1.

    Args:
        nu: ν, the weight of the divergence; 0 or greater.

    >>> from dphypo.band import Band
    >>> Band(0.5, 2).project([6, 2, 1], rule=Mixed(0.5)).round(4)
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
        size = math.sqrt(problem.total(target * (target / problem.base)))
        kappa = crossing(
            evaluate, nu * nearest, 0.0, nu * family.farthest(), tolerance=ROUNDING * nu * (nearest + size)
        )
        return family.solve(kappa)


class _Family:
    """f(κ) for every κ ≥ 0, each search for x starting where the one before ended."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.x = 0.0
        self.greatest = float(problem.target.max())
        self.least = float(np.min(problem.base))
        # Work space, kept because fresh memory every pass would cost more: b, √(b² + 4κmr), u unclipped and clipped.
        self.b, self.root, self.free, self.kept = (np.empty_like(problem.target) for _ in range(4))

    def move(self, x: float, pull: Array) -> None:
        """The cells at x, where pull_i = κ m_i r_i."""
        problem, b, root, free = self.problem, self.b, self.root, self.free
        np.add(problem.target, np.multiply(x, problem.base, out=b), out=b)
        np.multiply(4.0, pull, out=root)
        np.sqrt(np.add(root, np.multiply(b, b, out=free), out=root), out=root)
        np.maximum(root, SMALLEST, out=root)  # 0 when b and pull are; such a cell is at the lower limit
        # The positive root of u² − b u − pull without the cancellation of b + √(…) where b < 0.
        np.add(np.abs(b, out=free), root, out=free)
        np.divide(pull, free, out=free)
        np.multiply(2.0, free, out=free)
        np.add(free, np.maximum(b, 0.0, out=b), out=free)
        free.clip(problem.low, problem.high, out=self.kept)

    def solve(self, kappa: float) -> Array:
        """The ratios u of f(κ)."""
        problem = self.problem
        pull = kappa * (problem.base * problem.target)

        def evaluate(x: float) -> tuple[float, float]:
            self.move(x, pull)
            # u′ = m u / √(b² + 4κmr) on the cells inside the band.
            steepness = problem.base * self.kept / self.root * (self.free == self.kept)
            return problem.total(self.kept) - 1.0, problem.total(steepness)

        # A cell leaves low at x = (low − r)/m − κ r/low and reaches high at (high − r)/m − κ r/high.
        first = (problem.low - self.greatest) / self.least - kappa * self.greatest / problem.low
        self.x = crossing(evaluate, self.x, first, problem.high / self.least, tolerance=ROUNDING)
        self.move(self.x, pull)
        return self.kept

    def norm(self, kappa: float) -> tuple[float, float]:
        """n(κ) = ‖f(κ) − π‖ and dn/dκ, by differentiating the quadratic and Σ p_i u_i = 1."""
        problem = self.problem
        target, base = problem.target, problem.base
        ratios = self.solve(kappa)
        gap = ratios - target
        norm = math.sqrt(problem.total(gap * (gap / base)))
        # √(b² + 4κmr) u′ = m (r + u x′) inside the band, the other cells stand still, and Σ p u′ = 0 gives x′.
        inside = (self.free == ratios) / self.root
        across = problem.total(base * ratios * inside)
        if norm == 0.0 or across == 0.0:
            return norm, 0.0
        drift = -problem.total(base * target * inside) / across
        return norm, problem.total(gap * (target + ratios * drift) * inside) / norm

    def farthest(self) -> float:
        """A norm that no density of the band exceeds."""
        problem = self.problem
        gap = np.maximum(problem.target - problem.low, problem.high - problem.target)
        return math.sqrt(problem.total(gap * (gap / problem.base)))
