"""The two theorems of DP-HyPO (Wang, Gao, Zhang, Su and Shen, NeurIPS 2023), for the truncated negative binomial.

T has shape θ and parameter γ, m = E[T], and L = log(C/c). Proofs: docs/theory.md, section "Selection".
"""

from __future__ import annotations

import math

import numpy as np

from dphypo.accounting.one_run import OneRun
from dphypo.accounting.profiles import Curve, Floats, not_decreasing
from dphypo.band import Band
from dphypo.laws import Law, NegativeBinomial

_SLACK = 1e-12


def theorem_1(curve: Curve, runs: NegativeBinomial, band: Band) -> Curve:
    """Theorem 1 (RDP): if every run is (α, ε)-RDP and (α̂, ε̂)-RDP, the search is (α, ε′)-RDP with

    ε′ = ε + (1+θ)(1−1/α̂) ε̂ + (α/(α−1) + 1 + θ) L + (1+θ) log(1/γ)/α̂ + log(m)/(α−1).

    The minimum is taken over the orders α̂ ≥ 1 of the curve. The result is infinite at α ≤ 1. A smaller value at a
    larger order is carried down, since Rényi divergences do not decrease in the order. With c = C = 1 it is Theorem 2
    of Papernot and Steinke (ICLR 2022).
    """
    theta, L = runs.shape, band.log_ratio
    choice = (1 + theta) * np.min(_hat_terms(curve, runs.gamma))
    bound = np.full(len(curve.orders), np.inf)
    usable, alpha, epsilon = curve.usable
    total = epsilon + choice + (alpha / (alpha - 1) + 1 + theta) * L + math.log(runs.mean) / (alpha - 1)
    bound[usable] = total * (1 + _SLACK)
    return Curve(curve.orders, not_decreasing(curve.orders, bound))


def _hat_terms(curve: Curve, gamma: float) -> Floats:
    """(1−1/α̂) ε̂ + log(1/γ)/α̂ at every order α̂."""
    return np.asarray((1 - 1 / curve.orders) * curve.epsilons + math.log(1 / gamma) / curve.orders)


def theorem_2(epsilon: float, *, shape: float, band: Band) -> float:
    """Theorem 2 (pure DP): if every run is ε-DP, the search is (2+θ)(ε + L)-DP.

    With θ = 1 and c = C = 1 it is 3ε, Theorem 3.2 of Liu and Talwar (STOC 2019).

    >>> theorem_2(0.5, shape=1.0, band=Band(1, 1))
    1.5...
    """
    return (2 + shape) * (epsilon + band.log_ratio) * (1 + _SLACK)


def renyi_curve(run: OneRun, runs: Law, band: Band) -> Curve | None:
    """The RDP curve of the search by Theorem 1, if it applies."""
    if run.curve is None or not isinstance(runs, NegativeBinomial):
        return None
    return theorem_1(run.curve, runs, band)


def pure_epsilon(run: OneRun, runs: Law, band: Band) -> float:
    """ε of the search by Theorem 2; infinite if it does not apply."""
    if math.isinf(run.pure) or not isinstance(runs, NegativeBinomial):
        return math.inf
    return theorem_2(run.pure, shape=runs.shape, band=band)


def epsilon(run: OneRun, runs: Law, band: Band, delta: float) -> float | None:
    """ε at δ by the better of both theorems, if one applies. Theorem 1 is minimised between the curve's orders too."""
    pure = pure_epsilon(run, runs, band)
    if run.curve is None or not isinstance(runs, NegativeBinomial):
        return None if math.isinf(pure) else pure
    value, order = theorem_1(run.curve, runs, band).epsilon(delta)
    if 0 < value < math.inf:
        order_hat = float(run.curve.orders[np.argmin(_hat_terms(run.curve, runs.gamma))])
        value = min(value, theorem_1(run.curve.around(order, order_hat), runs, band).epsilon(delta)[0])
    return min(value, pure)
