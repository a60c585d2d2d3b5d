"""What a projection starts from: the target, the prior and the base measure, checked and put on one scale.

A density of the band is written as its ratio to the prior, u_i = f_i / p_i. Then the band is c ≤ u_i ≤ C for every
cell, the masses sum to one when Σ p_i u_i = 1, and nothing depends on how small the masses are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from dphypo import _validate

Array: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

SUM_TOLERANCE = 2.0**-40
"""How far from 1 the masses of a prior, and those that a projection returns, may sum."""

# A cell whose prior mass is smaller keeps it and counts for nothing, and no base mass counts as less than this part of
# the largest: no product or quotient of the projections then overflows, or loses digits to underflow.
TINY = 2.0**-100


@dataclass(frozen=True, repr=False, eq=False)
class Problem:
    """What a :class:`Projection` is given. It has no ``repr``: the weights come from the secret history."""

    scores: Array
    """The weights as the sampler returned them; ∝ weights_i / μ_i if a base measure was given."""
    target: Array
    """r_i = π_i / p_i: the density π of the sampler relative to the prior."""
    prior: Array | float
    """p_i, with 0 for the cells that keep their prior mass; one number when all are equal."""
    base: Array | float
    """m_i ∝ μ_i / p_i, the base measure relative to the prior, with μ scaled to sum to 1."""
    base_root: float
    """√Σ μ_i: the square root of what the base measure was divided by."""
    low: float
    """The least ratio u_i allowed; above c by the margin that rounding needs."""
    high: float
    """The greatest ratio u_i allowed; below C by the same margin."""

    def total(self, values: Array | Mask) -> float:
        """Σ p_i · values_i."""
        return mass_of(self.prior, values)


def mass_of(masses: Array | float, values: Array | Mask) -> float:
    """Σ masses_i · values_i; one number means that each cell has it, and a mask sums over some of the cells.

    By numpy's pairwise summation, whose error is a few units in the last place.
    """
    return masses * float(values.sum()) if isinstance(masses, float) else float((masses * values).sum())


@runtime_checkable
class Projection(Protocol):
    """How a density of the band is chosen. It cannot break the band: what it returns is checked after rounding."""

    def ratios(self, problem: Problem) -> Array:
        """u_i = f_i / p_i in [low, high] with Σ p_i u_i = 1."""


def checked_secret(**named: npt.ArrayLike) -> Array:
    """Non-negative finite numbers, one a candidate, that came from the secret history: the errors show none of them."""
    ((name, values),) = named.items()
    try:
        result = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} are not numbers: give a one-dimensional array of them") from None
    if result.ndim != 1 or not len(result):
        raise ValueError(f"{name} have shape {result.shape}: give a one-dimensional array, one number a candidate")
    if not 0 <= float(result.min()) <= float(result.max()) < math.inf:  # both are nan when any number is
        raise ValueError(f"{name} are not all finite and non-negative: give finite numbers that are 0 or greater")
    return result


def checked_prior(prior: npt.ArrayLike | None, length: int) -> Array | float:
    """Positive masses that sum to 1 within :data:`SUM_TOLERANCE`; ``1 / length``, one number, when None are given."""
    if prior is None:
        return 1.0 / length
    result = _positive(prior, "prior", length)
    with np.errstate(over="ignore"):
        total = float(result.sum())
    if not abs(total - 1.0) <= SUM_TOLERANCE:
        raise ValueError(f"prior masses sum to {total!r}: they must sum to 1 within {SUM_TOLERANCE:.1g}")
    return result


def make_problem(weights: Array, prior: Array | float, base: npt.ArrayLike | None, low: float, high: float) -> Problem:
    """The projection of checked weights and masses, scaled. The default base measure is the prior itself."""
    greatest = weights.max()
    if greatest == 0:
        raise ValueError(
            "all weights are 0, so they name no candidate: give at least one positive weight, or equal weights to "
            "prefer none"
        )
    scores, target, divisor = weights, weights / greatest, prior  # divided, so that the sum of huge weights is finite
    if not isinstance(prior, float) and prior.min() < TINY:
        divisor, prior = np.maximum(prior, TINY), np.where(prior < TINY, 0.0, prior)
    relative: Array | float = 1.0
    root = 1.0
    if base is not None:
        measure = _positive(base, "base", len(weights))
        largest = float(measure.max())
        relative = np.maximum(measure / largest, TINY)
        scores = target / relative
        total = float(relative.sum())
        relative /= total * divisor
        root = math.sqrt(largest) * math.sqrt(total)
    target /= target.sum() * divisor
    return Problem(scores, target, prior, relative, root, low, high)


def _positive(values: npt.ArrayLike, name: str, length: int) -> Array:
    result = _validate.vector(length=length, **{name: values})
    if not result.min() > 0:
        where = int(np.argmin(result))
        raise ValueError(f"{name}[{where}] = {result[where]}: every one must be greater than 0; leave out the others")
    return result
