"""The recursions of Theorem H over the runs of a search: version U, where the policy does not know T, and version K.

Statement and symbols: ``theorem_h_history_only.py``. Proof: docs/theory.md. The operator 𝒮_v: ``kills.py``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dphypo.accounting.profiles import Floats
from dphypo.accounting.theorems.kills import Lattice, Payoff, Survivors, payoff
from dphypo.accounting.theorems.lemma2 import Corner

SLACK = 1e-11  # the relative accuracy asked of P[T = k], with room to spare
_LATE = 1e-12  # of δ: what a cell of large v may give away by "D known" for the last runs


def _hull(value: Payoff, beyond: Floats | None = None) -> tuple[Floats, Floats]:
    """F⁺ and e^s F⁻ of R: the largest X₊ among this cell and those of larger v, the smallest Y among smaller v."""
    plus, minus = value.plus[:, 0], value.minus[:, 0]
    if beyond is not None:
        plus = np.concatenate([plus, np.broadcast_to(beyond, (1, plus.shape[1]))])
    upper = np.maximum.accumulate(plus[::-1], axis=0)[::-1][: len(minus)]
    return upper, np.minimum.accumulate(minus, axis=0)


def unknown(pmf: Floats, lattice: Lattice, survivors: Survivors, corners: list[Corner], from_prior: int) -> Floats:
    """(Q¹_v)₊ for each cell and corner: Theorem H-U.

    A cell of large v outlives few runs, so that it joins late: until then it is bounded by its value at s = ∞.
    """
    cells, count = len(survivors.certain), lattice.count
    w, w_back = np.array([corner[0] for corner in corners]), np.array([corner[1] for corner in corners])
    certain = np.zeros((cells, 1 + len(corners)))  # R and the Q at s = ∞, for all cells
    value = Payoff(np.zeros((0, certain.shape[1], count + 1)), np.zeros((0, certain.shape[1], count)))
    for i in range(len(pmf) - 1, 0, -1):
        certain, before = _certain(certain, pmf[i] * (1 + SLACK), survivors, w if i > from_prior else 1.0), certain
        weight = np.max(certain[:, 1:], axis=1) * survivors.certain ** (i - 1)
        active = max(len(value.plus), int(np.count_nonzero(weight > _LATE)), 1)
        value = _join(value, before, active, count)
        up, down = survivors(value)
        up[:, 0] += pmf[i] * (1 + SLACK)
        down[:, 0] += pmf[i] * (1 - SLACK)
        one = payoff(lattice, up[:, :1], down[:, :1])
        if i > from_prior:
            upper, lower = _hull(one, certain[active, 0] if active < cells else None)
            up[:, 1:] += w[None, :, None] * upper[:, None, :]
            down[:, 1:] += w_back[None, :, None] * lower[:, None, :]
        else:
            up[:, 1:] += one.plus
            down[:, 1:] += one.minus
        rest = payoff(lattice, up[:, 1:], down[:, 1:])
        value = Payoff(np.concatenate([one.plus, rest.plus], axis=1), np.concatenate([one.minus, rest.minus], axis=1))
    return _join(value, certain, cells, count).plus[:, 1:]


def _certain(certain: Floats, mass: float, survivors: Survivors, w: Floats | float) -> Floats:
    """One step back at s = ∞, where D is known: R ← p_i + (1 − v) R, Q ← w F⁺ + (1 − v) Q."""
    left = survivors.certain[:, None] * certain
    r = left[:, 0] + mass
    upper = np.maximum.accumulate(r[::-1])[::-1]
    return np.column_stack([r, left[:, 1:] + w * upper[:, None]]) * (1 + SLACK * 1e-2)


def _join(value: Payoff, certain: Floats, active: int, count: int) -> Payoff:
    """Add cells that start from their value at s = ∞."""
    new = certain[len(value.plus) : active, :, None]
    if len(new) == 0:
        return value
    plus = np.broadcast_to(new, (*new.shape[:2], count + 1))
    minus = np.zeros((*new.shape[:2], count))
    return replace(value, plus=np.concatenate([value.plus, plus]), minus=np.concatenate([value.minus, minus]))


def known(pmf: Floats, lattice: Lattice, survivors: Survivors, corners: list[Corner], from_prior: int) -> Floats:
    """(Σ_k p_k Q̄^k_v)₊ for each cell and corner: Theorem H-K."""
    cells, count = len(survivors.certain), lattice.count
    w, w_back = np.array([corner[0] for corner in corners]), np.array([corner[1] for corner in corners])
    ones = np.zeros((cells, 1 + len(corners), count + 1))
    ones[:, 0] = 1.0
    value = payoff(lattice, ones, ones[..., :-1])
    total_up, total_down = np.zeros((cells, len(corners), count + 1)), np.zeros((cells, len(corners), count))
    for k in range(1, len(pmf)):
        up, down = survivors(value)
        upper, lower = _hull(value)
        q_up = up[:, 1:] + w[None, :, None] * upper[:, None, :]
        q_down = down[:, 1:] + w_back[None, :, None] * lower[:, None, :]
        if from_prior:
            total_up += pmf[k] * (1 + SLACK) * (up[:, 1:] + value.plus[:, :1])
            total_down += pmf[k] * (1 - SLACK) * (down[:, 1:] + value.minus[:, :1])
        else:
            total_up += pmf[k] * (1 + SLACK) * q_up
            total_down += pmf[k] * (1 - SLACK) * q_down
        value = payoff(
            lattice, np.concatenate([up[:, :1], q_up], axis=1), np.concatenate([down[:, :1], q_down], axis=1)
        )
    return payoff(lattice, total_up * (1 + SLACK), total_down * (1 - SLACK)).plus
