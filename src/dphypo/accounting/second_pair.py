"""The privacy loss of one run, computed a second time by other means: bounds from below and from above.

This file shares nothing with the accountant but the gate of events. A single step is cut into intervals of its outcome
on which both probabilities are known in closed form, p on D and q on D′. From above, the mass of an interval goes to
both ends of its range of losses so that p and q are kept (that pair dominates). From below, parts of neighbouring
intervals are merged so that the loss of what is merged is a multiple of the grid or a little more: merging is
post-processing, so what is achieved on merged outcomes is achieved. Steps are composed by a Fourier transform.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from dp_accounting import DpEvent, NeighboringRelation, dp_event
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtr

from dphypo.accounting.events import ApproximateDp, Event, PureDp, RdpCurve, ideal

Floats = npt.NDArray[np.float64]
GRID = 5e-4
_DEEP = 40.0  # losses beyond this are cut off
_TAIL = 1e-17
MOST_BINS = 8_000_000


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


def largest(delta_at: Callable[[float], float], delta: float, high: float = 100.0) -> float:
    """The largest ε ≥ 0 at which a decreasing function is above ``delta``, rounded down; 0 if there is none."""
    low = 0.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return low


def _leaves(event: DpEvent, count: int) -> Iterator[tuple[DpEvent, int]]:
    """Single steps and how often each is made."""
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
    """log(1 − rate + rate · e^loss): the losses of what is made on a subsample."""
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
