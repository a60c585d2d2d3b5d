"""A second opinion on ε: a lower and an upper bound, computed independently of the accountant.

This file uses the library's canonical events, its laws of T and its bounds on rounding, and none of its other code. For
several releases the lower bound is the largest of theirs, and the upper bound is that of all together.

One run: a single step is cut into intervals of its outcome on which both probabilities are known in closed form. From
above, :func:`_split_to_ends` gives a pair that dominates; from below, :func:`_merged` one that post-processing gives.
Steps are composed by a Fourier transform.

A search from below: an explicit attack (docs/theory/search.md). From above: Theorem 4 as stated, with φ and τ by plain
maxima and minima on cells, where the accountant mixes shifted profiles from convex hulls.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from dp_accounting import DpEvent, NeighboringRelation, dp_event
from scipy.fft import irfft, next_fast_len, rfft
from scipy.signal import fftconvolve
from scipy.special import ndtr

from dphypo.accounting.composition import Composition, PublishedRuns, Releases
from dphypo.accounting.events import ApproximateDp, Event, PureDp, RdpCurve, ideal
from dphypo.accounting.guarantee import Guarantee, PolicyClass
from dphypo.accounting.one_run import charge_slack
from dphypo.band import Band
from dphypo.laws import Law

Floats = npt.NDArray[np.float64]
GRID = 5e-4
_DEEP = 40.0  # losses beyond this are cut off
_TAIL = 1e-17
MOST_BINS = 8_000_000
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
        return Opinion(lower, max(upper(releases) for releases in Composition.of(guarantee).charged.values()))
    except NoOpinion as unknown:
        return Opinion(lower, math.inf, f"not known here: {unknown}")


def epsilon_from_below(guarantee: Releases | Composition, delta: float) -> float:
    """An ε that an explicit attack really achieves at δ, zero where none is known: no valid guarantee says less."""
    releases = dict.fromkeys(one for charged in Composition.of(guarantee).charged.values() for one in charged)
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


def smallest(delta_at: Callable[[float], float], delta: float) -> float:
    """The smallest ε ≥ 0 at which a decreasing function is at most ``delta``, rounded up; infinite if there is none."""
    if delta_at(0.0) <= delta:
        return 0.0
    return _bisected(lambda epsilon: delta_at(epsilon) <= delta, 200.0)[1] if delta_at(200.0) <= delta else math.inf


def _bisected(reached: Callable[[float], bool], high: float) -> tuple[float, float]:
    """Between which two ε, from 0 to ``high``, something is reached."""
    low = 0.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return low, high


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
    # A(E) = f(P(>s)) − f(P(>s) − P(>t)) from below and A′(E) from above, as f is convex and increasing.
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


# One run


class NoOpinion(Exception):  # noqa: N818 - it is an answer
    """This kind of event is not known here."""


@dataclass(frozen=True, eq=False)
class Pair:
    """P[loss = (``first`` + k) · ``grid``] = ``masses[k]``, and P[loss = ∞] = ``infinity``.

    ``error`` is what each mass may be off by. For a bound from below, losses are rounded down and mass may be missing;
    for one from above, losses are rounded up and what is missing is in ``infinity``.
    """

    first: int
    masses: Floats
    infinity: float
    grid: float
    error: float = 0.0

    @property
    def losses(self) -> Floats:
        """The losses, from the lowest."""
        return np.asarray((self.first + np.arange(len(self.masses))) * self.grid, dtype=np.float64)

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence, without an allowance for ``error``."""
        above = self.losses > epsilon
        return self.infinity + float(np.dot(self.masses[above], -np.expm1(epsilon - self.losses[above])))


@dataclass(frozen=True)
class _Noise:
    """Additive noise: tails of the output without the record, which moves it by 1."""

    tail: Callable[[Floats], Floats]  # P[output > x] without the record; symmetric about 0
    output: Callable[[Floats], Floats]  # the output at which the loss, with the record against without, has a value
    largest: float  # the largest loss


def _gaussian(sigma: float) -> _Noise:
    far = 0.5 / sigma**2 + 9.0 / sigma
    return _Noise(lambda x: ndtr(-x / sigma), lambda loss: loss * sigma**2 + 0.5, far)


def _laplace(scale: float) -> _Noise:
    def tail(x: Floats) -> Floats:
        return np.where(x > 0, 0.5 * np.exp(-np.abs(x) / scale), 1.0 - 0.5 * np.exp(-np.abs(x) / scale))

    return _Noise(tail, lambda loss: (loss * scale + 1.0) / 2.0, 1.0 / scale)


@lru_cache(maxsize=32)
def one_run(event: Event, relation: NeighboringRelation, *, above: bool, grid: float) -> tuple[Pair, ...]:
    """The privacy loss of a run in both directions of the relation (one, where they are equal), without slack."""
    match event := ideal(event):
        case PureDp(epsilon) | ApproximateDp(epsilon):
            delta = event.delta if isinstance(event, ApproximateDp) else 0.0
            likely = (1.0 - delta) / (1.0 + math.exp(-epsilon))
            losses, masses = np.array([epsilon, -epsilon]), np.array([likely, likely * math.exp(-epsilon)])
            return (_from_atoms(losses, masses, delta, grid, above),)
        case RdpCurve(orders, epsilons):
            if above:
                raise NoOpinion("an RdpCurve has no loss distribution")
            # A Gaussian whose curve α/(2σ²) lies below the one stated is among the runs that the statement allows.
            rho = min(epsilon / alpha for alpha, epsilon in zip(orders, epsilons, strict=True))
            return _steps([(dp_event.GaussianDpEvent(1 / math.sqrt(2 * rho)), 1)], None, above, grid) if rho else ()
        case dp_event.PoissonSampledDpEvent() if not isinstance(
            event.event, (dp_event.GaussianDpEvent, dp_event.LaplaceDpEvent)
        ):
            if above or event.sampling_probability == 0:
                raise NoOpinion("a run on one subsample")
            return (_subsampled(event, relation, grid),)
        case _:
            return _steps(list(_leaves(event, 1)), relation, above, grid)


@lru_cache(maxsize=256)
def run_epsilon_from_below(event: Event, relation: NeighboringRelation, delta: float) -> float:
    """An ε that one run really has at δ: no valid accountant says less. Zero where the event is not known here."""
    try:
        pairs = one_run(event, relation, above=False, grid=GRID)
    except NoOpinion:
        return 0.0
    return max((from_below(pair, delta) for pair in pairs), default=0.0)


def from_below(pair: Pair, delta: float) -> float:
    """The ε of a pair whose losses are rounded down, less what rounding may have added to its δ."""
    return largest(lambda epsilon: pair.delta(epsilon) - 1e-15, delta)


def largest(delta_at: Callable[[float], float], delta: float) -> float:
    """The largest ε ≥ 0 at which a decreasing function is above ``delta``, rounded down; 0 if there is none."""
    return _bisected(lambda epsilon: not delta_at(epsilon) > delta, 100.0)[0]


def _leaves(event: DpEvent, count: int) -> Iterator[tuple[DpEvent, int]]:
    """Single steps and how often each is executed."""
    if isinstance(event, dp_event.SelfComposedDpEvent):
        yield from _leaves(event.event, count * event.count)
    elif isinstance(event, dp_event.ComposedDpEvent):
        for part in event.events:
            yield from _leaves(part, count)
    elif not isinstance(event, dp_event.NoOpDpEvent):
        yield event, count


def _steps(
    leaves: Sequence[tuple[DpEvent, int]], relation: NeighboringRelation | None, above: bool, grid: float
) -> tuple[Pair, ...]:
    replaces = relation is NeighboringRelation.REPLACE_ONE
    if not leaves:
        return (Pair(0, np.ones(1), 0.0, grid),)
    ways = ([_step(*leaf, replaces, removed, above, grid) for leaf in leaves] for removed in (True, False))
    return tuple(compose(parts, above) for parts in ways)


def _step(leaf: DpEvent, count: int, replaces: bool, removed: bool, above: bool, grid: float) -> tuple[Pair, int]:
    rate, base = 1.0, leaf
    if isinstance(leaf, dp_event.PoissonSampledDpEvent):
        rate, base = leaf.sampling_probability, leaf.event
        if replaces and above:
            raise NoOpinion("Poisson sampling under replacement")
    half = 0.5 if replaces and rate == 1.0 else 1.0  # a replaced record moves a sum by twice its norm
    match base:
        case dp_event.GaussianDpEvent(sigma):
            if rate == 1.0:
                sigma, count = half * sigma / math.sqrt(count), 1
            noise = _gaussian(sigma)
        case dp_event.LaplaceDpEvent(scale):
            noise = _laplace(half * scale)
        case dp_event.ZCDpEvent(rho, xi) if not above and rho > 0 and xi == 0:
            noise, count = _gaussian(1 / math.sqrt(2 * rho * count)), 1
        case dp_event.SampledWithoutReplacementDpEvent(size, sample, dp_event.GaussianDpEvent(sigma)) if not above:
            rate, noise = sample / size, _gaussian(sigma)  # the record that takes its place adds nothing
        case _:
            raise NoOpinion(type(base).__name__)
    if rate == 0:
        return Pair(0, np.ones(1), 0.0, grid), 1
    return _discretised(noise, rate, removed, above, grid), count


def _discretised(noise: _Noise, rate: float, removed: bool, above: bool, grid: float) -> Pair:
    """One step on the grid: from D with the record to D′ without it (``removed``), or the reverse."""
    bottom, top = _sampled(np.array([-noise.largest, noise.largest]), rate)
    low, high = math.floor(max(bottom, -_DEEP) / grid) - 1, math.ceil(min(top, _DEEP) / grid) + 1
    if high - low > MOST_BINS:
        raise NoOpinion("too little noise for the grid")
    edges = np.arange(low, high + 1, dtype=np.float64) * grid
    # The loss of the step without sampling at which the sampled one has the value of the edge.
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.log(np.maximum(np.exp(edges) - (1.0 - rate), 0.0)) - math.log(rate)
    x = noise.output(np.clip(inner, -noise.largest, noise.largest))
    x[inner < -noise.largest], x[inner >= noise.largest] = -np.inf, np.inf
    without, given = _intervals(noise, x), _intervals(noise, x - 1.0)
    p, q = (1.0 - rate) * without + rate * given, without
    # p[k] is the interval below edges[k]; p[0] reaches to −∞, p[-1] to ∞.
    if not removed:
        p, q, edges = q[::-1], p[::-1], -edges[::-1]
    return _split_to_ends(p, q, edges, grid) if above else _merged(p, q, edges, grid)


def _intervals(noise: _Noise, x: Floats) -> Floats:
    """Probabilities of the intervals between the points, and of both ends: differences of the tail that is small."""
    upper = -np.diff(np.append(np.append(1.0, noise.tail(x)), 0.0))
    lower = np.diff(np.append(np.append(0.0, noise.tail(-x)), 1.0))
    return np.maximum(np.where(np.append(-np.inf, x) > 0, upper, lower), 0.0)


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


def _merged(p: Floats, q: Floats, edges: Floats, grid: float) -> Pair:
    """Halves of neighbouring intervals merged at the edge between them.

    Level k is the loss of edge k. It gets half of the interval above it, with p − e^edge q to spare, and as much of the
    half below it, which lacks e^edge q − p, as that makes up for. What is left of the half below goes one level down,
    where it does no harm. So the loss of what is merged at an edge is that of the edge or more.
    """
    weight = np.exp(edges)
    lacks = np.maximum(weight * q[:-1] - p[:-1], 0.0) * (1 + 1e-9)
    spare = np.maximum(p[1:] - weight * q[1:], 0.0)
    spare[-1] *= 2.0  # all of the highest interval comes to the last edge
    with np.errstate(divide="ignore", invalid="ignore"):
        used = 0.5 * np.where(lacks > 0, np.minimum(1.0, spare / lacks), 1.0)
    used[0] = 0.0  # the lowest interval is left out
    masses = 0.5 * p[1:] + used * p[:-1]
    masses[-1] += 0.5 * p[-1]
    masses[:-1] += (0.5 - used[1:]) * p[1:-1]
    return Pair(round(edges[0] / grid), masses, 0.0, grid)


def _from_atoms(losses: Floats, masses: Floats, infinity: float, grid: float, above: bool) -> Pair:
    """Finitely many losses, rounded up or down to the grid."""
    levels = (np.ceil(losses / grid - 1e-9) if above else np.floor(losses / grid + 1e-9)).astype(np.int64)
    rounded = np.bincount(levels - levels.min(), weights=masses).astype(np.float64)
    return Pair(int(levels.min()), rounded, infinity + (1e-15 if above else 0.0), grid)


def _subsampled(event: dp_event.PoissonSampledDpEvent, relation: NeighboringRelation, grid: float) -> Pair:
    """A run on one Poisson subsample, from below: with probability ``rate`` the record is in it, and seen."""
    rate = event.sampling_probability
    removed, *_ = one_run(event.event, relation, above=False, grid=grid)
    losses = _sampled(removed.losses, rate)
    return _from_atoms(losses, rate * removed.masses, rate * removed.infinity, grid, above=False)


def _sampled(losses: Floats, rate: float) -> Floats:
    """log(1 − rate + rate · e^loss): the losses of a mechanism on a subsample."""
    return np.logaddexp(math.log1p(-rate) if rate < 1 else -math.inf, math.log(rate) + losses)


def compose(parts: Sequence[tuple[Pair, int]], above: bool) -> Pair:
    """The sum of independent losses, each repeated as often as given."""
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    low, high = _window(parts)
    size = next_fast_len(high - low + 1, real=True)
    if size > MOST_BINS:
        raise NoOpinion("too many steps for the grid")
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
    if above:
        missing = max(0.0, 1.0 - infinity - float(masses.sum()))
        return Pair(low, np.maximum(masses, 0.0), infinity + missing + error * size + 4 * _TAIL, grid, error)
    return Pair(low, np.maximum(masses - error, 0.0), infinity, grid, error)


def _window(parts: Sequence[tuple[Pair, int]]) -> tuple[int, int]:
    """Between which multiples of the grid the sum lies but for a probability of 2 _TAIL: Chernoff's bound."""
    ends = []
    for sign in (1, -1):
        best = math.inf
        for tilt in np.geomspace(1e-3, 1e3, 61) * parts[0][0].grid:
            total = -math.log(_TAIL)
            for pair, count in parts:
                held = np.flatnonzero(pair.masses > 0)
                powers = tilt * sign * (pair.first + held)
                peak = float(powers.max())
                total += count * (peak + math.log(float(np.dot(pair.masses[held], np.exp(powers - peak)))))
            best = min(best, total / tilt)
        ends.append(best)
    lowest = sum(pair.first * count for pair, count in parts)
    highest = sum((pair.first + len(pair.masses) - 1) * count for pair, count in parts)
    return max(lowest, math.floor(-ends[1])), min(highest, math.ceil(ends[0]))
