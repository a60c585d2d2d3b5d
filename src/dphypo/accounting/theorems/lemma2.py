"""Lemma 2: what an adaptive choice of λ costs in one run; and τ, how far it can change the probability of an event.

Proof: docs/theory.md, section "Selection".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dphypo.accounting.profiles import Floats, RunProfile, falling_part, lower_hull, with_switches
from dphypo.band import Band

_SLACK = 1e-12  # a relative allowance for the rounding of a product and a sum
_LINES = 4001
Corner = tuple[float, float, float]
LARGEST_LOG = 600.0  # e^600 is still a float


def transform(band: Band) -> list[tuple[float, float]]:
    """The transform Δ of Lemma 2 as (weight, shift) pairs: Δ[δ](ε) = Σ weight · δ(ε + shift).

    With L = log(C/c) and p = (1−c)/(C−c), the largest prior mass on which a density of the band can sit at C:

    p ≤ ½: Δ[δ](ε) = C p δ(ε − L) + c (1−2p) δ(ε) + c p δ(ε + L);
    p > ½: Δ[δ](ε) = C (1−p) δ(ε − L) + C (2p−1) δ(ε) + c (1−p) δ(ε + L).

    It bounds H_{e^ε}(π·M(D) ‖ π′·M(D′)) for any two densities π, π′ of the band. Weights are rounded up, and shifts
    towards smaller ε.

    >>> transform(Band(1, 1))
    [(1.0, 0.0)]
    """
    if band.c == band.C:
        return [(1.0, 0.0)]
    c, C, L, p, q = band.c, band.C, band.log_ratio, band.p, band.q
    middle = c * (1.0 - 2.0 * p) if p <= 0.5 else C * (2.0 * p - 1.0)
    up = 1.0 + _SLACK
    return [(C * q * up, -L * up), (middle * up + _SLACK * C, 0.0), (c * q * up, L * (1.0 - _SLACK))]


def corners(band: Band) -> list[Corner]:
    """The pairs (w, w′) of densities of the lemma, on D and on D′, and the prior mass of each, rounded up.

    >>> [tuple(round(number, 4) for number in corner) for corner in corners(Band(0.5, 2))]
    [(2.0, 0.5, 0.3333), (0.5, 0.5, 0.3333), (0.5, 2.0, 0.3333)]
    """
    if band.c == band.C:
        return [(1.0, 1.0, 1.0)]
    side, middle = band.q, band.c if band.p <= 0.5 else band.C
    masses = (side * (1 + _SLACK), (1.0 - 2.0 * side) * (1 + _SLACK) + 1e-15, side * (1 + _SLACK))
    weights = ((band.C, band.c), (middle, middle), (band.c, band.C))
    return [(here, there, mass) for (here, there), mass in zip(weights, masses, strict=True)]


def transformed(delta: Callable[[Floats], Floats], band: Band) -> Callable[[Floats], Floats]:
    """Δ[δ], the function."""
    terms = transform(band)
    return lambda eps: np.asarray(sum(weight * delta(eps + shift) for weight, shift in terms))


class Tau:
    """τ(v) = min(1, inf over r > 0 of r v + Δ[δ₀^rev](log r)), the corollary of Lemma 2.

    For every test S: if the smallest probability that a density of the band gives S on D is v, then the largest that
    one gives it on D′ is at most τ(v). τ is concave and increasing. The infimum is taken over finitely many r, which
    leaves a valid, slightly larger τ.

    Where τ(v) is close to 1, what matters is 1 − τ(v), and a float cannot hold both. The complement of S, with the data
    sets exchanged, gives it directly (:meth:`complement`): 1 − v ≤ r (1 − P′⁺(S)) + Δ[δ₀](log r) for every r.

    Args:
        reverse: the profile of one run from D′ to D, that is, opposite to the direction being bounded.
        band: the band (c, C).
        forward: the profile from D to D′; without it, the complement is computed as 1 − τ(v).
    """

    def __init__(self, reverse: RunProfile, band: Band, forward: RunProfile | None = None) -> None:
        log_r, intercepts = _deltas(reverse, band)
        slopes = np.exp(log_r)
        lines = falling_part(slopes, intercepts)[::-1]  # steepest first
        self._slopes, self._intercepts, self._switches = with_switches(slopes, intercepts, lines)
        self._complement: tuple[Floats, Floats, Floats] | None = None
        if forward is not None:
            log_r, deltas = _deltas(forward, band)
            slopes, intercepts = np.exp(-log_r[::-1]), (-deltas * np.exp(-log_r))[::-1]
            # Those that attain the maximum for some x ≥ 0, flattest first.
            self._complement = with_switches(slopes, intercepts, lower_hull(slopes, -intercepts))

    def __call__(self, v: npt.ArrayLike) -> Floats:
        at = np.asarray(v, dtype=np.float64)
        line = np.searchsorted(self._switches, at)
        value = (self._slopes[line] * at + self._intercepts[line]) * (1 + _SLACK)
        return np.minimum(value, 1.0)

    def complement(self, x: npt.ArrayLike) -> Floats:
        """A lower bound on 1 − P′⁺(S) for a test S with P⁻(S) = 1 − x: convex and increasing in x, 0 or greater."""
        at = np.asarray(x, dtype=np.float64)
        if self._complement is None:
            return np.maximum(1.0 - self(1.0 - at), 0.0)
        slopes, intercepts, switches = self._complement
        line = np.searchsorted(switches, at)
        gain = slopes[line] * at
        return np.asarray(np.maximum(gain + intercepts[line] - 4 * _SLACK * gain, 0.0))


def _deltas(profile: RunProfile, band: Band) -> tuple[Floats, Floats]:
    """A grid of log r, and Δ[δ](log r) rounded up."""
    ends = np.clip([profile.bottom - band.log_ratio, profile.top + band.log_ratio], -LARGEST_LOG, LARGEST_LOG)
    log_r = np.linspace(ends.min(), ends.max(), _LINES)
    return log_r, transformed(profile.delta, band)(log_r) * (1 + _SLACK)
