"""Explicit attacks: lower bounds on the ε of a search, to hold against the accountant's upper bounds.

The score ranks a set S of outcomes that are likely on D′ on top, then all others by falling loss. On D′ the set S
tends to win and hides what comes next; on D it does not. The attacker looks whether the winner lies in
E = {loss > t}, just below S. With S = {loss ≤ s} and f the generating function of T,

    A(E) = f(1 − P(S)) − f(1 − P(S) − P(E)),    A′(E) = f(1 − Q(S)) − f(1 − Q(S) − Q(E)),

and δ ≥ A(E) − e^ε A′(E) for every s ≤ t. For a band, the losses are those of the policy that makes Lemma 2 tight.

A study draws the λ of its first run from the prior. With P₁ the law of that run's outcome, f(1 − P(S)) becomes
p₀ + (1 − P₁(S)) (f(1 − P(S)) − p₀)/(1 − P(S)), p₀ = P[T = 0], and the others alike.
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


def attack_delta(pair: Pair, runs: Law, band: Band, epsilon: float, *, first_from_prior: bool = False) -> float:
    """A δ that some search with this law and band really has at ε ≥ 0: a lower bound on every valid guarantee."""
    on, off, _ = _probabilities(pair, runs, band, first_from_prior)
    return max(0.0, float(np.max(on - math.exp(epsilon) * off)))


def attack_epsilon(pair: Pair, runs: Law, band: Band, delta: float, *, first_from_prior: bool = False) -> float:
    """The largest ε at which the attack still achieves more than δ, rounded down: no valid ε at δ is below it.

    Args:
        pair: the laws of one run.
        runs, band: of the search.
        delta: the δ of the guarantee.
        first_from_prior: whether the λ of the first run is drawn from the prior, as in a study.

    >>> from dphypo.audit.pair import dp_sgd_pair
    >>> from dphypo.laws import Geometric
    >>> pair = dp_sgd_pair(noise_multiplier=1.0, sampling_rate=1.0, steps=1)
    >>> round(attack_epsilon(pair, Geometric(mean=1.001), Band(1, 1), 1e-5), 2)
    4.38
    """
    delta = _validate.within(0.0, 1.0, delta=delta)
    on, off, _ = _probabilities(pair, runs, band, first_from_prior)
    low, high = 0.0, float(pair.losses.max()) + 200.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if np.max(on - math.exp(middle) * off) > delta else (low, middle)
    return low


def best_cuts(
    pair: Pair, runs: Law, band: Band, value: Callable[[Floats, Floats], Floats], *, first_from_prior: bool = False
) -> tuple[float, float]:
    """The losses s and t at which ``value(A(E), A′(E))`` is largest, for S = {loss ≤ s} and E = {loss > s and > t}."""
    losses = pair.with_policy(band).losses
    on, off, cuts = _probabilities(pair, runs, band, first_from_prior)
    s, t = cuts[:, int(np.argmax(value(on, off)))]
    edges = np.concatenate([[-np.inf], (losses[1:] + losses[:-1]) / 2])
    return float(edges[s]), float(edges[t])


def _probabilities(
    pair: Pair, runs: Law, band: Band, first_from_prior: bool
) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """A(E) and A′(E) for a grid of cuts, and the cuts: S has the losses before the first, E those from the second."""
    later = pair.with_policy(band)
    first = pair.with_policy(band, from_prior=True) if first_from_prior else later
    q_below, p_above = np.concatenate([[0.0], np.cumsum(later.off)]), np.cumsum(later.on[::-1])[::-1]
    tops = np.unique(np.concatenate([[0], np.searchsorted(q_below, np.linspace(0.0, q_below[-1], _CUTS))]))
    bottoms = np.unique(np.searchsorted(-p_above, -np.geomspace(1e-14, 1.0, 4 * _CUTS)))
    s, t = np.meshgrid(tops[tops < len(p_above)], bottoms[bottoms < len(p_above)], indexing="ij")
    s, t = s[s <= t], t[s <= t]
    on = _winner_in_e(first.on, later.on, runs, s, t)
    off = _winner_in_e(first.off, later.off, runs, s, t)
    rounding = _ROUNDING * runs.mean
    return on - rounding, off + rounding, np.stack([s, t])


def _winner_in_e(first: Floats, later: Floats, runs: Law, s: npt.NDArray[np.int64], t: npt.NDArray[np.int64]) -> Floats:
    """The probability that no run is in S and one is in E, for masses of the first run and of the later ones."""

    def none_of(masses: Floats) -> tuple[Floats, Floats]:
        below, above = np.concatenate([[0.0], np.cumsum(masses)]), np.cumsum(masses[::-1])[::-1]
        return np.clip(1 - below[s], 0, 1), np.clip(1 - below[s] - above[t], 0, 1)

    none, other = (_all_runs(runs, *both) for both in zip(none_of(first), none_of(later), strict=True))
    return np.asarray(none - other)


def _all_runs(runs: Law, first: Floats, later: Floats) -> Floats:
    """E over T of first · later^(T−1): the probability that all runs do what one does with these probabilities."""
    if np.array_equal(first, later):
        return np.asarray(runs.pgf(later))
    none = float(runs.pmf(0))
    safe = np.maximum(later, 1e-3)  # below, the division would cost digits, and ten terms of the series are exact
    long = (np.asarray(runs.pgf(safe)) - none) / safe
    short = np.polynomial.polynomial.polyval(np.minimum(later, 1e-3), [float(runs.pmf(t)) for t in range(1, 11)])
    return np.asarray(none + first * np.where(later < 1e-3, short, long))
