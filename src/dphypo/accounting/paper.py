"""The two theorems of DP-HyPO (Wang, Gao, Zhang, Su and Shen, NeurIPS 2023), for the truncated negative binomial.

T has shape θ and parameter γ, m = E[T], and L = log(C/c).
"""

from __future__ import annotations

import math

import numpy as np

from dphypo.accounting.profiles import Floats
from dphypo.accounting.run import Run, epsilon_of_rdp
from dphypo.band import Band
from dphypo.runs import Law

_SLACK = 1e-12


def theorem_1(orders: Floats, epsilons: Floats, *, shape: float, gamma: float, mean: float, band: Band) -> Floats:
    """Theorem 1 (RDP): if every run is (α, ε)-RDP and (α̂, ε̂)-RDP, the search is (α, ε′)-RDP with

    ε′ = ε + (1+θ)(1−1/α̂) ε̂ + (α/(α−1) + 1 + θ) L + (1+θ) log(1/γ)/α̂ + log(m)/(α−1).

    The minimum is taken over the orders α̂ ≥ 1 of the curve; the result is infinite at α ≤ 1, and a smaller value at a
    larger order is carried down, since Rényi divergences do not decrease in the order. With c = C = 1 it is Theorem 2
    of Papernot and Steinke (ICLR 2022).
    """
    L = band.log_ratio
    known = (orders >= 1) & np.isfinite(epsilons)
    hat, epsilon_hat = orders[known], epsilons[known]
    choice = (1 + shape) * np.min((1 - 1 / hat) * epsilon_hat + math.log(1 / gamma) / hat, initial=np.inf)
    bound = np.full(len(orders), np.inf)
    usable = (orders > 1) & np.isfinite(epsilons)
    alpha = orders[usable]
    bound[usable] = (
        epsilons[usable] + choice + (alpha / (alpha - 1) + 1 + shape) * L + math.log(mean) / (alpha - 1)
    ) * (1 + _SLACK)
    order = np.argsort(orders)
    bound[order] = np.minimum.accumulate(bound[order][::-1])[::-1]
    return bound


def theorem_2(epsilon: float, *, shape: float, band: Band) -> float:
    """Theorem 2 (pure DP): if every run is ε-DP, the search is (2+θ)(ε + L)-DP.

    With θ = 1 and c = C = 1 it is 3ε, Theorem 3.2 of Liu and Talwar (STOC 2019).

    >>> theorem_2(0.5, shape=1.0, band=Band(1, 1))
    1.5...
    """
    return (2 + shape) * (epsilon + band.log_ratio) * (1 + _SLACK)


def curve(run: Run, runs: Law, band: Band) -> Floats | None:
    """ε′(α) of Theorem 1 at the orders of the run's own curve, if it applies."""
    shape, gamma = getattr(runs, "shape", None), getattr(runs, "gamma", None)
    if run.orders is None or run.rdp is None or shape is None or gamma is None:
        return None
    return theorem_1(run.orders, run.rdp, shape=shape, gamma=gamma, mean=runs.mean, band=band)


def pure(run: Run, runs: Law, band: Band) -> float | None:
    """ε of Theorem 2, if it applies."""
    shape = getattr(runs, "shape", None)
    return None if shape is None or math.isinf(run.pure) else theorem_2(run.pure, shape=shape, band=band)


def epsilon(run: Run, runs: Law, band: Band, delta: float) -> float | None:
    """ε at δ by the better of both theorems, if one applies. Theorem 1 is minimised between the curve's orders too."""
    found = [value for value in (_by_theorem_1(run, runs, band, delta), pure(run, runs, band)) if value is not None]
    return min(found) if found else None


def _by_theorem_1(run: Run, runs: Law, band: Band, delta: float) -> float | None:
    coarse = curve(run, runs, band)
    if coarse is None or run.orders is None or run.rdp is None:
        return None
    value, best = epsilon_of_rdp(run.orders, coarse, delta)
    if run.rdp_at is None or not math.isfinite(value) or value == 0.0:
        return value
    gamma = float(runs.gamma)  # type: ignore[attr-defined]
    best_hat = run.orders[np.argmin((1 - 1 / run.orders) * run.rdp + math.log(1 / gamma) / run.orders)]
    extra = np.setdiff1d(np.concatenate([_around(run.orders, best), _around(run.orders, best_hat)]), run.orders)
    orders, rdp = np.append(run.orders, extra), np.append(run.rdp, run.rdp_at(extra))
    rank = np.argsort(orders)
    finer = curve(Run(run.profiles, orders[rank], rdp[rank], run.pure), runs, band)
    assert finer is not None
    return min(value, epsilon_of_rdp(orders[rank], finer, delta)[0])


def _around(orders: Floats, best: float, points: int = 25) -> Floats:
    """Orders between the neighbours of one order."""
    at = int(np.searchsorted(orders, best))
    return np.linspace(orders[max(at - 1, 0)], orders[min(at + 1, len(orders) - 1)], points)
