"""Composition with other releases: a search as a pessimistic privacy loss distribution of dp_accounting.

A profile is turned into a dominating pair by connecting its dots: between grid points the hockey-stick divergence is
convex in e^ε, so straight lines in e^ε lie above it (Doroshenko et al. 2022).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from dphypo.accounting.profiles import Floats, Profile, lower_hull
from dphypo.accounting.solve import smallest
from dphypo.accounting.theorems.lemma2 import LARGEST_LOG
from dphypo.accounting.theorems.theorem4_profile import PriorStartProfile, SearchProfile

_TAIL = 1e-15  # δ beyond the last grid point
_SLACK = 1e-12
_PIECE = 8192


def to_pld(
    profiles: Sequence[Profile], grid: float, sharper: Sequence[Sequence[Profile]] = ()
) -> PrivacyLossDistribution:
    """The distribution that dominates a search or a run, from D to D′ and, unless it is symmetric, from D′ to D.

    ``sharper`` are further bounds on the same search, each in the same directions; the smallest counts at every ε.
    """
    count = max(1, math.ceil(max(map(_end, profiles)) / grid))
    ways = zip(profiles, *sharper, strict=True)
    deltas = [np.min([_on_grid(one, grid, count) for one in way], axis=0) for way in ways]
    both = zip(deltas, reversed(deltas), strict=True)
    return PrivacyLossDistribution(*(_connect(delta, reverse, grid, count) for delta, reverse in both))


def _end(profile: Profile) -> float:
    """The upper end of the loss grid. What is left of δ there becomes infinite loss, so any end is valid."""
    top = min(profile.top, LARGEST_LOG)
    rest = max(_TAIL, float(profile.delta(top)) * (1 + 1e-6))
    return min(smallest(lambda eps: float(profile.delta(eps)), rest, top=top), top)


def _on_grid(search: Profile, grid: float, count: int) -> Floats:
    """δ at every multiple of ``grid`` from −count to count: of a mixture of shifted profiles in one convolution.

    A shift s between two grid points is replaced by the two, in proportion to e^(−s): one run's profile is convex in
    e^(ε−s), so that rounds up.
    """
    epsilon = np.arange(-count, count + 1) * grid
    if not isinstance(search, (SearchProfile, PriorStartProfile)):
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

    It takes one inner product for each value, which the linear algebra library hands to threads from 10 000 terms on:
    so many small tasks take seconds, or minutes on a busy machine. Pieces below that are not handed out.
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
