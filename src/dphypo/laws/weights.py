"""The laws of T as exact weights: everything the sampler knows about a law.

Weights need not sum to 1, so the irrational normalisers of these laws (γ^θ, log γ, e^(−μ)) never appear: the floats
γ, θ, μ that the accountant uses are taken as the rationals they are, and the ratio of neighbouring weights is rational.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Protocol

from dphypo.laws.bounds import Bounds, log_bounds, log_gamma_bounds, scaled


class Weights(Protocol):
    """Weights w_k on k = first, first + 1, …"""

    def __hash__(self) -> int: ...

    @property
    def first(self) -> int:
        """The smallest k of the support."""
        ...

    @property
    def mode(self) -> int:
        """The largest k at which the weight is greatest; weights rise up to it and fall after it."""
        ...

    @property
    def log_concave(self) -> bool:
        """Whether w_{k+1}/w_k falls with k; otherwise it rises with k, towards ``limit_ratio``."""
        ...

    @property
    def limit_ratio(self) -> Fraction:
        """The limit of w_{k+1}/w_k."""
        ...

    def ratio(self, k: int) -> Fraction:
        """w_{k+1}/w_k, exactly."""
        ...

    def log_weight(self, k: int, bits: int) -> Bounds:
        """Bounds on 2^bits · log w_k."""
        ...


@dataclasses.dataclass(frozen=True)
class NegativeBinomialWeights:
    """w_k = (1−γ)^k Γ(k+θ)/k!, k ≥ 1."""

    shape: Fraction
    gamma: Fraction
    first = 1

    @property
    def mode(self) -> int:
        # w_{k+1} ≥ w_k exactly when k ≤ ((1−γ)θ − 1)/γ.
        return max(1, math.floor(((1 - self.gamma) * self.shape - 1) / self.gamma) + 1)

    @property
    def log_concave(self) -> bool:
        return self.shape >= 1

    @property
    def limit_ratio(self) -> Fraction:
        return 1 - self.gamma

    def ratio(self, k: int) -> Fraction:
        return (1 - self.gamma) * (k + self.shape) / (k + 1)

    def log_weight(self, k: int, bits: int) -> Bounds:
        width = bits + k.bit_length() + 2
        low, high = scaled(Fraction(k, 2 ** (width - bits)), log_bounds(1 - self.gamma, width))
        if self.shape != 1:
            above, below = log_gamma_bounds(k + self.shape, bits), log_gamma_bounds(Fraction(k + 1), bits)
            low, high = low + above[0] - below[1], high + above[1] - below[0]
        return low, high


@dataclasses.dataclass(frozen=True)
class PoissonWeights:
    """w_k = μ^k/k!, k ≥ 0."""

    mean: Fraction
    first = 0
    log_concave = True
    limit_ratio = Fraction(0)

    @property
    def mode(self) -> int:
        return math.floor(self.mean)

    def ratio(self, k: int) -> Fraction:
        return self.mean / (k + 1)

    def log_weight(self, k: int, bits: int) -> Bounds:
        width = bits + k.bit_length() + 2
        low, high = scaled(Fraction(k, 2 ** (width - bits)), log_bounds(self.mean, width))
        below = log_gamma_bounds(Fraction(k + 1), bits)
        return low - below[1], high - below[0]
