"""Functions that scipy lacks, or has with too little accuracy for large arguments."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import special

Array = npt.NDArray[np.float64]

# Coefficients of 1/z, 1/z³, … in Stirling's series of log Γ; six reach 1e-18 from z = 16 on.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_CACHED = 2**13  # numbers worked on at once, so that they stay in the processor's cache


def stirling_error(z: Array) -> Array:
    """log Γ(z) − [(z − ½) log z − z + ½ log 2π] for z ≥ 16."""
    return np.polyval(_STIRLING[::-1], (1 / z) * (1 / z)) / z


def log_gamma_ratio(z: npt.ArrayLike, d: float) -> Array:
    """log Γ(z + d) − log Γ(z) without the cancellation of two large numbers."""
    z = np.asarray(z, dtype=np.float64)
    near = np.maximum(z, 16.0 + max(0.0, -d))
    far = (near + d - 0.5) * np.log1p(d / near) + d * (np.log(near) - 1)
    far = far + stirling_error(near + d) - stirling_error(near)
    small = np.minimum(z, near)
    return np.asarray(np.where(z < near, special.gammaln(small + d) - special.gammaln(small), far))


def log_poisson_pmf(k: npt.ArrayLike, mean: npt.ArrayLike) -> Array:
    """log(e^(−μ) μ^k / k!) by the saddle-point form, accurate when k and μ are both large and close."""
    k, mean = np.asarray(k, dtype=np.float64), np.asarray(mean, dtype=np.float64)
    large = np.maximum(k, 16.0)
    offset = (mean - large) / large
    far = large * (np.log1p(offset) - offset) - stirling_error(large) - 0.5 * np.log(2 * math.pi * large)
    few = np.minimum(k, 16.0)
    return np.asarray(np.where(k < 16, special.xlogy(few, mean) - mean - special.gammaln(few + 1), far))


def log_polynomial(log_coefficients: Array, powers: Array, log_x: Array) -> Array:
    """log Σ_i exp(log_coefficients_i) x^powers_i; a power of 0 is 1 at x = 0 too."""
    flat = np.atleast_1d(log_x).reshape(-1, 1)
    rows = max(1, _CACHED // len(powers))
    out = np.empty(len(flat))
    for start in range(0, len(flat), rows):
        block = slice(start, start + rows)
        with np.errstate(invalid="ignore"):  # 0 · (−∞), replaced
            terms = np.where(powers == 0, 0.0, powers * flat[block]) + log_coefficients
        out[block] = log_sum_exp(terms)
    return out.reshape(np.shape(log_x))


def log_sum_exp(terms: Array) -> Array:
    """log Σ exp along the last axis."""
    top = terms.max(axis=-1, keepdims=True)
    anchor = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", over="ignore"):  # beside an infinite term the others may overflow
        total = np.log(np.exp(terms - anchor).sum(axis=-1))
    return np.asarray(total + anchor[..., 0])


def log_power_series(t: Array, ratios: Array) -> Array:
    """log of 1 + r₀t + r₀r₁t² + … for a one-dimensional array of 0 ≤ t ≤ 1; all terms are positive."""
    if len(t) < 16:
        return np.array([math.log1p(float(np.cumprod(ratios * point).sum())) for point in t])
    coefficients = np.cumprod(ratios)[::-1]
    total = np.zeros_like(t)
    for start in range(0, len(t), _CACHED):
        block, part = t[start : start + _CACHED], total[start : start + _CACHED]
        for coefficient in coefficients:  # Horner's rule, in place
            part += coefficient
            part *= block
    return np.log1p(total)


def leading_ratios(ratio: Callable[[Array], Array]) -> Array:
    """The ratios r₀, r₁, … of a positive series up to where its terms are below 1e-18 of the largest.

    ``ratio(n)`` falls with n.
    """
    count = 64
    while True:
        ratios = ratio(np.arange(float(count)))
        with np.errstate(divide="ignore"):
            logs = np.cumsum(np.log(ratios))
        floor = max(0.0, float(logs.max())) - 42
        # What is left out is at most a geometric series from the last term on.
        if ratios[-1] < 1 and logs[-1] - math.log1p(-ratios[-1]) < floor:
            return ratios[: int(np.flatnonzero(logs >= floor).max(initial=0)) + 1]
        count *= 2
