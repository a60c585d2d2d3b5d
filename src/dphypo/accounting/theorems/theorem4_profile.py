"""Theorem 4: the privacy profile of a whole search, for any law of T. The sharpest bound we know.

Let ℓ be the privacy loss of a pair that dominates every run, in the direction D to D′, and

    F(ε) = E_ℓ[φ(e^(ε−ℓ))],    φ(z) = max over v ∈ [0, 1] of (g(v) − z g(τ(v)))₊,    g(v) = f′(1−v).

Then δ_A(ε) ≤ P[T=0] (1−e^ε)₊ + Δ[F](ε), with Δ the transform of Lemma 2 and τ from the opposite direction. With
φ(z) = Σ_j w_j (1 − z e^(−s_j))₊ this is a mixture of shifted profiles of one run: F(ε) = Σ_j w_j δ₀(ε − s_j).

Proof: docs/theory.md, section "Selection".
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from dphypo.accounting.profiles import Floats, Profile
from dphypo.accounting.theorems.lemma2 import Tau, transform
from dphypo.accounting.theorems.phi import Phi, phi
from dphypo.band import Band
from dphypo.laws import Law

_SHIFT = 1e-9  # ε is lowered by this, and δ raised by as much in proportion, for the rounding of shifts and sums
_LARGEST_EPSILON = 5000.0


class SearchProfile:
    """δ_A(ε) of a search in one direction, D to D′: itself a profile, so that searches compose and stack.

    Args:
        forward: profile of one run from D to D′, valid for every λ.
        reverse: profile of one run from D′ to D.
        runs: the law of T.
        band: the band (c, C).
    """

    def __init__(self, forward: Profile, reverse: Profile, runs: Law, band: Band) -> None:
        self.forward, self.reverse, self.runs, self.band = forward, reverse, runs, band

    @cached_property
    def phi(self) -> Phi:
        """φ, certified by cells."""
        return phi(self.runs, Tau(self.reverse, self.band, self.forward))

    @cached_property
    def mixture(self) -> tuple[Floats, Floats]:
        """Weights and shifts with δ_A(ε) ≤ Σ weight · δ₀(ε − shift), for ε ≥ 0."""
        lemma = transform(self.band)
        weights = np.concatenate([weight * self.phi.weights for weight, _ in lemma])
        shifts = np.concatenate([self.phi.shifts - shift for _, shift in lemma])
        return weights * (1 + _SHIFT), shifts + _SHIFT

    @property
    def bottom(self) -> float:
        return max(self.forward.bottom - self.band.log_ratio - max(0.0, self.top - self.forward.top), -_LARGEST_EPSILON)

    @property
    def top(self) -> float:
        return min(self.forward.top + self.band.log_ratio + max(self.phi.largest_shift, 0.0) + 1e-6, _LARGEST_EPSILON)

    def delta(self, epsilon: npt.ArrayLike) -> Floats:
        return mixed(self.mixture, self.forward, float(self.runs.pgf(0.0)), epsilon)


def mixed(mixture: tuple[Floats, Floats], forward: Profile, none: float, epsilon: npt.ArrayLike) -> Floats:
    """Σ weight · δ₀(ε − shift), plus P[T = 0] (1 − e^ε)₊ for the outcome ⊥, where ``none`` is P[T = 0]."""
    eps = np.asarray(epsilon, dtype=np.float64)
    weights, shifts = mixture
    value = np.empty(eps.shape)
    for index, one in np.ndenumerate(eps):
        value[index] = np.dot(weights, forward.delta(one - shifts))
    return np.minimum(value + none * -np.expm1(np.minimum(eps, 0.0)), 1.0)
