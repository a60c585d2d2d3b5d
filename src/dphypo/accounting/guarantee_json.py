"""All that a guarantee is computed from, as JSON: the one form that certificates and plan files share.

It states the relation, the grid, and every term: its events, which records it reads, and how many runs are published,
or the law of T, the band and the policy of a search.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dp_accounting

from dphypo import laws
from dphypo.accounting import events, untrusted
from dphypo.accounting.composition import Composition, Releases, Term
from dphypo.accounting.guarantee import Guarantee, account
from dphypo.accounting.policy import conditions
from dphypo.accounting.published import PublishedRuns, account_published
from dphypo.accounting.sides import Side
from dphypo.accounting.untrusted import Refused
from dphypo.band import Band

FIELDS = frozenset({"relation", "grid", "terms"})


def to_json(guarantee: Guarantee | Composition) -> dict[str, Any]:
    """The public values that a guarantee is computed from.

    >>> from dphypo import Geometric
    >>> guarantee = account(dp_accounting.GaussianDpEvent(4.0), Geometric(mean=5))
    >>> found = to_json(guarantee)
    >>> list(found), list(found["terms"][0])
    (['relation', 'grid', 'terms'], ['reads', 'events', 'runs', 'band', 'policy'])
    >>> from_json(found).epsilon(1e-5) == guarantee.epsilon(1e-5)
    True
    """
    whole = Composition.of(guarantee)
    terms = [
        {"reads": term.side.to_json(), **({"scores": True} if term.scores else {}), **_term(term.releases)}
        for term in whole.terms
    ]
    return {"relation": whole.relation.name, "grid": whole.terms[0].releases.grid, "terms": terms}


def from_json(document: Mapping[str, Any]) -> Composition:
    """The guarantee that a document states, accounted afresh. Its events are held to the limits of strangers' files."""
    relation, grid = dp_accounting.NeighboringRelation[document["relation"]], document["grid"]
    return Composition(
        tuple(
            Term(_releases(term, relation, grid), Side.from_json(term["reads"]), bool(term.get("scores", False)))
            for term in document["terms"]
        )
    )


def _term(releases: Releases) -> dict[str, Any]:
    found: dict[str, Any] = {"events": [events.event_to_dict(event) for event in releases.events]}
    if isinstance(releases, PublishedRuns):
        return {**found, "published": releases.count}
    policy = {
        "class": releases.policy.value,
        "first_from_prior": releases.first_from_prior,
        "conditions": conditions(releases.policy, releases.first_from_prior),
    }
    law = {"law": releases.runs.to_dict(), "mean": releases.runs.mean}
    return {**found, "runs": law, "band": {"c": releases.band.c, "C": releases.band.C}, "policy": policy}


def _releases(term: Mapping[str, Any], relation: dp_accounting.NeighboringRelation, grid: float) -> Releases:
    found = [events.from_dict(event) for event in term["events"]]
    for event in found:
        untrusted.check_event(event, grid)
    if "published" not in term:
        return account(
            found,
            laws.from_dict(term["runs"]["law"]),
            Band(term["band"]["c"], term["band"]["C"]),
            policy=term["policy"]["class"],
            first_from_prior=term["policy"]["first_from_prior"],
            relation=relation,
            grid=grid,
        )
    if not isinstance(term["published"], int) or term["published"] > untrusted.MOST_STEPS:
        raise Refused("published: should be a number of runs")
    return account_published(found, term["published"], relation=relation, grid=grid)
