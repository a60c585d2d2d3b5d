"""A second opinion on ε: a lower and an upper bound of their own, by other means than the accountant's.

Of the library's code this shares the gate of events and the laws of T, nothing else. Runs come from ``second_pair``.

A single search is attacked from below and bounded from above in ``second_search``. Of several releases the lower bound
is the largest of theirs, and the upper bound that of their composition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dphypo.accounting import slack as slack_of_runs
from dphypo.accounting.composition import Composition, Releases
from dphypo.accounting.guarantee import Guarantee
from dphypo.accounting.policy import PolicyClass
from dphypo.accounting.published import PublishedRuns
from dphypo.accounting.second_pair import NoOpinion, Pair, compose, one_run
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
from dphypo.laws import Law


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
    opinion, slack = _without_slack(releases, delta), math.fsum(one.slack for one in releases)
    if slack and math.isfinite(opinion.upper):
        charged = slack_of_runs.charge(lambda rest: {"": _without_slack(releases, rest).upper}, delta, slack)
        return replace(opinion, upper=charged[""])
    return opinion


def _without_slack(releases: Sequence[Releases], delta: float) -> Opinion:
    only = releases[0]
    if len(releases) > 1 or not isinstance(only, Guarantee):
        return _together(releases, delta)
    return search_opinion(only.events, only.relation, only.runs, only.band, delta, attack_band=_attack_band(only))


def epsilon_from_below(guarantee: Releases | Composition, delta: float) -> float:
    """An ε that an explicit attack on a search really achieves at δ: no valid guarantee says less.

    Zero where no attack on this kind of run is known here.
    """
    return second_opinion(guarantee, delta).lower


def run_epsilon_from_below(event: Any, relation: Any, delta: float) -> float:
    """An ε that one run really has at δ: no valid accountant says less. Zero where the event is not known here."""
    try:
        pairs = one_run(event, relation, above=False, grid=GRID)
    except NoOpinion:
        return 0.0
    return max((from_below(pair, delta) for pair in pairs), default=0.0)


def search_opinion(
    events: Sequence[Any],
    relation: Any,
    runs: Law,
    band: Band,
    delta: float,
    *,
    attack_band: Band | None = None,
    above: bool = True,
) -> Opinion:
    """The opinion on one search; ``attack_band`` is what the attacker's policy may use, if less than the band."""
    lower, upper, why = 0.0, 0.0, ""
    for event in events:
        try:
            for pair in one_run(event, relation, above=False, grid=FINE_GRID):
                lower = max(lower, attack(pair, runs, attack_band or band, delta))
        except NoOpinion:
            pass
    if len(events) > 1 or not above:
        return Opinion(lower, math.inf, "the privacy of a run depends on its hyperparameters")
    try:
        for forward, reverse in both(one_run(events[0], relation, above=True, grid=GRID)):
            upper = max(upper, smallest(search_delta(forward, reverse, runs, band), delta))
    except NoOpinion as unknown:
        upper, why = math.inf, f"not known here: {unknown}"
    return Opinion(lower, upper, why)


def _parts(releases: Releases, delta: float) -> tuple[float, tuple[Sequence[Pair], int] | None, str]:
    """Of a search or of published runs: ε from below, pairs from above to be composed, or why there are none."""
    if isinstance(releases, PublishedRuns):
        try:
            lows = [one_run(event, releases.relation, above=False, grid=FINE_GRID) for event in releases.events]
            repeated = [compose([(pair, releases.count)], above=False) for pairs in lows for pair in pairs]
            lower = max((from_below(pair, delta) for pair in repeated), default=0.0)
        except NoOpinion:
            lower = 0.0
        try:
            if len(releases.events) > 1:
                raise NoOpinion("the privacy of a run depends on its hyperparameters")
            pairs = one_run(releases.events[0], releases.relation, above=True, grid=GRID)
        except NoOpinion as unknown:
            return lower, None, f"not known here: {unknown}"
        return lower, (pairs, releases.count), ""
    band, attacked = releases.band, _attack_band(releases)
    lower = search_opinion(
        releases.events, releases.relation, releases.runs, band, delta, attack_band=attacked, above=False
    ).lower
    try:
        return lower, (search_pairs(releases.events, releases.relation, releases.runs, releases.band), 1), ""
    except NoOpinion as unknown:
        return lower, None, f"not known here: {unknown}"


def _together(releases: Sequence[Releases], delta: float) -> Opinion:
    """Several releases: no less than the worst of them, and no more than their composition."""
    found = [_parts(one, delta) for one in releases]
    lower = max(low for low, _, _ in found)
    reasons = [why for _, _, why in found if why]
    if reasons:
        return Opinion(lower, math.inf, reasons[0])
    try:
        return Opinion(lower, composed_upper([part for _, part, _ in found if part is not None], delta))
    except NoOpinion as unknown:
        return Opinion(lower, math.inf, f"not known here: {unknown}")


def _attack_band(guarantee: Guarantee) -> Band:
    """The band that the attack may use: its policy knows the data and adapts from the first run on.

    Where the guarantee is for fewer policies, the uniform search is still one of them.
    """
    free = guarantee.policy is PolicyClass.ANYTHING and guarantee.first_from_prior == 0
    return guarantee.band if free else Band(1.0, 1.0)
