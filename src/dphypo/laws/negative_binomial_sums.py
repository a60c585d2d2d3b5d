"""Partial sums and tails of the truncated negative binomial law, without summing its terms.

k p_k x^(k−1) is, as a function of k − 1, the untruncated negative binomial law of shape a = θ + 1 and success
probability y = 1 − (1−γ)x, times f′(x). So with I the regularised incomplete beta function

    Σ_{k ≤ K} k p_k x^(k−1) = f′(x) · I_y(a, K).

I is summed by its power series, all of whose terms are positive: scipy's is off by 1e-11 at K = 10⁶. Measured against
mpmath (shapes −0.9 to 50, means 1.01 to 10⁶, K to 10⁷) the logarithm is off by less than 1e-13, or, where it is below
−500, by less than a few units in its last place.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from scipy import special

from dphypo.laws.special import Array, leading_ratios, log_gamma_ratio, log_polynomial, log_power_series, log_sum_exp


@dataclasses.dataclass(frozen=True)
class NegativeBinomialSums:
    """Sums over k ≤ K and k > K for one law (shape θ, gamma γ, mean m)."""

    shape: float
    gamma: float
    mean: float

    def log_pmf(self, k: Array) -> Array:
        """log p_k for k ≥ 1: log m + (θ+1) log γ + (k−1) log(1−γ) + log Γ(k+θ)/(Γ(1+θ) k!)."""
        constant = math.log(self.mean) + (self.shape + 1) * math.log(self.gamma) - math.lgamma(self.shape + 1)
        return constant + (k - 1) * math.log1p(-self.gamma) + log_gamma_ratio(k + 1, self.shape - 1)

    def log_derivative(self, v: Array) -> Array:
        """log f′(1 − v) = log m − (θ+1) log(1 + v(1−γ)/γ)."""
        return math.log(self.mean) - (self.shape + 1) * np.log1p((1 - self.gamma) / self.gamma * v)

    @property
    def _reach(self) -> float:
        a = self.shape + 1
        return a + 9 * math.sqrt(a) + 45

    def _few(self, limit: int) -> bool:
        """Whether the K terms are summed as they stand: the power series would need as many (its y may near 1)."""
        return limit <= 1.25 * self._reach - (self.shape + 1)

    def log_partial_derivative(self, limit: int, log_x: Array, v: Array) -> Array:
        """log Σ_{k ≤ limit} k p_k x^(k−1) at x = 1 − v."""
        a = self.shape + 1
        if self._few(limit):
            k = np.arange(1.0, limit + 1)
            return log_polynomial(self.log_pmf(k) + np.log(k), k - 1, log_x)
        y = self.gamma + (1 - self.gamma) * v
        # Beyond this y the law of shape a has less than 1e-17 of its mass at K and above: the cap is not felt.
        near = y < self._reach / (a + limit)
        out = self.log_derivative(v)
        if near.any():
            out[near] = self._felt(limit, y[near])
        return out

    def _felt(self, limit: int, y: Array) -> Array:
        """f′ I_y = m γ^a (1−y)^K / (a B(a, K)) · Σ_n (a+K)_n/(a+1)_n y^n."""
        a, top = self.shape + 1, float(y.max())
        constant = math.log(self.mean) + a * math.log(self.gamma) - math.lgamma(a + 1)
        series = log_power_series(y / top, leading_ratios(lambda n: top * ((a + limit + n) / (a + 1 + n))))
        return constant + float(log_gamma_ratio(limit, a)) + limit * np.log1p(-y) + series

    def log_partial_pgf(self, limit: int, log_x: Array, v: Array) -> Array:
        """log Σ_{k ≤ limit} p_k x^k, the integral of the partial derivative from 0 to x.

        The trapezoidal rule after t = x(1 − σ), σ = 1/(1 + e^(−u)): the integrand is analytic in a strip and falls
        exponentially to both sides, so that the rule converges geometrically (here to rounding).
        """
        if self._few(limit):
            k = np.arange(1.0, limit + 1)
            return log_polynomial(self.log_pmf(k), k, log_x)
        step = 0.2
        left = 37 + math.log(min(limit, (self.shape + 2) / self.gamma))
        u = np.arange(-left, 37, step)
        out = np.empty_like(v)
        for index in np.ndindex(v.shape):
            x = 1 - v[index] if v[index] < 0.5 else np.exp(log_x[index])
            nodes = v[index] + x * special.expit(u)
            log_nodes = log_x[index] + special.log_expit(-u)
            height = self.log_partial_derivative(limit, log_nodes, np.minimum(nodes, 1.0))
            weight = log_x[index] + special.log_expit(u) + special.log_expit(-u) + math.log(step)
            out[index] = log_sum_exp(height + weight)
        return out

    def log_tail(self, k: int) -> float:
        """log P[T > k].

        P[T > k] = mγ/(1−γ) · Γ(k+1+θ)/(k! Γ(θ+1)) · ∫₀^(1−γ) t^k (1−t)^(θ−1) dt, with t = (1−γ)e^(−s), s = e^u, and
        the trapezoidal rule in u: it holds for θ ≤ 0 too, where no incomplete beta function of scipy does.
        """
        a, x = k + 1.0, 1 - self.gamma
        step = min(0.2, 0.5 / math.sqrt(1 + abs(self.shape)))
        right = math.log((40 + abs(self.shape) + 10 * math.sqrt(abs(self.shape))) / a)
        u = np.arange(math.log(min(self.gamma, 1 / a)) - 38, right, step)
        s = np.exp(u)
        integrand = u - a * s + (self.shape - 1) * np.log(self.gamma - x * np.expm1(-s))
        constant = math.log(self.mean) + math.log(self.gamma) + k * math.log1p(-self.gamma)
        constant += float(log_gamma_ratio(a, self.shape)) - math.lgamma(self.shape + 1)
        return min(0.0, constant + math.log(step) + float(log_sum_exp(integrand)))

    def log_head(self, k: int) -> float:
        """log P[T ≤ k], k ≥ 1."""
        return min(0.0, float(self.log_partial_pgf(k, np.zeros(1), np.zeros(1))[0]))
