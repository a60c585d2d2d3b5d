"""Theorem H-K: the bound for policies that may know T. No guarantee uses it: a study never tells its rule T.

R⁰ = 1 − e^(−s), R^r = 𝒮_v R^{r−1}; Q⁰ = 0, Q^r = w F^{r−1,+} − w′ F^{r−1,−} + 𝒮_v Q^{r−1}; with Q̄^r = Q^r, or
R^{r−1} + 𝒮_v Q^{r−1} if n₀ = 1, Theorem H-U holds with Σ_k p_k Q̄^k in place of Q¹.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dphypo.accounting.profiles import Floats
from dphypo.accounting.theorems import theorem_h_history_only as theorem_h
from dphypo.accounting.theorems.lemma2 import Corner
from dphypo.accounting.theorems.theorem_h_history_only import SLACK, Lattice, LatticePair, Survivors


@dataclass(frozen=True, eq=False)
class HistoryProfile(theorem_h.HistoryProfile):
    """Theorem H-U, or H-K if the policy ``knows_runs``: n₀ then counts as at most 1."""

    knows_runs: bool = False

    def __post_init__(self) -> None:
        if self.knows_runs:
            object.__setattr__(self, "first_from_prior", min(self.first_from_prior, 1))

    def _payoff(self, pair: LatticePair, lattice: Lattice, cells: Floats) -> Floats:
        if not self.knows_runs:
            return super()._payoff(pair, lattice, cells)
        survivors = Survivors(pair, lattice, cells[:-1], cells[1:], self._tau(cells[1:]))
        return known(self._law[0], lattice, survivors, theorem_h.corners(self.band), self.first_from_prior)


def known(pmf: Floats, lattice: Lattice, survivors: Survivors, corners: list[Corner], from_prior: int) -> Floats:
    """(Σ_k p_k Q̄^k_v)₊ for each cell and corner."""
    cells, count = len(survivors.certain), lattice.count
    w, w_back = np.array([corner[0] for corner in corners]), np.array([corner[1] for corner in corners])
    ones = np.zeros((cells, 1 + len(corners), count + 1))
    ones[:, 0] = 1.0
    value = theorem_h.payoff(lattice, ones, ones[..., :-1])
    total_up, total_down = np.zeros((cells, len(corners), count + 1)), np.zeros((cells, len(corners), count))
    for k in range(1, len(pmf)):
        up, down = survivors(value)
        upper, lower = theorem_h._hull(value)
        q_up = up[:, 1:] + w[None, :, None] * upper[:, None, :]
        q_down = down[:, 1:] + w_back[None, :, None] * lower[:, None, :]
        if from_prior:
            total_up += pmf[k] * (1 + SLACK) * (up[:, 1:] + value.plus[:, :1])
            total_down += pmf[k] * (1 - SLACK) * (down[:, 1:] + value.minus[:, :1])
        else:
            total_up += pmf[k] * (1 + SLACK) * q_up
            total_down += pmf[k] * (1 - SLACK) * q_down
        value = theorem_h.payoff(
            lattice, np.concatenate([up[:, :1], q_up], axis=1), np.concatenate([down[:, :1], q_down], axis=1)
        )
    return theorem_h.payoff(lattice, total_up * (1 + SLACK), total_down * (1 - SLACK)).plus
