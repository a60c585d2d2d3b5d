"""Theorem 4: the privacy profile of a whole search, for any law of T. The sharpest bound we know; and Theorem 4′.

Let ℓ be the privacy loss of a pair that dominates every run, in the direction D to D′, and

    F(ε) = E_ℓ[φ(e^(ε−ℓ))],    φ(z) = max over v ∈ [0, 1] of (g(v) − z g(τ(v)))₊,    g(v) = f′(1−v).

Then δ_A(ε) ≤ P[T=0] (1−e^ε)₊ + Δ[F](ε), with Δ the transform of Lemma 2 and τ from the opposite direction. With
φ(z) = Σ_j w_j (1 − z e^(−s_j))₊ this is a mixture of shifted profiles of one run: F(ε) = Σ_j w_j δ₀(ε − s_j).

**Theorem 4′**, for a search whose first n₀ runs are drawn from the prior; the policy may know D and T.
With h(v) = Σ_k P[T=k] min(k, n₀) (1−v)^(k−1), g(v) = Σ_k P[T=k] k (1−v)^(k−1), and the pairs (w_j, w′_j) and masses
n_j of Lemma 2,

    δ_A(ε) ≤ P[T=0] (1−e^ε)₊ + E_ℓ Σ_j n_j φ_j(e^(ε−ℓ)),
    φ_j(z) = max over v of (a_j(v) − z b_j(τ(v)))₊,    a_j = h + w_j (g − h),    b_j = h + w′_j (g − h).

Both are polynomials in x = 1 − v with non-negative coefficients. T > K is left out of them, and P[T > K] added to δ.
n₀ = 0 is Theorem 4. Condition: ties are broken by a fresh random key. Proofs: docs/theory.md, section "Selection".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dphypo.accounting.profiles import Floats, RunProfile
from dphypo.accounting.theorems.lemma2 import Tau, corners, transform
from dphypo.accounting.theorems.phi import Phi, phi, phi_between
from dphypo.band import Band
from dphypo.laws import Law

_SHIFT = 1e-9  # ε is lowered by this, and δ raised by as much in proportion, for the rounding of shifts and sums
_TAIL = 1e-12  # P[T > K]
_MOST_RUNS = 5000  # the largest K: Horner's rule is off by up to 2K · 2⁻⁵³, of which φ allows for 1e-11
_LARGEST_EPSILON = 5000.0


@dataclass(frozen=True, eq=False)
class SearchProfile:
    """δ_A(ε) of a search in one direction, D to D′: itself a profile, so that searches compose."""

    forward: RunProfile  # of one run from D to D′, valid for every λ
    reverse: RunProfile  # of one run from D′ to D
    runs: Law
    band: Band
    first_from_prior: int = 0  # n₀

    @property
    def exists(self) -> bool:
        """Whether T is small enough to sum over. A few runs from the prior matter little among many more."""
        return self.first_from_prior == 0 or self.runs.quantile(1.0 - _TAIL) <= _MOST_RUNS

    @cached_property
    def phi(self) -> Phi:
        """φ of Theorem 4, certified by cells."""
        return phi(self.runs, Tau(self.reverse, self.band, self.forward))

    @cached_property
    def _phis(self) -> list[tuple[float, float, Phi]]:
        """Weight and shift of each term of the bound, and its φ, certified by cells."""
        if self.first_from_prior == 0:
            return [(weight, shift, self.phi) for weight, shift in transform(self.band)]
        k = np.arange(1, max(1, self.runs.quantile(1.0 - _TAIL)) + 1)
        pmf = np.asarray(self.runs.pmf(k), dtype=np.float64)
        early = np.minimum(k, self.first_from_prior)
        tau = Tau(self.reverse, self.band, self.forward)

        def weighted(weight: float) -> _Polynomial:
            return _Polynomial(pmf * (early + weight * (k - early)))

        return [
            (mass, 0.0, phi_between(weighted(here), weighted(there), tau)) for here, there, mass in corners(self.band)
        ]

    @cached_property
    def mixture(self) -> tuple[Floats, Floats]:
        """Weights and shifts with δ_A(ε) ≤ Σ weight · δ₀(ε − shift) for ε ≥ 0; the tail of T is an infinite shift."""
        weights = np.concatenate([weight * one.weights for weight, _, one in self._phis]) * (1 + _SHIFT)
        shifts = np.concatenate([one.shifts - shift for _, shift, one in self._phis]) + _SHIFT
        if self.first_from_prior == 0:
            return weights, shifts
        return np.append(weights, _TAIL * (1 + _SHIFT)), np.append(shifts, np.inf)

    @property
    def top(self) -> float:
        largest = max(one.largest_shift for _, _, one in self._phis)
        ratio = self.band.log_ratio if self.first_from_prior == 0 else 0.0  # φ_j of Theorem 4′ includes it
        return min(self.forward.top + ratio + max(largest, 0.0) + 1e-6, _LARGEST_EPSILON)

    def delta(self, epsilon: npt.ArrayLike) -> Floats:
        """Σ weight · δ₀(ε − shift), plus P[T = 0] (1 − e^ε)₊ for the outcome ⊥."""
        eps = np.asarray(epsilon, dtype=np.float64)
        weights, shifts = self.mixture
        value, none = np.empty(eps.shape), float(self.runs.pgf(0.0))
        for index, one in np.ndenumerate(eps):
            value[index] = np.dot(weights, self.forward.delta(one - shifts))
        return np.minimum(value + none * -np.expm1(np.minimum(eps, 0.0)), 1.0)


class _Polynomial:
    """Σ_k coefficient_k (1−v)^(k−1), k = 1, 2, …, by Horner's rule; all coefficients are non-negative."""

    def __init__(self, coefficients: Floats) -> None:
        self._coefficients = coefficients

    def log_g(self, v: npt.ArrayLike) -> Floats:
        return self.log_pgf_derivative(1.0 - np.asarray(v, dtype=np.float64))

    def log_pgf_derivative(self, x: npt.ArrayLike) -> Floats:
        at = np.asarray(x, dtype=np.float64)
        value = np.zeros(at.shape)
        for coefficient in self._coefficients[::-1]:
            value *= at
            value += coefficient
        with np.errstate(divide="ignore"):
            return np.log(value)
