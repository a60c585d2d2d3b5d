"""RDP curves: ε(α), the Rényi divergence of order α, at finitely many orders."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dp_accounting
import numpy as np

from dphypo.accounting.profiles import Floats, FromRdp


@dataclass(frozen=True, eq=False)
class Curve:
    """ε(α) at increasing orders α, infinite where nothing is known; ``at`` gives it at further orders, where it can."""

    orders: Floats
    epsilons: Floats
    at: Callable[[Floats], Floats] | None = None

    def epsilon(self, delta: float) -> tuple[float, float]:
        """ε at δ, by dp_accounting's conversion, and the order that attains it."""
        usable = np.isfinite(self.epsilons)
        if not usable.any():
            return math.inf, math.nan
        found, order = dp_accounting.rdp.compute_epsilon(self.orders[usable], self.epsilons[usable], delta)
        return float(found), float(order)

    def profile(self) -> FromRdp:
        """The privacy profile that the curve implies."""
        usable = np.isfinite(self.epsilons)
        return FromRdp(self.orders[usable], self.epsilons[usable])

    def rounded_up(self, orders: Floats) -> Floats:
        """ε at other orders: the value at the next known order, which is no smaller, and infinity beyond the last."""
        return np.append(self.epsilons, np.inf)[np.searchsorted(self.orders, orders, side="left")]

    def around(self, *orders: float, points: int = 25) -> Curve:
        """The curve with more orders between the neighbours of each given one; itself, if it cannot tell more."""
        if self.at is None:
            return self
        extra = np.setdiff1d(np.concatenate([self._between_neighbours(order, points) for order in orders]), self.orders)
        alphas, values = np.append(self.orders, extra), np.append(self.epsilons, self.at(extra))
        rank = np.argsort(alphas)
        return Curve(alphas[rank], values[rank], self.at)

    def _between_neighbours(self, order: float, points: int) -> Floats:
        at = int(np.searchsorted(self.orders, order))
        return np.linspace(self.orders[max(at - 1, 0)], self.orders[min(at + 1, len(self.orders) - 1)], points)


def not_decreasing(orders: Floats, bounds: Floats) -> Floats:
    """Bounds on Rényi divergences, with a smaller one at a larger order carried down: D_α does not decrease in α."""
    result = bounds.copy()
    rank = np.argsort(orders)
    result[rank] = np.minimum.accumulate(bounds[rank][::-1])[::-1]
    return result


def largest(curves: Sequence[Curve]) -> Curve:
    """A curve that is at least as large as each of several, at every order of any of them."""
    orders = np.unique(np.concatenate([curve.orders for curve in curves]))
    return Curve(orders, np.max([curve.rounded_up(orders) for curve in curves], axis=0))
