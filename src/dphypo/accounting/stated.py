"""All that a guarantee is computed from, as JSON: the one form that certificates and plan files share.

A single search states its events, their relation, the law of T, the band and the policy; a composition states those of
every search, under "stages"; a plan with published runs states every term, and the sides whose records it reads, under
"terms". :func:`state` writes the form and :func:`read` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import dp_accounting

from dphypo import laws
from dphypo.accounting import events, untrusted
from dphypo.accounting.composition import Composition
from dphypo.accounting.guarantee import Guarantee, account
from dphypo.accounting.policy import conditions
from dphypo.accounting.published import Published, published
from dphypo.accounting.sides import PlanGuarantee, Side, Term
from dphypo.accounting.untrusted import Refused
from dphypo.band import Band

Whole: TypeAlias = Guarantee | Composition | PlanGuarantee
"""The guarantee of a search, of several, or of a plan."""


def state(guarantee: Whole) -> dict[str, Any]:
    """The public values that a guarantee is computed from.

    >>> from dphypo import Geometric
    >>> stated = state(account(dp_accounting.GaussianDpEvent(4.0), Geometric(mean=5)))
    >>> list(stated)
    ['events', 'relation', 'runs', 'band', 'policy', 'grid']
    >>> read(stated).epsilon(1e-5) == account(dp_accounting.GaussianDpEvent(4.0), Geometric(mean=5)).epsilon(1e-5)
    True
    """
    if isinstance(guarantee, PlanGuarantee):
        return {"terms": [{"sides": sorted(term.sides), **_state(term.releases)} for term in guarantee.terms]}
    searches = guarantee.parts if isinstance(guarantee, Composition) else (guarantee,)
    return {"stages": [_state(search) for search in searches]} if len(searches) > 1 else _state(searches[0])


def read(document: Mapping[str, Any]) -> Whole:
    """The guarantee that a document states, accounted afresh. Its events are held to the limits of strangers' files."""
    if "terms" in document:
        return PlanGuarantee(
            tuple(Term(_account(term), frozenset(Side(side) for side in term["sides"])) for term in document["terms"])
        )
    searches = [_search(stage) for stage in document.get("stages", [document])]
    return searches[0] if len(searches) == 1 else Composition(tuple(searches))


def _state(search: Guarantee | Published) -> dict[str, Any]:
    """All that the guarantee of one search, or of published runs, is computed from."""
    stated = {"events": [events.event_to_dict(event) for event in search.events], "relation": search.relation.name}
    if isinstance(search, Published):
        return {**stated, "published": search.count, "grid": search.grid}
    return {
        **stated,
        "runs": {"law": search.runs.to_dict(), "mean": search.runs.mean},
        "band": {"c": search.band.c, "C": search.band.C},
        "policy": {
            "class": search.policy.value,
            "first_from_prior": search.first_from_prior,
            "conditions": conditions(search.policy, search.first_from_prior),
        },
        "grid": search.grid,
    }


def _account(stated: Mapping[str, Any]) -> Guarantee | Published:
    if "published" not in stated:
        return _search(stated)
    if not isinstance(stated["published"], int) or stated["published"] > untrusted.MOST_STEPS:
        raise Refused("published: should be a number of runs")
    relation = dp_accounting.NeighboringRelation[stated["relation"]]
    return published(_events(stated), stated["published"], relation=relation, grid=stated["grid"])


def _events(stated: Mapping[str, Any]) -> list[events.Event]:
    found = [events.from_dict(event) for event in stated["events"]]
    for event in found:
        untrusted.check_event(event, stated["grid"])
    return found


def _search(stated: Mapping[str, Any]) -> Guarantee:
    return account(
        _events(stated),
        laws.from_dict(stated["runs"]["law"]),
        Band(stated["band"]["c"], stated["band"]["C"]),
        policy=stated["policy"]["class"],
        first_from_prior=stated["policy"]["first_from_prior"],
        relation=dp_accounting.NeighboringRelation[stated["relation"]],
        grid=stated["grid"],
    )
