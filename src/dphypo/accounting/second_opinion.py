"""A second opinion on ε: a lower and an upper bound of their own, by other means than the accountant's.

Of the library's code this shares the gate of events, the laws of T and what rounding adds. Of several releases the
lower bound is the largest of theirs, and the upper bound that of all together.

A search from below: an explicit attack (docs/theory/search.md). With P(>s) and P(>t) bounded from below, Q(>s) and
Q(>t) from above, A(E) = f(P(>s)) − f(P(>s) − P(>t)) is bounded from below and A′(E) from above, because f is convex and
increasing.

A search from above, Theorem 4 as it is written: the expectation of φ(e^(ε−ℓ)) over the losses of a run, φ and τ by
plain maxima and minima on cells, where the accountant mixes shifted profiles from convex hulls.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.signal import fftconvolve

from dphypo.accounting.composition import Composition, PublishedRuns, Releases
from dphypo.accounting.events import Event
from dphypo.accounting.guarantee import Guarantee, PolicyClass
from dphypo.accounting.one_run import charge_slack
from dphypo.accounting.second_pair import GRID, Floats, NoOpinion, Pair, compose, from_below, largest, one_run
from dphypo.band import Band
from dphypo.laws import Law

FINE_GRID = 1e-4  # from below: what a step loses in rounding adds up
_CUTS = 150
_REACH = 80_000  # in multiples of the grid: ε up to 40
_ROUNDING = 1e-12  # of a generating function, for each run


@dataclass(frozen=True)
class Opinion:
    """No valid ε is below ``lower``; ``upper`` is one, infinite where none was computed and ``why`` says why."""

    lower: float
    upper: float
    why: str = ""


def second_opinion(guarantee: Releases | Composition, delta: float) -> Opinion:
    """Bound ε at δ from below and from above, by other means than the accountant's.

    >>> from dp_accounting import GaussianDpEvent
    >>> from dphypo.accounting import account
    >>> from dphypo.laws import Geometric
    >>> guarantee = account(GaussianDpEvent(4.0), Geometric(mean=10))
    >>> opinion = second_opinion(guarantee, 1e-6)
    >>> opinion.lower <= guarantee.epsilon(1e-6) <= opinion.upper * 1.001 < opinion.lower * 1.05
    True
    """
    lower = epsilon_from_below(guarantee, delta)

    def upper(releases: Sequence[Releases]) -> float:
        # The lower bound has no slack: a run may be exactly as private as its event.
        slack = math.fsum(one.slack for one in releases)
        return charge_slack(lambda rest: {"": _bounded(releases, rest)}, delta, slack)[""]

    try:
        return Opinion(lower, max(upper(releases) for releases in Composition.of(guarantee).met.values()))
    except NoOpinion as unknown:
        return Opinion(lower, math.inf, f"not known here: {unknown}")


def epsilon_from_below(guarantee: Releases | Composition, delta: float) -> float:
    """An ε that an explicit attack really achieves at δ, zero where none is known: no valid guarantee says less."""
    releases = dict.fromkeys(one for met in Composition.of(guarantee).met.values() for one in met)
    return max(_attacked(one, event, delta) for one in releases for event in one.events)


def _attacked(one: Releases, event: Event, delta: float) -> float:
    """An ε that one release has: by an attack on a search, or by the composition of runs that are all published."""
    with contextlib.suppress(NoOpinion):
        pairs = one_run(event, one.relation, above=False, grid=FINE_GRID)
        if isinstance(one, PublishedRuns):
            found = [from_below(compose([(pair, one.count)], above=False), delta) for pair in pairs]
        else:
            # The attack's policy knows the data and adapts from the first run on. Where the guarantee is for fewer
            # policies, the uniform search is still one of them.
            free = one.policy is PolicyClass.ANYTHING and one.first_from_prior == 0
            found = [attack(pair, one.runs, one.band if free else Band(1.0, 1.0), delta) for pair in pairs]
        return max(found, default=0.0)
    return 0.0


def _bounded(releases: Sequence[Releases], delta: float) -> float:
    """An upper bound on ε without slack: Theorem 4 of a single search, or their composition."""
    if any(len(one.events) > 1 for one in releases):
        raise NoOpinion("the privacy of a run depends on its hyperparameters")
    runs = [one_run(one.events[0], one.relation, above=True, grid=GRID) for one in releases]
    only = releases[0]
    if len(releases) == 1 and isinstance(only, Guarantee):
        ways = (search_delta(forward, reverse, only.runs, only.band) for forward, reverse in both(runs[0]))
        return max(smallest(way, delta) for way in ways)
    parts = [
        (run, one.count) if isinstance(one, PublishedRuns) else (search_pairs(run, one.runs, one.band), 1)
        for run, one in zip(runs, releases, strict=True)
    ]
    composed = [compose([(pairs[way], count) for pairs, count in parts], above=True) for way in (0, -1)]
    return max(smallest(pair.delta, delta) for pair in composed)


def smallest(delta_at: Callable[[float], float], delta: float, high: float = 200.0) -> float:
    """The smallest ε ≥ 0 at which a decreasing function is at most ``delta``, rounded up; infinite if there is none."""
    low = 0.0
    if delta_at(low) <= delta:
        return low
    if not delta_at(high) <= delta:
        return math.inf
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high


def _groups(band: Band) -> list[tuple[float, float, float]]:
    """Prior masses of the groups of λ, and their densities relative to the prior on D and on D′."""
    if band.c == band.C:
        return [(1.0, 1.0, 1.0)]
    share = (1.0 - band.c) / (band.C - band.c)
    side = min(share, 1.0 - share)
    rest = band.c if share <= 0.5 else band.C
    return [(side, band.C, band.c), (side, band.c, band.C), (1.0 - 2.0 * side, rest, rest)]


def attack(pair: Pair, runs: Law, band: Band, delta: float) -> float:
    """An ε that the search really has at δ, for some runs with these losses and some policy inside the band."""
    losses, on, off = [], [], []
    for mass, here, there in _groups(band):
        losses.append(pair.losses + math.log(here / there))
        on.append(pair.masses * mass * here)
        off.append((pair.masses + pair.error) * np.exp(-pair.losses) * mass * there)
    rank = np.argsort(np.concatenate(losses), kind="stable")
    p = np.append(np.concatenate(on)[rank], pair.infinity)
    q = np.append(np.concatenate(off)[rank], 0.0)
    p_above, q_above = np.cumsum(p[::-1])[::-1], np.minimum(np.cumsum(q[::-1])[::-1] * (1 + 1e-9), 1.0)
    tops = np.unique(np.append(0, np.searchsorted(-q_above, -np.linspace(1.0, 0.0, _CUTS))))
    bottoms = np.unique(np.searchsorted(-p_above, -np.geomspace(1.0, 1e-15, 4 * _CUTS)))
    s, t = np.meshgrid(tops[tops < len(p)], bottoms[bottoms < len(p)], indexing="ij")
    s, t = s[s <= t], t[s <= t]
    a, b, a_off, b_off = p_above[s], p_above[t], q_above[s], q_above[t]
    rounding = _ROUNDING * runs.mean
    hits = runs.pgf(np.clip(a, 0, 1)) - runs.pgf(np.clip(a - b, 0, 1)) - rounding
    misses = np.maximum(runs.pgf(np.clip(a_off, 0, 1)) - runs.pgf(np.clip(a_off - b_off, 0, 1)), 0.0) + rounding
    return largest(lambda eps: float(np.max(hits - math.exp(eps) * misses)), delta)


def _profile(pair: Pair) -> Callable[[Floats], Floats]:
    """δ as a function of many ε."""
    losses = pair.losses
    above = np.append(np.cumsum(pair.masses[::-1])[::-1], 0.0)
    discounted = np.append(np.cumsum((pair.masses * np.exp(-losses))[::-1])[::-1], 0.0)

    def delta(epsilon: Floats) -> Floats:
        first = np.searchsorted(losses, epsilon, side="right")
        value = pair.infinity + above[first] - np.exp(np.minimum(epsilon, losses[-1])) * discounted[first]
        return np.asarray(np.clip(value + 1e-14 * above[first], pair.infinity, 1.0))

    return delta


def _phi(runs: Law, band: Band, reverse: Pair) -> Callable[[Floats], Floats]:
    """φ(z) = max over v of (g(v) − z g(τ(v)))₊ from above: cells in v, chords in z."""
    delta = _profile(reverse)
    reach = max(abs(float(reverse.losses[0])), abs(float(reverse.losses[-1]))) + math.log(band.C / band.c)
    log_r = np.linspace(-min(reach, 300.0), min(reach, 300.0), 1501)
    lines = np.zeros(len(log_r))
    for mass, here, there in _groups(band):
        lines += mass * here * delta(log_r + math.log(there / here))
    v = np.unique(
        np.concatenate([np.geomspace(1e-16, 1e-4, 600), np.geomspace(1e-4, 1, 5000), np.linspace(0, 1, 1500)])
    )
    tau = np.ones(len(v))
    for r, height in zip(np.exp(log_r), lines * (1 + 1e-12), strict=True):
        np.minimum(tau, (r * v + height) * (1 + 1e-12), out=tau)
    a, b = np.exp(runs.log_g(v))[:-1] * (1 + 1e-9), np.exp(runs.log_g(tau))[1:] * (1 - 1e-9)
    knots = np.exp(np.unique(np.concatenate([np.linspace(-60.0, 60.0, 1200), np.linspace(-4.0, 4.0, 2000)])))
    heights = np.zeros(len(knots))
    for i in range(0, len(a), 200):
        np.maximum(heights, np.max(a[i : i + 200, None] - knots * b[i : i + 200, None], axis=0), out=heights)
    knots, heights = np.append(0.0, knots), np.append(max(runs.mean, float(a[0])), heights)
    return lambda z: np.asarray(np.interp(z, knots, heights))


def search_delta(forward: Pair, reverse: Pair, runs: Law, band: Band) -> Callable[[float], float]:
    """δ of a search in one direction, from above: Theorem 4."""
    phi, mean = _phi(runs, band, reverse), runs.mean
    groups = _groups(band)

    def delta(epsilon: float) -> float:
        total = float(runs.pgf(0.0)) * max(0.0, -math.expm1(epsilon))
        for mass, here, there in groups:
            at = np.exp(np.clip(epsilon + math.log(there / here) - forward.losses, -700.0, 700.0))
            total += mass * here * (float(np.dot(forward.masses, phi(at))) + forward.infinity * mean)
        return min(total * (1 + 1e-9), 1.0)

    return delta


def both(pairs: Sequence[Pair]) -> list[tuple[Pair, Pair]]:
    return [(pairs[0], pairs[-1])] if len(pairs) == 1 else [(pairs[0], pairs[1]), (pairs[1], pairs[0])]


def search_pairs(run: Sequence[Pair], runs: Law, band: Band) -> list[Pair]:
    """Pairs that dominate a search in both directions, to be composed."""
    found = []
    epsilon = np.arange(-_REACH, _REACH + 1) * GRID
    for forward, reverse in both(run):
        phi, size = _phi(runs, band, reverse), len(forward.masses)
        # F(ih) = Σ_j p_j φ(e^((i − first − j)h)) for |i| ≤ REACH: one convolution, whose rounding is added.
        powers = np.arange(-_REACH - forward.first - size + 1, _REACH - forward.first + 1) * GRID
        F = fftconvolve(phi(np.exp(np.clip(powers, -700.0, 700.0))), forward.masses, mode="valid")
        F = np.minimum.accumulate(F + 1e-15 * runs.mean * size) + forward.infinity * runs.mean
        total = float(runs.pgf(0.0)) * np.maximum(0.0, -np.expm1(np.minimum(epsilon, 0.0)))
        for mass, here, there in _groups(band):
            index = np.arange(len(F)) + math.floor(math.log(there / here) / GRID)
            total += mass * here * np.where(index < 0, runs.mean, F[np.clip(index, 0, len(F) - 1)])
        found.append(np.minimum(total * (1 + 1e-9), 1.0))
    below = np.exp(np.minimum(epsilon, 0.0))  # for ε < 0 also δ(ε) = 1 − e^ε + e^ε δ^rev(−ε)
    mirrored = [1.0 - below + below * other[::-1] for other in found[::-1]]
    return [
        _as_pair(np.where(epsilon < 0, np.minimum(one, other), one)) for one, other in zip(found, mirrored, strict=True)
    ]


def _as_pair(deltas: Floats) -> Pair:
    """The pair whose profile is 1 at e^ε = 0 and the largest convex function of e^ε below these values, at |i| ≤ REACH.

    A profile is convex in e^ε, so that function is a bound as well. Points on or above the line between their
    neighbours are dropped until none is left.
    """
    index = np.arange(-_REACH, _REACH + 1)
    first = int(np.argmin((deltas - 1.0) / np.exp(index * GRID)))  # to its left, the tangent from (0, 1)
    index, delta = index[first:], deltas[first:]
    while True:
        falls, widths = np.diff(delta), np.diff(index) * GRID
        right = np.append(falls / np.expm1(widths), 0.0)  # e^ε times the slope to the right of each point
        left = np.append(delta[0] - 1.0, falls / -np.expm1(-widths))  # and to the left
        dropped = right <= left
        dropped[0] = dropped[-1] = False
        if not dropped.any():
            break
        index, delta = index[~dropped], delta[~dropped]
    masses = np.zeros(int(index[-1] - index[0]) + 1)
    masses[index - index[0]] = np.maximum(right - left, 0.0)
    return Pair(int(index[0]), masses, float(delta[-1]), GRID)
