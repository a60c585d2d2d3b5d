"""A lower bound on ε: what an explicit attack really achieves, computed independently of the accountant.

No valid guarantee states less. This file uses the library's canonical events and its laws of T, and none of its other
code. For several releases the bound is the largest of theirs.

One run: a single step is cut into intervals of its outcome on which both probabilities are known in closed form.
:func:`_merged` turns them into a pair that post-processing gives. Steps are composed by a Fourier transform. A search:
an explicit attack (docs/theory/search.md).
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
from scipy.special import ndtr

from dphypo.accounting.composition import Composition, PublishedRuns, Releases
from dphypo.accounting.events import ApproximateDp, Event, PureDp, RdpCurve, ideal
from dphypo.accounting.guarantee import PolicyClass
from dphypo.band import Band
from dphypo.laws import Law

Floats = npt.NDArray[np.float64]
GRID = 5e-4
_DEEP = 40.0  # losses beyond this are cut off
_MOST = 100.0  # the largest ε that is looked for
_TAIL = 1e-17
MOST_BINS = 8_000_000
FINE_GRID = 1e-4  # for many steps: what each loses in rounding adds up
_CUTS = 150
_ROUNDING = 1e-12  # of a generating function, for each run


def epsilon_from_below(guarantee: Releases | Composition, delta: float) -> float:
    """An ε that an explicit attack really achieves at δ, zero where none is known: no valid guarantee says less."""
    releases = dict.fromkeys(one for charged in Composition.of(guarantee).charged.values() for one in charged)
    return max(_attacked(one, event, delta) for one in releases for event in one.events)


def _attacked(one: Releases, event: Event, delta: float) -> float:
    """An ε that one release has: by an attack on a search, or by the composition of runs that are all published."""
    with contextlib.suppress(NoAttack):
        pairs = one_run(event, one.relation, grid=FINE_GRID)
        if isinstance(one, PublishedRuns):
            found = [from_below(compose([(pair, one.count)]), delta) for pair in pairs]
        else:
            # The attack's policy knows the data and adapts from the first run on. Where the guarantee is for fewer
            # policies, the uniform search is still one of them.
            free = one.policy is PolicyClass.ANYTHING and one.first_from_prior == 0
            found = [attack(pair, one.runs, one.band if free else Band(1.0, 1.0), delta) for pair in pairs]
        return max(found, default=0.0)
    return 0.0


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
    bottoms = np.union1d(tops, np.searchsorted(-p_above, -np.geomspace(1.0, 1e-15, 4 * _CUTS)))  # E may be one loss
    s, t = np.meshgrid(tops[tops < len(p)], bottoms[bottoms < len(p)], indexing="ij")
    s, t = s[s <= t], t[s <= t]
    a, b, a_off, b_off = p_above[s], p_above[t], q_above[s], q_above[t]
    rounding = _ROUNDING * runs.mean
    # A(E) = f(P(>s)) − f(P(>s) − P(>t)) from below and A′(E) from above, as f is convex and increasing.
    hits = runs.pgf(np.clip(a, 0, 1)) - runs.pgf(np.clip(a - b, 0, 1)) - rounding
    misses = np.maximum(runs.pgf(np.clip(a_off, 0, 1)) - runs.pgf(np.clip(a_off - b_off, 0, 1)), 0.0) + rounding
    return largest(lambda eps: float(np.max(hits - math.exp(eps) * misses)), delta)


# One run


class NoAttack(Exception):  # noqa: N818 - it is an answer
    """No attack on this kind of event is known here."""


@dataclass(frozen=True, eq=False)
class Pair:
    """P[loss = (``first`` + k) · ``grid``] = ``masses[k]``, and P[loss = ∞] = ``infinity``.

    Losses are rounded down, and mass may be missing; ``error`` is what each mass may be off by.
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
def one_run(event: Event, relation: NeighboringRelation, *, grid: float) -> tuple[Pair, ...]:
    """The privacy loss of a run in both directions of the relation (one, where they are equal), without slack."""
    match event := ideal(event):
        case PureDp(epsilon) | ApproximateDp(epsilon):
            epsilon = min(epsilon, _MOST)  # a run with less is among those that the statement allows
            delta = event.delta if isinstance(event, ApproximateDp) else 0.0
            likely = (1.0 - delta) / (1.0 + math.exp(-epsilon))
            losses, masses = np.array([epsilon, -epsilon]), np.array([likely, likely * math.exp(-epsilon)])
            return (_from_atoms(losses, masses, delta, grid),)
        case RdpCurve(orders, epsilons):
            # A Gaussian whose curve α/(2σ²) lies below the one stated is among the runs that the statement allows.
            rho = min(epsilon / alpha for alpha, epsilon in zip(orders, epsilons, strict=True))
            return _steps([(dp_event.GaussianDpEvent(1 / math.sqrt(2 * rho)), 1)], None, grid) if rho else ()
        case dp_event.PoissonSampledDpEvent() if not isinstance(
            event.event, (dp_event.GaussianDpEvent, dp_event.LaplaceDpEvent)
        ):
            if event.sampling_probability == 0:
                raise NoAttack("a run on one subsample")
            return (_subsampled(event, relation, grid),)
        case _:
            return _steps(list(_leaves(event, 1)), relation, grid)


@lru_cache(maxsize=256)
def run_epsilon_from_below(event: Event, relation: NeighboringRelation, delta: float) -> float:
    """An ε that one run really has at δ: no valid accountant says less. Zero where the event is not known here."""
    try:
        pairs = one_run(event, relation, grid=GRID)
    except NoAttack:
        return 0.0
    return max((from_below(pair, delta) for pair in pairs), default=0.0)


def from_below(pair: Pair, delta: float) -> float:
    """The ε of a pair whose losses are rounded down, less what rounding may have added to its δ."""
    return largest(lambda epsilon: pair.delta(epsilon) - 1e-15, delta)


def largest(delta_at: Callable[[float], float], delta: float) -> float:
    """The largest ε ≥ 0 at which a decreasing function is above ``delta``, rounded down; 0 if there is none."""
    low, high = 0.0, _MOST
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return low


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
    leaves: Sequence[tuple[DpEvent, int]], relation: NeighboringRelation | None, grid: float
) -> tuple[Pair, ...]:
    if not leaves:
        return (Pair(0, np.ones(1), 0.0, grid),)
    steps = [_step(*leaf, replaces=relation is NeighboringRelation.REPLACE_ONE) for leaf in leaves]

    def one(noise: _Noise, rate: float, removed: bool) -> Pair:
        return _merged(*_intervals(noise, rate, removed, grid), grid) if rate else Pair(0, np.ones(1), 0.0, grid)

    return tuple(
        compose([(one(noise, rate, removed), count if rate else 1) for noise, rate, count in steps])
        for removed in (True, False)
    )


def _step(leaf: DpEvent, count: int, *, replaces: bool) -> tuple[_Noise, float, int]:
    """The noise of a single step, the rate at which it is sampled, and how often it is executed."""
    rate, base = 1.0, leaf
    if isinstance(leaf, dp_event.PoissonSampledDpEvent):
        rate, base = leaf.sampling_probability, leaf.event
    half = 0.5 if replaces and rate == 1.0 else 1.0  # a replaced record moves a sum by twice its norm
    match base:
        case dp_event.GaussianDpEvent(sigma):
            if rate == 1.0:
                sigma, count = half * sigma / math.sqrt(count), 1
            noise = _gaussian(sigma)
        case dp_event.LaplaceDpEvent(scale):
            noise = _laplace(half * scale)
        case dp_event.ZCDpEvent(rho, xi) if rho > 0 and xi == 0:
            noise, count = _gaussian(1 / math.sqrt(2 * rho * count)), 1
        case dp_event.SampledWithoutReplacementDpEvent(size, sample, dp_event.GaussianDpEvent(sigma)):
            rate, noise = sample / size, _gaussian(sigma)  # the record that takes its place adds nothing
        case _:
            raise NoAttack(type(base).__name__)
    return noise, rate, count


def _intervals(noise: _Noise, rate: float, removed: bool, grid: float) -> tuple[Floats, Floats, Floats]:
    """One step, from D with the record to D′ without it (``removed``), or the reverse: the probabilities on both of the
    intervals of its loss, and the losses between them, multiples of the grid. The first and the last have no end.
    """
    bottom, top = _sampled(np.array([-noise.largest, noise.largest]), rate)
    low, high = math.floor(max(bottom, -_DEEP) / grid) - 1, math.ceil(min(top, _DEEP) / grid) + 1
    if high - low > MOST_BINS:
        raise NoAttack("too little noise for the grid")
    edges = np.arange(low, high + 1, dtype=np.float64) * grid
    # The loss of the step without sampling at which the sampled one has the value of the edge.
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.log(np.maximum(np.exp(edges) - (1.0 - rate), 0.0)) - math.log(rate)
    x = noise.output(np.clip(inner, -noise.largest, noise.largest))
    x[inner < -noise.largest], x[inner >= noise.largest] = -np.inf, np.inf
    without, given = _between(noise, x), _between(noise, x - 1.0)
    p, q = (1.0 - rate) * without + rate * given, without
    return (p, q, edges) if removed else (q[::-1], p[::-1], -edges[::-1])


def _between(noise: _Noise, x: Floats) -> Floats:
    """Probabilities of the intervals between the points, and of both ends: differences of the tail that is small."""
    upper = -np.diff(np.append(np.append(1.0, noise.tail(x)), 0.0))
    lower = np.diff(np.append(np.append(0.0, noise.tail(-x)), 1.0))
    return np.maximum(np.where(np.append(-np.inf, x) > 0, upper, lower), 0.0)


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


def _from_atoms(losses: Floats, masses: Floats, infinity: float, grid: float) -> Pair:
    """Finitely many losses, rounded down to the grid."""
    levels = np.floor(losses / grid + 1e-9).astype(np.int64)
    rounded = np.bincount(levels - levels.min(), weights=masses).astype(np.float64)
    return Pair(int(levels.min()), rounded, infinity, grid)


def _subsampled(event: dp_event.PoissonSampledDpEvent, relation: NeighboringRelation, grid: float) -> Pair:
    """A run on one Poisson subsample: with probability ``rate`` the record is in it, and seen."""
    rate = event.sampling_probability
    removed, *_ = one_run(event.event, relation, grid=grid)
    losses = _sampled(removed.losses, rate)
    return _from_atoms(losses, rate * removed.masses, rate * removed.infinity, grid)


def _sampled(losses: Floats, rate: float) -> Floats:
    """log(1 − rate + rate · e^loss): the losses of a mechanism on a subsample."""
    return np.logaddexp(math.log1p(-rate) if rate < 1 else -math.inf, math.log(rate) + losses)


def compose(parts: Sequence[tuple[Pair, int]]) -> Pair:
    """The sum of independent losses, each repeated as often as given."""
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    low, high = _window(parts)
    if high < low:
        raise NoAttack("nearly all mass is missing")  # as of many runs on a small subsample each
    size = next_fast_len(high - low + 1, real=True)
    if size > MOST_BINS:
        raise NoAttack("too many steps for the grid")
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
    return Pair(low, np.maximum(masses - error, 0.0), infinity, grid, error)


def _window(parts: Sequence[tuple[Pair, int]]) -> tuple[int, int]:
    """The multiples of the grid between which the sum lies, except with probability 2 _TAIL, by Chernoff's bound."""
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
