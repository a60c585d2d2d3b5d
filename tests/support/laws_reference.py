"""The laws of T from their definitions, in mpmath: slow, independent references for dphypo.laws."""

from __future__ import annotations

import mpmath as mp

SHAPES = (-0.9, -0.5, 0.0, 1e-9, 0.5, 1.0, 2.0, 8.0, 50.0)
MEANS = (1.01, 2.0, 30.0, 1000.0, 1e6)


def mean(shape: float, gamma: float) -> mp.mpf:
    """θ(1−γ)/(γ(1−γ^θ)); θ = 0: (1/γ − 1)/log(1/γ)."""
    theta, g = mp.mpf(shape), mp.mpf(gamma)
    if theta == 0:
        return (1 / g - 1) / -mp.log(g)
    return theta * (1 - g) / (g * -mp.expm1(theta * mp.log(g)))


def masses(shape: float, gamma: float, count: int) -> list[mp.mpf]:
    """P[T = 1], …, P[T = count]: (1−γ)^k/(γ^(−θ)−1) · ∏_{ℓ<k} (ℓ+θ)/(ℓ+1); θ = 0: (1−γ)^k/(k log(1/γ))."""
    theta, g = mp.mpf(shape), mp.mpf(gamma)
    p = (1 - g) / -mp.log(g) if theta == 0 else (1 - g) * theta / mp.expm1(-theta * mp.log(g))
    out = [p]
    for k in range(1, count):
        p *= (1 - g) * (k + theta) / (k + 1)
        out.append(p)
    return out


def poisson_masses(mu: float, count: int) -> list[mp.mpf]:
    """P[T = 0], …, P[T = count − 1]."""
    p = mp.exp(-mp.mpf(mu))
    out = [p]
    for k in range(1, count):
        p *= mp.mpf(mu) / k
        out.append(p)
    return out


def derivative(p: list[mp.mpf], first: int, v: float) -> mp.mpf:
    """Σ k p_k x^(k−1) at x = 1 − v, for masses that start at k = ``first``."""
    x = 1 - mp.mpf(v)
    terms = [k * mass for k, mass in enumerate(p, first) if k > 0]
    return mp.polyval(terms[::-1], x) * x ** (max(first, 1) - 1)
