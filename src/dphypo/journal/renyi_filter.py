"""The Rényi filter of a ledger: which search still fits, and the numbers that a refusal shows.

Orders α and budgets B(α) are fixed when a ledger is made. A search is admitted while, at some order, the sum of all
ε_i(α) stays within B(α) (Feldman and Zrnic 2021, for one order; docs/theory/surveys.md, "A ledger", for several). Each
order has its share of δ, so that it does not matter which of them is left in the end.

Slack of rounded noise has no Rényi divergence. A thousandth of δ is kept for it: all searches may have the slack s with
(1 + e^ε)·s = δ/1000 together, and each is charged the part of every budget that it takes of this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

ORDERS = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)
FOR_SLACK = 1e-3  # of δ
_ROUNDING = 1e-12  # sums of costs are rounded up by this part of them


def budget(order: float, epsilon: float, delta: float) -> float:
    """B such that (α, B)-RDP implies (ε, δ)-DP: B = ε − log((α−1)/α) + log(αδ)/(α−1), rounded down.

    Canonne, Kamath and Steinke, The discrete Gaussian for differential privacy, 2020, Proposition 12.
    """
    exact = epsilon - math.log((order - 1) / order) + math.log(order * delta) / (order - 1)
    return exact - 1e-9 * (1 + abs(exact))


@dataclass(frozen=True)
class Filter:
    """The total of a ledger, as a filter: its Rényi orders, and the share of δ that each of them has.

    >>> Filter(2.0, 1e-6, (8.0, 16.0), 5e-7).admits([[0.1, 0.2]] * 2, [0.1, 0.9])
    True
    """

    epsilon: float
    delta: float
    orders: tuple[float, ...]
    share: float

    @property
    def budgets(self) -> tuple[float, ...]:
        """B(α) at each order."""
        return tuple(budget(order, self.epsilon, self.share) for order in self.orders)

    def admits(self, spent: Sequence[Sequence[float]], asked: Sequence[float]) -> bool:
        """Whether a search still fits."""
        return bool((self._sum([*spent, asked]) * (1 + _ROUNDING) <= np.array(self.budgets)).any())

    def cost_of_slack(self, slack: float) -> Floats:
        """What a slack takes of the budget of each order."""
        if slack == 0:
            return np.zeros(len(self.orders))
        most = FOR_SLACK * self.delta / (1 + math.exp(min(self.epsilon, 700.0)))
        return np.array(self.budgets) * min(slack / most, 1e9) * (1 + 1e-9)

    def left(self, spent: Sequence[Sequence[float]]) -> float:
        """The largest part of its budget that some order has left."""
        return max(0.0, float(np.max(1 - self._sum(spent) / np.array(self.budgets))))

    def epsilon_of(self, costs: Sequence[float]) -> float:
        """ε of Rényi costs at the δ of the ledger: the inverse of :func:`budget`, for people to read."""
        converted = [cost - budget(order, 0.0, self.share) for cost, order in zip(costs, self.orders, strict=True)]
        return max(0.0, min(converted)) if any(costs) else 0.0

    def refusal(self, spent: Sequence[Sequence[float]], asked: Sequence[float]) -> str:
        """What is spent, asked for and left, and what would fit."""
        together, wanted = self._sum(spent), np.asarray(asked, dtype=np.float64)
        used = self.epsilon_of([float(cost) for cost in together])
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.nan_to_num((np.array(self.budgets) - together) / wanted, posinf=0.0)
        part = float(np.clip(np.max(room), 0.0, 1.0)) * (1 - 1e-9)
        numbers = (
            f"spent ε = {used:.3g}, asked for {self.epsilon_of(asked):.3g}, left {max(0.0, self.epsilon - used):.3g} "
            "by the ledger's filter"
        )
        if part <= 0:
            return f"{numbers}. Nothing of this kind fits any more"
        fits = self.epsilon_of([float(part * cost) for cost in wanted])
        return (
            f"{numbers}. A search of this kind fits with ε = {fits:.3g} at most: {part:.0%} of its runs, or about "
            f"{1 / math.sqrt(part):.3g} times its noise"
        )

    def _sum(self, costs: Sequence[Sequence[float]]) -> Floats:
        return np.asarray(np.sum([[0.0] * len(self.orders), *costs], axis=0, dtype=np.float64))
