"""The paper's general projection: ℓ2 distance with a Kullback–Leibler penalty."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dphypo import _validate
from dphypo.band.problem import Array, Problem, Projection
from dphypo.band.projections import KL, L2, ROUNDING, Greedy, crossing

GREATEST = 2.0**100  # for ν
SMALLEST = 2.0**-200  # in place of a root of 0, which is that of a cell at the lower limit


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

    history_only: ClassVar[bool] = True
    nu: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "nu", _validate.non_negative(nu=self.nu))

    def ratios(self, problem: Problem) -> Array:
        """u_i = clip((b_i + √(b_i² + 4 κ m_i r_i)) / 2, low, high) with b_i = r_i + x m_i."""
        target, base, total, x = problem.target, problem.base, problem.total, 0.0
        if problem.low <= target.min() and target.max() <= problem.high:
            return target
        # The problem's base is μ divided by Σμ: the norm in it is larger by the root of that, and κ by all of it. The
        # cap keeps κ finite; far below it the divergence decides alone.
        nu = min(self.nu * problem.base_root, GREATEST)

        def norm(kappa: float) -> tuple[float, float]:
            """n(κ) = ‖f(κ) − π‖ and dn/dκ, each search for x starting where the one before ended.

            Inside the band √(b² + 4κmr) u′ = m (r + u x′), by differentiating the quadratic in κ; the other cells stand
            still, and Σ p u′ = 0 gives x′.
            """
            nonlocal x
            x = _solve(problem, kappa, x)
            ratios, per_root = _cells(problem, kappa, x)
            gap = ratios - target
            size, across = math.sqrt(total(gap * (gap / base))), total(base * ratios * per_root)
            if size == 0.0 or across == 0.0:
                return size, 0.0
            turn = total(gap * ratios * per_root) * total(base * target * per_root) / across
            return size, (total(gap * target * per_root) - turn) / size

        def evaluate(kappa: float) -> tuple[float, float]:
            size, steepness = norm(kappa)
            return kappa - nu * size, 1.0 - nu * steepness

        nearest, _ = norm(0.0)
        tolerance = ROUNDING * nu * (nearest + math.sqrt(total(target * (target / base))))
        gap = np.maximum(target - problem.low, problem.high - target)
        farthest = math.sqrt(total(gap * (gap / base)))  # no density of the band is farther
        kappa = crossing(evaluate, nu * nearest, 0.0, nu * farthest, tolerance)
        return _cells(problem, kappa, _solve(problem, kappa, x))[0]


def _solve(problem: Problem, kappa: float, start: float) -> float:
    """The x for which f(κ) sums to one."""
    low, greatest, least = problem.low, float(problem.target.max()), float(np.min(problem.base))

    def evaluate(x: float) -> tuple[float, float]:
        ratios, per_root = _cells(problem, kappa, x)
        # u′ = m u / √(b² + 4κmr) on the cells inside the band.
        return problem.total(ratios) - 1.0, problem.total(problem.base * ratios * per_root)

    # A cell leaves low at x = (low − r)/m − κ r/low and reaches high at (high − r)/m − κ r/high.
    first = (low - greatest) / least - kappa * greatest / low
    return crossing(evaluate, start, first, problem.high / least, ROUNDING)


def _cells(problem: Problem, kappa: float, x: float) -> tuple[Array, Array]:
    """The ratios u_i, and 1/√(b_i² + 4 κ m_i r_i) for those inside the band, 0 for those at a limit."""
    b = problem.target + x * problem.base
    pull = kappa * (problem.base * problem.target)
    root = np.maximum(np.sqrt(b * b + 4.0 * pull), SMALLEST)
    # The positive root of u² − b u − pull, without the cancellation of b + √(…) where b < 0.
    free = 2.0 * pull / (np.abs(b) + root) + np.maximum(b, 0.0)
    ratios = free.clip(problem.low, problem.high)
    return ratios, (free == ratios) / root


def named_projection(name: str, **options: float) -> Projection:
    """The projection of this name: "greedy", "kl", "l2" or "mixed".

    >>> named_projection("mixed", nu=0.5)
    Mixed(nu=0.5)
    """
    known: dict[str, Callable[..., Projection]] = {"greedy": Greedy, "kl": KL, "l2": L2, "mixed": Mixed}
    if not isinstance(name, str) or name not in known:
        raise _validate.fail("projection", name, f"it must be one of {', '.join(known)}")
    return known[name](**options)
