"""A second opinion on ε: a lower and an upper bound of their own, by other means than the accountant's.

Of the library's code this shares the gate of events and the laws of T, nothing else. Runs come from ``second_pair``.

A single search is attacked from below and bounded from above in ``second_search``. Of several releases the lower bound
is the largest of theirs, and the upper bound that of their composition.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dp_accounting import NeighboringRelation

from dphypo.accounting import slack as slack_of_runs
from dphypo.accounting.composition import Composition, Releases
from dphypo.accounting.events import Event
from dphypo.accounting.guarantee import Guarantee
from dphypo.accounting.policy import PolicyClass
from dphypo.accounting.published import PublishedRuns
from dphypo.accounting.second_pair import NoOpinion, compose, one_run
from dphypo.accounting.second_search import (
    FINE_GRID,
    GRID,
    attack,
    both,
    composed_upper,
    from_below,
    search_delta,
    search_pairs,
    smallest,
)
from dphypo.band import Band


@dataclass(frozen=True)
class Opinion:
    """No valid ε is below ``lower``; ``upper`` is one, infinite where none was computed and ``why`` says why."""

    lower: float
    upper: float
    why: str = ""


def second_opinion(guarantee: Releases | Composition, delta: float) -> Opinion:
    """What this file makes of a guarantee at δ.

    >>> from dp_accounting import GaussianDpEvent
    >>> from dphypo.accounting import account
    >>> from dphypo.laws import Geometric
    >>> guarantee = account(GaussianDpEvent(4.0), Geometric(mean=10))
    >>> opinion = second_opinion(guarantee, 1e-6)
    >>> opinion.lower <= guarantee.epsilon(1e-6) <= opinion.upper * 1.001 < opinion.lower * 1.05
    True
    """
    opinions = [_of_releases(releases, delta) for releases in Composition.of(guarantee).met]
    return Opinion(
        max(opinion.lower for opinion in opinions),
        max(opinion.upper for opinion in opinions),
        next((opinion.why for opinion in opinions if opinion.why), ""),
    )


def _of_releases(releases: Sequence[Releases], delta: float) -> Opinion:
    """Slack is in the upper bound alone: a run may be as private as its event says."""
    lower, slack = max(_attacked(one, delta) for one in releases), math.fsum(one.slack for one in releases)
    try:
        charged = slack_of_runs.charge(lambda rest: {"": _bounded(releases, rest)}, delta, slack)
    except NoOpinion as unknown:
        return Opinion(lower, math.inf, f"not known here: {unknown}")
    return Opinion(lower, charged[""])


def _attacked(one: Releases, delta: float) -> float:
    """An ε that one release has: by an attack on a search, or by the composition of runs that are all published."""
    found = [0.0]
    for event in one.events:
        with contextlib.suppress(NoOpinion):
            for pair in one_run(event, one.relation, above=False, grid=FINE_GRID):
                if isinstance(one, PublishedRuns):
                    found.append(from_below(compose([(pair, one.count)], above=False), delta))
                else:
                    found.append(attack(pair, one.runs, _attack_band(one), delta))
    return max(found)


def _bounded(releases: Sequence[Releases], delta: float) -> float:
    """ε of all of them together, from above: Theorem 4 of a single search, or their composition."""
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
    return composed_upper(parts, delta)


def epsilon_from_below(guarantee: Releases | Composition, delta: float) -> float:
    """An ε that an explicit attack on a search really achieves at δ: no valid guarantee says less.

    Zero where no attack on this kind of run is known here.
    """
    return second_opinion(guarantee, delta).lower


@lru_cache(maxsize=256)
def run_epsilon_from_below(event: Event, relation: NeighboringRelation, delta: float) -> float:
    """An ε that one run really has at δ: no valid accountant says less. Zero where the event is not known here."""
    try:
        pairs = one_run(event, relation, above=False, grid=GRID)
    except NoOpinion:
        return 0.0
    return max((from_below(pair, delta) for pair in pairs), default=0.0)


def _attack_band(guarantee: Guarantee) -> Band:
    """The band that the attack may use: its policy knows the data and adapts from the first run on.

    Where the guarantee is for fewer policies, the uniform search is still one of them.
    """
    free = guarantee.policy is PolicyClass.ANYTHING and guarantee.first_from_prior == 0
    return guarantee.band if free else Band(1.0, 1.0)
