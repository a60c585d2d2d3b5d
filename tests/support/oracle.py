"""The exact oracle: on a small discrete world, the true δ of a search under the worst policy, by dynamic programming.

A world has finitely many λ with prior masses and a law over finitely many ranked outcomes for each, on D and on D′.
For an event E (a set of outcomes, ⊥ perhaps among them) the policy that knows the data, T and E can do no better than

    V₀(b) = [b ∈ E],    V_k(b) = max over the band's extreme points π of Σ_λ π(λ) Σ_y M_λ(y) V_{k−1}(max(b, y)),

so the largest A(E) is Σ_k P[T=k] V_k(⊥), and the smallest A′(E) is the same with minima. The true δ at ε is the
maximum over all E of A(E) − e^ε A′(E). An outcome is a pair (λ, rank) in its own right, because λ is released.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dphypo.accounting.profiles import Discrete, Floats
from dphypo.band import Band


@dataclass(frozen=True, eq=False)
class World:
    """A search space of n λ with k ranked outcomes each, worst first.

    Args:
        prior: the prior masses of the λ, n numbers.
        runs_on: P[outcome | λ] on D, an n × k array whose rows sum to one.
        runs_on_neighbour: the same on D′.
        ranks: the rank of each (λ, outcome) among all n·k of them: a permutation of 0 … n·k−1, as an n × k array.
    """

    prior: Floats
    runs_on: Floats
    runs_on_neighbour: Floats
    ranks: npt.NDArray[np.int64]

    def swapped(self) -> World:
        """The same world with D and D′ exchanged."""
        return World(self.prior, self.runs_on_neighbour, self.runs_on, self.ranks)

    @cached_property
    def profiles(self) -> tuple[list[Discrete], list[Discrete]]:
        """The exact profile of one run, for each λ: from D to D′, and from D′ to D."""
        forward = [_losses(p, q) for p, q in zip(self.runs_on, self.runs_on_neighbour, strict=True)]
        reverse = [_losses(q, p) for p, q in zip(self.runs_on, self.runs_on_neighbour, strict=True)]
        return forward, reverse


def _losses(p: Floats, q: Floats) -> Discrete:
    used = p > 0
    finite = used & (q > 0)
    losses, where = np.unique(np.log(p[finite] / q[finite]), return_inverse=True)
    if len(losses) == 0:
        return Discrete(np.zeros(1), np.zeros(1), 1.0)
    masses = np.zeros(len(losses))
    np.add.at(masses, where, p[finite])
    return Discrete(losses, masses, float(p[used & ~finite].sum()))


def extreme_points(prior: Floats, band: Band) -> Floats:
    """The extreme points of {π: c ≤ π/π₀ ≤ C, Σπ = 1}: every cell at c or C but for one that takes the remainder."""
    if band.c == band.C:
        return prior[None, :]
    points = []
    for rest in range(len(prior)):
        others = [i for i in range(len(prior)) if i != rest]
        for sides in itertools.product((band.c, band.C), repeat=len(others)):
            point = np.zeros(len(prior))
            point[others] = np.array(sides) * prior[others]
            point[rest] = 1.0 - point.sum()
            if band.c * prior[rest] - 1e-15 <= point[rest] <= band.C * prior[rest] + 1e-15:
                points.append(point)
    return np.unique(np.array(points), axis=0)


def exact_delta(world: World, pmf: Floats, band: Band, epsilons: npt.ArrayLike, *, first_from_prior: int = 0) -> Floats:
    """The true δ of the search from D to D′ at each ε, over all events and all policies that keep the band.

    Args:
        world: the world.
        pmf: P[T = k] for k = 0, 1, …, K.
        band: the band (c, C).
        epsilons: the ε at which δ is wanted; negative ones are allowed.
        first_from_prior: how many of the first runs are drawn from the prior.
    """
    events = _subsets(world.ranks.size + 1)
    most, least = _extremes(world, pmf, band, events, events, first_from_prior)
    return _largest_difference(most, least, epsilons)


def two_stage_delta(
    first: World,
    first_pmf: Floats,
    first_band: Band,
    seconds: Sequence[World],
    second_pmf: Floats,
    second_band: Band,
    epsilons: npt.ArrayLike,
) -> Floats:
    """The true δ of two searches, both released, when the second one's prior depends on the first's release.

    Given the release of the first stage, the worst event and policy of the second give a reward on D and a cost on
    D′; the first stage is then a search for these. All choices of an event for every release are tried.

    Args:
        first: the world of the first stage.
        first_pmf: the law of its T.
        first_band: its band.
        seconds: the world of the second stage for each release of the first: for ⊥, then by rank.
        second_pmf: the law of the second T.
        second_band: the second band.
        epsilons: the ε at which δ is wanted.
    """
    if len(seconds) != first.ranks.size + 1:
        raise ValueError(f"seconds has {len(seconds)} worlds: give one for each of {first.ranks.size + 1} releases")
    options = []
    for second in seconds:
        events = _subsets(second.ranks.size + 1)
        options.append(_useful(*_extremes(second, second_pmf, second_band, events, events)))
    choices = np.array(list(itertools.product(*[range(len(option)) for option in options])))
    rewards = np.stack([option[choices[:, i]] for i, option in enumerate(options)], axis=1)
    most, least = _extremes(first, first_pmf, first_band, rewards[:, :, 0], rewards[:, :, 1])
    return _largest_difference(most, least, epsilons)


def _useful(rewards: Floats, costs: Floats) -> Floats:
    """The (reward, cost) pairs on the lower right of their convex hull.

    What the first stage makes of them is convex and increasing in rewards, concave and increasing in costs, so the
    largest difference is attained at these.
    """
    kept: list[tuple[float, float]] = []
    for reward, cost in sorted(
        zip(rewards.tolist(), costs.tolist(), strict=True), key=lambda pair: (pair[1], -pair[0])
    ):
        if kept and reward <= kept[-1][0]:
            continue
        while len(kept) > 1:
            (r0, c0), (r1, c1) = kept[-2], kept[-1]
            if (r1 - r0) * (cost - c0) <= (reward - r0) * (c1 - c0):
                kept.pop()
            else:
                break
        kept.append((reward, cost))
    return np.array(kept)


def _subsets(outcomes: int) -> Floats:
    """Every set of outcomes as a row of zeros and ones; the first outcome is ⊥."""
    return ((np.arange(2**outcomes)[:, None] >> np.arange(outcomes)) & 1).astype(np.float64)


def _extremes(
    world: World, pmf: Floats, band: Band, rewards: Floats, costs: Floats, first_from_prior: int = 0
) -> tuple[Floats, Floats]:
    """The largest expected reward of the release on D, and the smallest expected cost on D′, row by row."""
    most = _value(world.prior, world.runs_on, world.ranks, pmf, band, rewards, np.max, first_from_prior)
    least = _value(world.prior, world.runs_on_neighbour, world.ranks, pmf, band, costs, np.min, first_from_prior)
    return most, least


def _largest_difference(most: Floats, least: Floats, epsilons: npt.ArrayLike) -> Floats:
    eps = np.atleast_1d(np.asarray(epsilons, dtype=np.float64))
    return np.asarray(np.max(most[:, None] - np.exp(eps)[None, :] * least[:, None], axis=0))


def _value(
    prior: Floats,
    runs_on: Floats,
    ranks: npt.NDArray[np.int64],
    pmf: Floats,
    band: Band,
    rewards: Floats,
    best: Callable[..., Any],
    first_from_prior: int = 0,
) -> Floats:
    """E[reward of the winner] under the best (``np.max``) or worst (``np.min``) policy, for every row of rewards."""
    corners = extreme_points(prior, band)
    law = np.zeros((len(prior), ranks.size))  # P[rank | λ]
    np.put_along_axis(law, ranks, runs_on, axis=1)
    below = np.concatenate([np.zeros((len(prior), 1)), np.cumsum(law, axis=1)], axis=1)  # P[rank ≤ b | λ]

    def one_more(values: Floats, densities: Floats) -> Floats:
        # Σ_y law(λ, y) V(max(b, y)) = P[rank ≤ b] V(b) + Σ_{y > b} law(λ, y) V(y)
        mass = values[:, None, 1:] * law[None, :, :]
        suffix = np.cumsum(mass[:, :, ::-1], axis=2)[:, :, ::-1]
        above = np.concatenate([suffix, np.zeros((len(values), len(prior), 1))], axis=2)
        each = below[None, :, :] * values[:, None, :] + above
        return np.asarray(best(np.einsum("cl,elb->ceb", densities, each), axis=0))

    total = np.zeros(len(rewards))
    values = rewards  # V_j(b), b = ⊥ or a rank (shifted by one), when j runs chosen by the policy are left
    for k in range(len(pmf)):
        if k > first_from_prior:
            values = one_more(values, corners)
        whole = values
        for _ in range(min(k, first_from_prior)):
            whole = one_more(whole, prior[None, :])
        total = total + pmf[k] * whole[:, 0]
    return total
