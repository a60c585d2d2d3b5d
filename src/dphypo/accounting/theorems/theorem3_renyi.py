"""Theorems 3 and 3b: Rényi bounds on a whole search, for any law of T.

Both hold in one direction, D to D′, with ε(α) the Rényi divergence of one run at order α (for every λ), τ from the
opposite direction, g(v) = f′(1−v) and L = log(C/c):

Theorem 3. e^((α−1) D_α) ≤ f(0) + e^((α−1) R), where
    R = ε(α) + L + log(C)/(α−1) + (1/(α−1)) log sup over v of g(v)^α g(τ(v))^(1−α).

Theorem 3b. e^((α−1) D_α) ≤ f(0) + κ_α e^((α−1) ε(α)) ∫₀^∞ α(α−1) t^(α−2) φ(t) dt, where
    κ_α = q C^α c^(1−α) + middle + q c^α C^(1−α), the moments of Lemma 2's corners (q = min(p, 1−p)).

The supremum is taken over cells. The integral is exact for the piecewise linear φ: the mixture Σ_j w_j (1 − t/z_j)₊
gives Σ_j w_j z_j^(α−1), because x^α = ∫ α(α−1) t^(α−2) (x−t)₊ dt.

Proofs: docs/theory.md, section "Selection".
"""

from __future__ import annotations

import numpy as np

from dphypo.accounting.profiles import Curve, Floats, not_decreasing
from dphypo.accounting.theorems.lemma2 import transform
from dphypo.accounting.theorems.phi import Phi
from dphypo.band import Band
from dphypo.laws.law import log_sum_exp

_SLACK = 1e-9


def renyi(curve: Curve, phi: Phi, band: Band, zero: float) -> Curve:
    """The smaller of Theorems 3 and 3b at every order α > 1 of a run's curve, ∞ at α ≤ 1. ``zero`` is P[T = 0]."""
    bound = np.full(len(curve.orders), np.inf)
    usable, alpha, epsilon = curve.usable
    moment = (alpha - 1) * epsilon
    best = np.minimum(_theorem_3(alpha, moment, phi, band), _theorem_3b(alpha, moment, phi, band))
    total = np.logaddexp(best, np.log(zero)) if zero > 0 else best
    bound[usable] = np.maximum(total, 0.0) / (alpha - 1) * (1 + _SLACK) + _SLACK
    return Curve(curve.orders, not_decreasing(curve.orders, bound))


def _theorem_3(alpha: Floats, moment: Floats, phi: Phi, band: Band) -> Floats:
    log_a, log_b = phi.cells
    finite = np.isfinite(log_a)
    supremum = np.array([np.max(a * log_a[finite] - (a - 1) * log_b[finite]) for a in alpha])
    return np.asarray(moment + (alpha - 1) * band.log_ratio + np.log(band.C) + supremum)


def _theorem_3b(alpha: Floats, moment: Floats, phi: Phi, band: Band) -> Floats:
    # Lemma 2's term weight · δ(ε + shift) contributes weight · e^(−(α−1) shift) to the moment of order α.
    lemma = transform(band)
    log_kappa = log_sum_exp(np.stack([np.log(weight) - (alpha - 1) * shift for weight, shift in lemma], axis=-1))
    log_weights = np.log(phi.weights)
    log_integral = np.array([log_sum_exp(log_weights + (a - 1) * phi.shifts) for a in alpha])
    return np.asarray(moment + log_kappa + log_integral)
