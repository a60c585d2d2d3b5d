"""The only place that uses private parts of dp_accounting: the privacy loss distribution and the RDP curve of an event.

dp_accounting composes events but gives no public access to the two directions of a privacy loss distribution, nor to
an RDP curve. The private attributes are read here and nowhere else; ``test_dp_accounting.py`` fails when a new version
moves them.

A profile is turned into a dominating pair by connecting its dots: between grid points the hockey-stick divergence is
convex in e^ε, so straight lines in e^ε lie above it (Doroshenko et al. 2022).
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import TypeAlias

import attr
import dp_accounting
import numpy as np
import numpy.typing as npt
from dp_accounting import DpEvent, dp_event
from dp_accounting.pld import PLDAccountant, pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.rdp import RdpAccountant

from dphypo.accounting.profiles import Curve, Discrete, Floats, Profile, end, lower_hull
from dphypo.accounting.theorems.lemma2 import LARGEST_LOG
from dphypo.accounting.theorems.theorem4_profile import SearchProfile
from dphypo.errors import UnaccountableError

DEFAULT_GRID = 1e-3
MOST_BINS = 3e6  # of a loss distribution, as :func:`spread` estimates it: beyond, composing takes minutes
Relation: TypeAlias = dp_accounting.NeighboringRelation
_TAIL = 1e-15  # δ beyond the last grid point
_SLACK = 1e-12
_PIECE = 8192


def losses(event: DpEvent, relation: Relation, grid: float = DEFAULT_GRID) -> tuple[Discrete, Discrete]:
    """The loss distributions of both directions, remove and add; the same object twice if they are equal.

    Raises ``UnsupportedEventError`` if the PLD accountant does not know the event, or if the grid is too fine.
    """
    if any(isinstance(leaf, dp_event.RandomizedResponseDpEvent) and count > 1 for leaf, count, _ in leaves(event)):
        raise dp_accounting.UnsupportedEventError(
            "dp_accounting's PLD accountant counts a repeated RandomizedResponseDpEvent only once"
        )
    if spread(event) > MOST_BINS * grid:
        raise dp_accounting.UnsupportedEventError(f"its losses are too large for a grid of {grid:g}")
    accountant = PLDAccountant(relation, value_discretization_interval=grid)
    accountant.compose(event)
    if accountant._contains_non_dp_event:
        raise UnaccountableError(f"the event {event!r} is not private: it has no finite ε at any δ < 1")
    return directions(accountant._pld, _convolutions(event))


def directions(distribution: PrivacyLossDistribution, convolutions: int = 1) -> tuple[Discrete, Discrete]:
    """Both directions of a distribution that was composed by this many convolutions; one object if they are equal."""
    remove = _clean(distribution._pmf_remove, convolutions)
    return remove, remove if distribution._symmetric else _clean(distribution._pmf_add, convolutions)


def compose(distributions: Iterable[PrivacyLossDistribution]) -> PrivacyLossDistribution:
    """The privacy loss distribution of releasing everything."""
    return reduce(lambda first, second: _composed(first.compose, second), distributions)


def repeat(distribution: PrivacyLossDistribution, count: int) -> PrivacyLossDistribution:
    """The privacy loss distribution of as many releases."""
    return distribution if count == 1 else _composed(distribution.self_compose, count)


def _composed(how: Callable[..., PrivacyLossDistribution], other: object) -> PrivacyLossDistribution:
    """dp_accounting drops tails of mass 1e-15, and fails if the finite losses have no more mass than that in all."""
    try:
        return how(other)
    except IndexError:
        return how(other, tail_mass_truncation=0.0)


def _clean(pmf: object, convolutions: int) -> Discrete:
    """A loss distribution with the rounding error of the Fourier transform moved into the infinite-loss mass.

    The transform of one step is off by about 2⁻⁵³ at every frequency, its n-th power by n times that, and so is every
    bin of the result, relative to the largest: measured against exact convolution, by 0.3 to 0.9 of n · 2⁻⁵³ · the
    largest mass, and a sum over a tail by at most 0.17 of that for every bin. The infinite loss gets a quarter of it,
    and at least twice the sum of the negative bins, which become zero. ``Discrete`` adds missing mass to it.
    """
    dense = pmf.to_dense_pmf()  # type: ignore[attr-defined]
    masses = np.asarray(dense._probs, dtype=np.float64)
    positions = (np.arange(len(masses)) + dense._lower_loss) * dense._discretization
    rounding = max(0.25 * len(masses) * convolutions * 2.0**-53 * masses.max(), -2.0 * masses[masses < 0].sum())
    infinity = max(0.0, float(dense._infinity_mass)) + float(rounding)
    return Discrete(positions, np.maximum(masses, 0.0), min(1.0, infinity))


def _convolutions(event: DpEvent) -> int:
    """The number of loss distributions that the PLD accountant convolves for an event, Gaussians aside."""
    match event:
        case dp_event.SelfComposedDpEvent(event=inner) if not isinstance(inner, dp_event.GaussianDpEvent):
            return int(event.count) * _convolutions(inner)
        case dp_event.ComposedDpEvent():
            return sum(_convolutions(part) for part in event.events)
        case _:
            return 1


def spread(event: DpEvent) -> float:
    """About how far the privacy losses of an event reach: usually too large, by a factor of up to ten.

    A record is in about qn of the n executions of a step at rate q, whose loss without sampling is s²/2 ± 9s. Or,
    by the central limit theorem, the sum has a variance v of n q² (e^(s²) − 1) and a mean of v/2. The smaller counts.
    """
    total = 0.0
    for leaf, count, rate in leaves(event):
        s = sensitivity(leaf)
        if rate == 1.0:
            s, count = s * math.sqrt(count), 1
        variance = count * rate**2 * math.expm1(min(s * s, 500.0)) if rate < 1 else s * s
        hits = count * rate
        by_hits = (hits + 9 * math.sqrt(hits) + 1) * (s * s / 2 + 9 * s)
        total += min(by_hits, variance / 2 + 9 * math.sqrt(variance) + s * s / 2 + 9 * s)
    return total


def leaves(event: DpEvent, count: int = 1, rate: float = 1.0) -> Iterator[tuple[DpEvent, int, float]]:
    """The single steps of an event, how often each is executed, and the rate at which it is sampled."""
    match event:
        case dp_event.SelfComposedDpEvent():
            yield from leaves(event.event, count * event.count, rate)
        case dp_event.ComposedDpEvent():
            for part in event.events:
                yield from leaves(part, count, rate)
        case dp_event.PoissonSampledDpEvent():
            yield from leaves(event.event, count, rate * event.sampling_probability)
        case dp_event.SampledWithReplacementDpEvent() | dp_event.SampledWithoutReplacementDpEvent():
            yield from leaves(event.event, count)
        case dp_event.RepeatAndSelectDpEvent():
            yield from leaves(event.event, count, rate)
        case _:
            yield event, count, rate


def sensitivity(leaf: DpEvent) -> float:
    """The distance by which a record moves the output of a single step, over its noise."""
    match leaf:
        case dp_event.MixtureOfGaussiansDpEvent():
            return float(max(leaf.sensitivities) / leaf.standard_deviation)
        case dp_event.DiscreteLaplaceDpEvent():
            return float(leaf.noise_parameter * leaf.sensitivity)
        case dp_event.RandomizedResponseDpEvent():
            return 1.0
        case dp_event.TruncatedSubsampledGaussianDpEvent():
            return 2.0 / float(leaf.noise_multiplier)
        case dp_event.GaussianDpEvent() | dp_event.LaplaceDpEvent() | dp_event.SingleEpochTreeAggregationDpEvent():
            return 1.0 / float(leaf.noise_multiplier)
        case _:
            return 0.0


def is_known(event: DpEvent, relation: Relation) -> bool:
    """Whether an accountant supports the event; nothing is computed."""
    if isinstance(event, dp_event.PoissonSampledDpEvent) and relation is Relation.ADD_OR_REMOVE_ONE:
        return is_known(event.event, relation)
    return bool(PLDAccountant(relation).supports(event) or RdpAccountant(neighboring_relation=relation).supports(event))


def curve(event: DpEvent, relation: Relation, few: Floats | None = None) -> Curve | None:
    """The RDP curve at dp_accounting's own orders, or at ``few`` of them; ``None`` if it knows no finite one."""
    if relation is Relation.REPLACE_ONE:
        event = _with_doubled_sensitivity(event)

    def at(orders: Floats | None) -> tuple[Floats, Floats]:
        accountant = RdpAccountant(orders, relation)
        with _without_remarks():
            accountant.compose(event)
        epsilons = np.asarray(accountant._rdp, dtype=np.float64)
        # The accountant can return a divergence a rounding below zero.
        return np.asarray(accountant._orders, dtype=np.float64), np.maximum(epsilons, 0.0)

    try:
        orders, epsilons = at(few)
    except dp_accounting.UnsupportedEventError:
        return None
    if not np.isfinite(epsilons[orders > 1]).any():
        return None
    return Curve(orders, epsilons, lambda more: at(more)[1])


@contextlib.contextmanager
def _without_remarks() -> Iterator[None]:
    """Silence dp_accounting's log of orders at which its series does not converge: they count as infinite."""

    def passes(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("_compute_log_a_frac failed to converge")

    logger = logging.getLogger("absl")
    logger.addFilter(passes)
    try:
        yield
    finally:
        logger.removeFilter(passes)


def _with_doubled_sensitivity(event: DpEvent) -> DpEvent:
    """The event with half the noise, which is what it means when one record is replaced by another.

    A noise multiplier is the noise over the largest norm of a record, and replacing a record moves a sum by up to
    twice that norm. The PLD accountant counts so; the RDP accountant takes the norm for the sensitivity under every
    relation (google/differential-privacy, issue 378).
    """
    match event:
        case dp_event.GaussianDpEvent() | dp_event.LaplaceDpEvent():
            return attr.evolve(event, noise_multiplier=event.noise_multiplier / 2)
        case dp_event.ComposedDpEvent():
            return attr.evolve(event, events=[_with_doubled_sensitivity(part) for part in event.events])
        case DpEvent(event=inner):  # repeated, sampled or selected
            return attr.evolve(event, event=_with_doubled_sensitivity(inner))
        case _:
            return event


def pure_epsilon(event: DpEvent) -> float:
    """The ε of pure DP that an event behind the gate has by its definition; infinite if it has none that we know."""
    match event:
        case dp_event.NoOpDpEvent():
            return 0.0
        case dp_event.LaplaceDpEvent():
            return 1.0 / float(event.noise_multiplier)
        case dp_event.SelfComposedDpEvent():
            return float(event.count) * pure_epsilon(event.event)
        case dp_event.ComposedDpEvent():
            return math.fsum(pure_epsilon(part) for part in event.events)
        case _:
            return math.inf


def to_pld(
    profiles: Sequence[Profile], grid: float, sharper: Sequence[Sequence[Profile]] = ()
) -> PrivacyLossDistribution:
    """The distribution that dominates a search or a run, by its profile from D to D′ and, if it differs, from D′ to D.

    ``sharper`` are further bounds on the same search, each in the same directions; the smallest is used at every ε.
    """
    # What is left of δ at the upper end of the grid becomes infinite loss, so any end is valid.
    last = max(end(profile, _TAIL, LARGEST_LOG, room=1e-6) for profile in profiles)
    count = math.ceil(last / grid) + 1  # one more than its end: on a grid, shifts are rounded up
    ways = zip(profiles, *sharper, strict=True)
    deltas = [np.min([_on_grid(one, grid, count) for one in way], axis=0) for way in ways]
    both = zip(deltas, reversed(deltas), strict=True)
    return PrivacyLossDistribution(*(_connect(delta, reverse, grid, count) for delta, reverse in both))


def _on_grid(search: Profile, grid: float, count: int) -> Floats:
    """δ at every multiple of ``grid`` from −count to count: of a mixture of shifted profiles in one convolution.

    A shift s between two grid points is replaced by the two, in proportion to e^(−s): one run's profile is convex in
    e^(ε−s), so that rounds up.
    """
    epsilon = np.arange(-count, count + 1) * grid
    if not isinstance(search, SearchProfile):
        return np.asarray(search.delta(epsilon))
    weights, shifts = search.mixture
    infinite = np.isinf(shifts)
    certain = float(weights[infinite].sum())
    weights, shifts = weights[~infinite], shifts[~infinite]
    # A concentrated law has a trace of weight at very large shifts, over which the convolution would run: their δ₀ ≤ 1.
    largest_first = np.argsort(-shifts)
    trace = largest_first[np.cumsum(weights[largest_first]) <= _TAIL / 10]
    certain += float(weights[trace].sum())
    weights, shifts = np.delete(weights, trace), np.delete(shifts, trace)
    position = np.floor(shifts / grid).astype(np.int64)
    share = np.clip(np.expm1(-(shifts - position * grid)) / math.expm1(-grid), 0.0, 1.0)  # of the larger shift
    lowest = int(position.min())
    mixed = np.zeros(int(position.max()) - lowest + 2)
    np.add.at(mixed, position - lowest, weights * (1.0 - share))
    np.add.at(mixed, position - lowest + 1, weights * share)
    # δ_A(i·grid) = Σ_k mixed_k δ₀((i − lowest − k)·grid)
    first, last = -count - lowest - (len(mixed) - 1), count - lowest
    one_run = search.forward.delta(np.arange(first, last + 1) * grid)
    value = _convolve(one_run, mixed) * (1 + _SLACK) + certain
    nothing = float(search.runs.pgf(0.0)) * -np.expm1(np.minimum(epsilon, 0.0))
    return np.asarray(np.minimum(value + nothing, 1.0))


def _convolve(long: Floats, short: Floats) -> Floats:
    """``np.convolve(long, short, mode="valid")``, in pieces.

    numpy computes one inner product for each value. From 10 000 terms on, its linear algebra library uses threads: so
    many small tasks take seconds, or minutes on a busy machine. Shorter pieces stay in one thread.
    """
    size = len(long) - len(short) + 1
    value = np.zeros(size)
    for start in range(0, len(short), _PIECE):
        piece = short[start : start + _PIECE]
        if piece.any():
            first = len(short) - start - len(piece)
            value += np.convolve(long[first : first + size + len(piece) - 1], piece, mode="valid")
    return value


def _connect(delta: Floats, reverse: Floats, grid: float, count: int) -> pld_pmf.PLDPmf:
    """The dominating pair of one direction; for ε < 0 also by the exchanged pair, δ(ε) = 1 − e^ε + e^ε δ^rev(−ε)."""
    epsilon = np.arange(-count, count + 1) * grid
    mirrored = -np.expm1(epsilon) + np.exp(epsilon) * reverse[::-1]
    best = np.where(epsilon < 0, np.minimum(delta, mirrored), delta)
    convex = _convex(epsilon, np.minimum.accumulate(np.clip(best, 0.0, 1.0)))
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        grid, -count, count, np.minimum(convex * (1 + _SLACK), 1.0)
    )


def _convex(epsilon: npt.NDArray[np.floating], delta: Floats) -> Floats:
    """The largest convex function of e^ε below an upper bound on a profile: a profile is convex, and 1 at e^ε = 0.

    Without it a bound that exceeds its own chords would count mass twice.
    """
    x, y = np.append(0.0, np.exp(epsilon)), np.append(1.0, delta)
    kept = lower_hull(x, y)
    return np.asarray(np.interp(x[1:], x[kept], y[kept]))
