"""An upper bound on ε by other means than the accountant's: an oracle for the tests of guarantees.

Theorem 4 as stated, with φ and τ by plain maxima and minima on cells, where the accountant mixes shifted profiles from
convex hulls. The steps of a run are those of ``accounting/lower_bound.py``, whose losses are rounded up here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from dp_accounting import NeighboringRelation, dp_event
from scipy.fft import irfft, next_fast_len, rfft
from scipy.signal import fftconvolve

from dphypo.accounting import lower_bound
from dphypo.accounting.composition import Composition, PublishedRuns, Releases
from dphypo.accounting.events import ApproximateDp, Event, PureDp, ideal
from dphypo.accounting.guarantee import Guarantee
from dphypo.accounting.lower_bound import Pair
from dphypo.accounting.one_run import charge_slack
from dphypo.band import Band
from dphypo.laws import Law

Floats = npt.NDArray[np.float64]
GRID = 5e-4
_TAIL = 1e-17
_REACH = 80_000  # in multiples of the grid: ε up to 40


class NoBound(Exception):  # noqa: N818 - it is an answer
    """This kind of event is not known here."""


def epsilon_from_above(guarantee: Releases | Composition, delta: float) -> float:
    """An ε that the guarantee has at δ; :class:`NoBound` where none is known."""

    def upper(releases: Sequence[Releases]) -> float:
        slack = math.fsum(one.slack for one in releases)
        return charge_slack(lambda rest: {"": _bounded(releases, rest)}, delta, slack)[""]

    return max(upper(releases) for releases in Composition.of(guarantee).charged.values())


def _bounded(releases: Sequence[Releases], delta: float) -> float:
    """An upper bound on ε without slack: Theorem 4 of a single search, or their composition."""
    if any(len(one.events) > 1 for one in releases):
        raise NoBound("the privacy of a run depends on its hyperparameters")
    runs = [one_run(one.events[0], one.relation, GRID) for one in releases]
    only = releases[0]
    if len(releases) == 1 and isinstance(only, Guarantee):
        ways = (search_delta(forward, reverse, only.runs, only.band) for forward, reverse in both(runs[0]))
        return max(smallest(way, delta) for way in ways)
    parts = [
        (run, one.count) if isinstance(one, PublishedRuns) else (search_pairs(run, one.runs, one.band), 1)
        for run, one in zip(runs, releases, strict=True)
    ]
    composed = [compose([(pairs[way], count) for pairs, count in parts]) for way in (0, -1)]
    return max(smallest(pair.delta, delta) for pair in composed)


def smallest(delta_at: Callable[[float], float], delta: float) -> float:
    """The smallest ε ≥ 0 at which a decreasing function is at most ``delta``, rounded up; infinite if there is none."""
    if delta_at(0.0) <= delta:
        return 0.0
    low, high = 0.0, 200.0
    if delta_at(high) > delta:
        return math.inf
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high


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
    for mass, here, there in lower_bound._groups(band):
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
    groups = lower_bound._groups(band)

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
        for mass, here, there in lower_bound._groups(band):
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


@lru_cache(maxsize=32)
def one_run(event: Event, relation: NeighboringRelation, grid: float) -> tuple[Pair, ...]:
    """The privacy loss of a run in both directions of the relation (one, where they are equal), without slack."""
    event = ideal(event)
    if isinstance(event, PureDp | ApproximateDp):
        delta = event.delta if isinstance(event, ApproximateDp) else 0.0
        likely = (1.0 - delta) / (1.0 + math.exp(-event.epsilon))
        levels = np.ceil(np.array([event.epsilon, -event.epsilon]) / grid - 1e-9).astype(np.int64)
        masses = np.bincount(levels - levels.min(), weights=[likely, likely * math.exp(-event.epsilon)])
        return (Pair(int(levels.min()), masses, delta + 1e-15, grid),)
    if not isinstance(event, dp_event.DpEvent):
        raise NoBound(f"a {type(event).__name__} has no loss distribution")
    replaces = relation is NeighboringRelation.REPLACE_ONE
    parts = list(lower_bound._leaves(event, 1))
    for leaf, _ in parts:
        sampled = isinstance(leaf, dp_event.PoissonSampledDpEvent)
        base = leaf.event if sampled else leaf
        if not isinstance(base, dp_event.GaussianDpEvent | dp_event.LaplaceDpEvent) or (sampled and replaces):
            raise NoBound(f"{leaf!r} under {relation.name}")
    steps = [lower_bound._step(*part, replaces=replaces) for part in parts]
    return tuple(
        compose(
            [
                (_split_to_ends(*lower_bound._intervals(noise, rate, removed, grid), grid), count)
                for noise, rate, count in steps
            ]
        )
        for removed in (True, False)
    )


def _split_to_ends(p: Floats, q: Floats, edges: Floats, grid: float) -> Pair:
    """Each interval's mass at both ends of its losses, p and q kept; the lowest goes up, the highest to infinity."""
    low, high = edges[:-1], edges[1:]
    inner_p, inner_q = p[1:-1], q[1:-1]
    share = (inner_p * np.exp(-low) - inner_q) / (np.exp(-low) - np.exp(-high))
    at_high = np.clip(share * (1 + 1e-9), 0.0, inner_p)
    masses = np.zeros(len(edges))
    masses[1:] += at_high
    masses[:-1] += inner_p - at_high
    masses[0] += p[0]
    return Pair(round(edges[0] / grid), masses, float(p[-1]) + 1e-15, grid)


def compose(parts: Sequence[tuple[Pair, int]]) -> Pair:
    """The sum of independent losses, each repeated as often as given."""
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    low, high = lower_bound._window(parts)
    size = next_fast_len(high - low + 1, real=True)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    offset, convolutions, finite = 0, 0, 0.0
    for pair, count in parts:
        folded = np.bincount(np.arange(len(pair.masses)) % size, weights=pair.masses, minlength=size)
        spectrum *= rfft(folded) ** count
        offset, convolutions = offset + pair.first * count, convolutions + count
        finite += count * math.log1p(-min(pair.infinity, 1 - 1e-16))
    masses = np.roll(irfft(spectrum, size), (offset - low) % size)
    error = 4.0 * convolutions * 2.0**-53 * float(masses.max()) + 2 * _TAIL
    grid, infinity = parts[0][0].grid, -math.expm1(finite)
    missing = max(0.0, 1.0 - infinity - float(masses.sum()))
    return Pair(low, np.maximum(masses, 0.0), infinity + missing + error * size + 4 * _TAIL, grid, error)
