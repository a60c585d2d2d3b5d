"""Theorem 4′: Theorem 4 for a search whose first n₀ runs are drawn from the prior; the policy may know D and T.

With h(v) = Σ_k P[T=k] min(k, n₀) (1−v)^(k−1), g(v) = Σ_k P[T=k] k (1−v)^(k−1), and the pairs (w_j, w′_j) and masses
m_j of Lemma 2,

    δ_A(ε) ≤ P[T=0] (1−e^ε)₊ + E_ℓ Σ_j m_j φ_j(e^(ε−ℓ)),
    φ_j(z) = max over v of (a_j(v) − z b_j(τ(v)))₊,    a_j = h + w_j (g − h),    b_j = h + w′_j (g − h).

Both are polynomials in x = 1 − v with non-negative coefficients. T > K is left out of them, and P[T > K] added to δ.
n₀ = 0 is Theorem 4. Condition: ties are broken by a fresh random key. Proof: docs/theory.md, section "Selection".
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from dphypo.accounting.profiles import Floats, Profile
from dphypo.accounting.theorems.lemma2 import Tau, corners
from dphypo.accounting.theorems.phi import Phi, phi_between
from dphypo.accounting.theorems.theorem4_profile import mixed
from dphypo.band import Band
from dphypo.laws import Law

_SHIFT = 1e-9  # as in Theorem 4: ε is lowered and δ raised by this, for the rounding of shifts and sums
_TAIL = 1e-12  # P[T > K]
_MOST_RUNS = 5000  # the largest K: Horner's rule is off by up to 2K · 2⁻⁵³, of which φ allows for 1e-11
_LARGEST_EPSILON = 5000.0


class PriorStartProfile:
    """δ_A(ε) in one direction, if the first n₀ = ``first_from_prior`` runs come from the prior; else as Theorem 4."""

    def __init__(self, forward: Profile, reverse: Profile, runs: Law, band: Band, first_from_prior: int) -> None:
        self.forward, self.reverse, self.runs, self.band = forward, reverse, runs, band
        self.first_from_prior = first_from_prior

    @property
    def exists(self) -> bool:
        """Whether T is small enough to sum over. A few runs from the prior matter little among many more."""
        return self.runs.quantile(1.0 - _TAIL) <= _MOST_RUNS

    @cached_property
    def _phis(self) -> list[tuple[float, Phi]]:
        """m_j and φ_j, certified by cells."""
        last = max(1, self.runs.quantile(1.0 - _TAIL))
        k = np.arange(1, last + 1)
        pmf = np.asarray(self.runs.pmf(k), dtype=np.float64)
        early = np.minimum(k, self.first_from_prior)
        tau = Tau(self.reverse, self.band, self.forward)

        def weighted(weight: float) -> _Polynomial:
            return _Polynomial(pmf * (early + weight * (k - early)))

        return [(mass, phi_between(weighted(here), weighted(there), tau)) for here, there, mass in corners(self.band)]

    @cached_property
    def mixture(self) -> tuple[Floats, Floats]:
        """Weights and shifts with δ_A(ε) ≤ Σ weight · δ₀(ε − shift) for ε ≥ 0; the tail of T is an infinite shift."""
        weights = np.concatenate([mass * one.weights for mass, one in self._phis])
        shifts = np.concatenate([one.shifts for _, one in self._phis])
        return np.append(weights * (1 + _SHIFT), _TAIL * (1 + _SHIFT)), np.append(shifts + _SHIFT, np.inf)

    @property
    def bottom(self) -> float:
        return max(self.forward.bottom - max(0.0, self.top - self.forward.top), -_LARGEST_EPSILON)

    @property
    def top(self) -> float:
        largest = max(one.largest_shift for _, one in self._phis)
        return min(self.forward.top + max(largest, 0.0) + 1e-6, _LARGEST_EPSILON)

    def delta(self, epsilon: npt.ArrayLike) -> Floats:
        return mixed(self.mixture, self.forward, float(self.runs.pgf(0.0)), epsilon)


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
