"""Lemma 2: what an adaptive choice of λ costs one run, and τ, what it can do to the probability of an event.

Proof: docs/theory.md, section "Selection".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dphypo.accounting.profiles import Floats, Profile
from dphypo.band import Band

_SLACK = 1e-12  # a relative allowance for the rounding of a product and a sum
_LINES = 4001
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
    c, C, L, p = band.c, band.C, band.log_ratio, band.p
    q = min(p, 1.0 - p)
    middle = c * (1.0 - 2.0 * p) if p <= 0.5 else C * (2.0 * p - 1.0)
    up = 1.0 + _SLACK
    return [(C * q * up, -L * up), (middle * up + _SLACK * C, 0.0), (c * q * up, L * (1.0 - _SLACK))]


def transformed(delta: Callable[[Floats], Floats], band: Band) -> Callable[[Floats], Floats]:
    """Δ[δ], the function."""
    terms = transform(band)
    return lambda eps: np.asarray(sum(weight * delta(eps + shift) for weight, shift in terms))


class Tau:
    """τ(v) = min(1, inf over r > 0 of r v + Δ[δ₀^rev](log r)), the corollary of Lemma 2.

    For every test S: if the smallest probability that a density of the band gives S on D is v, then the largest that
    one gives it on D′ is at most τ(v). τ is concave and increasing. The infimum is taken over finitely many r, which
    leaves a valid, slightly larger τ.

    Args:
        reverse: the profile of one run from D′ to D, that is, opposite to the direction being bounded.
        band: the band (c, C).
    """

    def __init__(self, reverse: Profile, band: Band) -> None:
        ends = np.clip([reverse.bottom - band.log_ratio, reverse.top + band.log_ratio], -LARGEST_LOG, LARGEST_LOG)
        log_r = np.linspace(ends.min(), ends.max(), _LINES)
        intercepts = transformed(reverse.delta, band)(log_r) * (1 + _SLACK)
        self._slopes, self._intercepts, self._switches = _lower_envelope(np.exp(log_r), intercepts)

    def __call__(self, v: npt.ArrayLike) -> Floats:
        at = np.asarray(v, dtype=np.float64)
        line = np.searchsorted(self._switches, at)
        value = (self._slopes[line] * at + self._intercepts[line]) * (1 + _SLACK)
        return np.minimum(value, 1.0)


def _lower_envelope(slopes: Floats, intercepts: Floats) -> tuple[Floats, Floats, Floats]:
    """The lines that attain the minimum for some v ≥ 0, steepest first, and the v at which each hands over.

    Slopes increase. A line that rounding drops by mistake only makes the envelope larger.
    """
    kept: list[int] = []
    for i in range(len(slopes) - 1, -1, -1):
        while kept and intercepts[kept[-1]] >= intercepts[i]:
            kept.pop()
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (intercepts[i] - intercepts[a]) * (slopes[a] - slopes[b]) <= (intercepts[b] - intercepts[a]) * (
                slopes[a] - slopes[i]
            ):
                kept.pop()
            else:
                break
        kept.append(i)
    index = np.array(kept)
    s, t = slopes[index], intercepts[index]
    return s, t, np.diff(t) / -np.diff(s)
