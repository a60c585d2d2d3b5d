"""Explicit attacks: lower bounds on the ε of a search, to hold against the accountant's upper bounds.

The score ranks a set S of outcomes that are likely on D′ on top, then all others by falling loss. On D′ the set S
tends to win and hides what comes next; on D it does not. The attacker looks whether the winner lies in
E = {loss > t}, just below S. With S = {loss ≤ s} and f the generating function of T,

    A(E) = f(1 − P(S)) − f(1 − P(S) − P(E)),    A′(E) = f(1 − Q(S)) − f(1 − Q(S) − Q(E)),

and δ ≥ A(E) − e^ε A′(E) for every s ≤ t. For a band, the losses are those of the policy that makes Lemma 2 tight.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.accounting import Floats
from dphypo.audit.pair import Pair
from dphypo.band import Band
from dphypo.laws import Law

_CUTS = 200
_ROUNDING = 1e-12  # for each run, what sums, convolutions and the generating function may be off by


def attack_delta(pair: Pair, runs: Law, band: Band, epsilon: float) -> float:
    """A δ that some search with this law and band really has at ε ≥ 0: a lower bound on every valid guarantee."""
    on, off, _ = _probabilities(pair.with_policy(band), runs)
    return max(0.0, float(np.max(on - math.exp(epsilon) * off)))


def attack_epsilon(pair: Pair, runs: Law, band: Band, delta: float) -> float:
    """The largest ε at which the attack still achieves more than δ, rounded down: no valid ε at δ is below it.

    >>> from dphypo.audit.pair import dp_sgd_pair
    >>> from dphypo.laws import Geometric
    >>> pair = dp_sgd_pair(noise_multiplier=1.0, sampling_rate=1.0, steps=1)
    >>> round(attack_epsilon(pair, Geometric(mean=1.001), Band(1, 1), 1e-5), 2)
    4.38
    """
    delta = _validate.within(0.0, 1.0, delta=delta)
    on, off, _ = _probabilities(pair.with_policy(band), runs)
    low, high = 0.0, float(pair.losses.max()) + 200.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if np.max(on - math.exp(middle) * off) > delta else (low, middle)
    return low


def best_cuts(pair: Pair, runs: Law, band: Band, value: Callable[[Floats, Floats], Floats]) -> tuple[float, float]:
    """The losses s and t at which ``value(A(E), A′(E))`` is largest, for S = {loss ≤ s} and E = {loss > s and > t}."""
    attacked = pair.with_policy(band)
    on, off, cuts = _probabilities(attacked, runs)
    s, t = cuts[:, int(np.argmax(value(on, off)))]
    edges = np.concatenate([[-np.inf], (attacked.losses[1:] + attacked.losses[:-1]) / 2])
    return float(edges[s]), float(edges[t])


def _probabilities(pair: Pair, runs: Law) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """A(E) and A′(E) for a grid of cuts, and the cuts: S has the losses before the first, E those from the second."""
    p, q = pair.on, pair.off
    p_below, q_below = np.concatenate([[0.0], np.cumsum(p)]), np.concatenate([[0.0], np.cumsum(q)])
    p_above, q_above = np.cumsum(p[::-1])[::-1], np.cumsum(q[::-1])[::-1]
    tops = np.unique(np.concatenate([[0], np.searchsorted(q_below, np.linspace(0.0, q_below[-1], _CUTS))]))
    tops = tops[tops < len(p)]
    bottoms = np.unique(np.searchsorted(-p_above, -np.geomspace(1e-14, 1.0, 4 * _CUTS)))
    bottoms = bottoms[bottoms < len(p)]
    s, t = np.meshgrid(tops, bottoms, indexing="ij")
    usable = s <= t
    p_s, q_s, p_e, q_e = p_below[s], q_below[s], p_above[t], q_above[t]
    on = runs.pgf(np.clip(1 - p_s, 0, 1)) - runs.pgf(np.clip(1 - p_s - p_e, 0, 1))
    off = runs.pgf(np.clip(1 - q_s, 0, 1)) - runs.pgf(np.clip(1 - q_s - q_e, 0, 1))
    on, off = np.asarray(on[usable] - _ROUNDING * runs.mean), np.asarray(off[usable] + _ROUNDING * runs.mean)
    return on, off, np.stack([s[usable], t[usable]])
