"""The exact oracle for history-only policies: on a small world, the true δ of a search under the worst of them.

Such a policy is one and the same function of the history on D and on D′. After the runs h = (o₁, …, o_i) the
likelihoods are α(h) = ∏ M(o_j) on D and β(h) = ∏ M′(o_j) on D′, the policy's own factors being equal. For an event E,
what a policy can still gain of A(E) − e^ε A′(E) after h is

    W_i(h) = P[T=i] [best of h ∈ E] (α(h) − e^ε β(h)) + max over π of Σ_λ π(λ) Σ_y W_{i+1}(h, o),

π an extreme point of the band and o the outcome (λ, y); δ is the maximum over E of W₀ (plus the outcome ⊥). Both
likelihoods and the best run depend on which outcomes h contains, not on their order, so that h is a multiset: a few
thousand of them for ten runs. If the policy may know T, each T = k has a policy of its own. The first n₀ runs are
drawn from the prior.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from support.oracle import World, extreme_points

from dphypo.accounting.profiles import Floats
from dphypo.band import Band

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class _Histories:
    """The histories of i runs: likelihoods, the best outcome, and the history that each further outcome leads to."""

    on: Floats
    off: Floats
    best: Indices
    following: Indices


def exact_history_delta(
    world: World,
    pmf: Floats,
    band: Band,
    epsilons: npt.ArrayLike,
    *,
    first_from_prior: int = 0,
    knows_runs: bool = False,
    events: Floats | None = None,
) -> Floats:
    """The true δ of the search from D to D′ at each ε, over all events and all history-only policies in the band.

    Args:
        world: the world.
        pmf: P[T = k] for k = 0, 1, …, K.
        band: the band (c, C).
        epsilons: the ε at which δ is wanted; negative ones are allowed.
        first_from_prior: how many of the first runs are drawn from the prior.
        knows_runs: whether the policy may depend on T.
        events: sets of released ranks, a row of zeros and ones each; all of them when left out.

    >>> from support.oracle import World
    >>> coin = World(np.ones(1), np.array([[0.75, 0.25]]), np.array([[0.25, 0.75]]), np.array([[0, 1]]))
    >>> exact_history_delta(coin, np.array([0.0, 1.0]), Band(1, 1), [0.0]).round(6)
    array([0.5])
    """
    eps = np.atleast_1d(np.asarray(epsilons, dtype=np.float64))
    outcomes = world.ranks.size
    if events is None:
        events = ((np.arange(2**outcomes)[:, None] >> np.arange(outcomes)) & 1).astype(np.float64)
    corners = extreme_points(world.prior, band)
    owner = np.empty(outcomes, dtype=np.intp)  # the λ of each rank
    on, off = np.empty(outcomes), np.empty(outcomes)
    for place in np.ndindex(world.ranks.shape):
        rank = world.ranks[place]
        owner[rank], on[rank], off[rank] = place[0], world.runs_on[place], world.runs_on_neighbour[place]
    levels = _histories(on, off, len(pmf) - 1)
    weights = [pmf * (np.arange(len(pmf)) == k) for k in range(1, len(pmf))] if knows_runs else [pmf]
    total = sum(_gain(levels, weight, events, eps, corners, world.prior, owner, first_from_prior) for weight in weights)
    return np.asarray(np.max(total, axis=0) + pmf[0] * np.maximum(-np.expm1(eps), 0.0))


def _gain(
    levels: list[_Histories],
    pmf: Floats,
    events: Floats,
    eps: Floats,
    corners: Floats,
    prior: Floats,
    owner: Indices,
    first_from_prior: int,
) -> Floats:
    """W₀ for every event and ε, without ⊥."""
    value = np.zeros((len(levels[-1].on), len(events), len(eps)))
    for i in range(len(pmf) - 1, 0, -1):
        level = levels[i]
        if pmf[i] > 0:
            here = level.on[:, None] - np.exp(eps) * level.off[:, None]
            value = value + pmf[i] * events.T[level.best][:, :, None] * here[:, None, :]
        steps = levels[i - 1].following
        each = np.stack([value[steps[:, owner == one]].sum(axis=1) for one in range(len(prior))])
        choices = prior[None, :] if i <= first_from_prior else corners
        value = np.max(np.einsum("cl,lhek->chek", choices, each), axis=0)
    return np.asarray(value[0])


def _histories(on: Floats, off: Floats, runs: int) -> list[_Histories]:
    """All multisets of up to ``runs`` outcomes; outcomes are numbered by rank, so that the largest is the best."""
    levels = []
    members: list[tuple[int, ...]] = [()]
    for size in range(runs + 1):
        larger = list(itertools.combinations_with_replacement(range(len(on)), size + 1)) if size < runs else []
        place = {member: index for index, member in enumerate(larger)}
        following = np.array(
            [[place[tuple(sorted((*member, o)))] for o in range(len(on))] for member in members] if larger else [],
            dtype=np.intp,
        ).reshape(-1, len(on))
        at = np.array(members, dtype=np.intp).reshape(len(members), size)
        levels.append(_Histories(on[at].prod(axis=1), off[at].prod(axis=1), at.max(axis=1, initial=0), following))
        members = larger
    return levels
