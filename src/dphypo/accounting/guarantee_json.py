"""All that a guarantee is computed from, as JSON: the one form that certificates and plan files share.

It states the relation, the grid, and every term: its events, which records it reads, and how many runs are published,
or the law of T, the band and the policy of a search. A plan file has besides ``name``, ``epsilon`` and ``delta``;
``parts``, from which :meth:`dphypo.search.PlanFile.declare` makes a search; and ``settings`` for people to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dp_accounting
import numpy as np

from dphypo import laws
from dphypo._files import Json
from dphypo.accounting import events, untrusted
from dphypo.accounting.composition import Composition, Releases, Term
from dphypo.accounting.guarantee import Guarantee, account
from dphypo.accounting.policy import conditions
from dphypo.accounting.published import PublishedRuns, account_published
from dphypo.accounting.sides import Side
from dphypo.accounting.solve import round_epsilon
from dphypo.accounting.untrusted import Refused
from dphypo.band import Band

PLAN = "dphypo plan 2"
_KNOWN = {"format", "name", "epsilon", "delta", "parts", "settings", "relation", "grid", "terms"}
_LONGEST = 200  # letters of a name


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


def from_json(document: Json) -> Composition:
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


def _releases(term: Json, relation: dp_accounting.NeighboringRelation, grid: float) -> Releases:
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


def write_plan(
    guarantee: Guarantee | Composition,
    delta: float,
    *,
    name: str,
    parts: Sequence[Json],
    settings: Json,
) -> dict[str, Any]:
    """The document of a plan whose parts, each as JSON, have this guarantee together."""
    stated = {"name": name, "epsilon": round_epsilon(guarantee.epsilon(delta)), "delta": float(delta)}
    more = {"parts": list(parts), "settings": settings}
    document: dict[str, Any] = plain({"format": PLAN, **stated, **to_json(guarantee), **more})
    return document


def check_plan(document: Json) -> None:
    """Refuse a document that is no plan, that says more than a plan, or that would take too long to account for."""
    if document.get("format") != PLAN:
        shown = untrusted.printable(repr(document.get("format")), 60)
        raise Refused(f"format = {shown} is not a plan that this version reads: it must be {PLAN!r}")
    if unknown := sorted(set(document) - _KNOWN):
        raise Refused(f"{untrusted.printable(unknown[0], 60)} is not part of a plan: leave it out")
    name, delta, epsilon = document.get("name"), document.get("delta"), document.get("epsilon")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST or not name.isprintable():
        raise Refused(f"name: should be a text of at most {_LONGEST} letters")
    if not _number(delta) or not 0 <= delta < 1:  # type: ignore[operator]
        raise Refused("delta: should be a number in [0, 1)")
    if not _number(epsilon) or not epsilon >= 0:  # type: ignore[operator]
        raise Refused("epsilon: should be a number, zero or more")
    if not isinstance(document.get("settings"), Mapping):
        raise Refused("settings: should be an object")
    parts = document.get("parts")
    if not isinstance(parts, list) or not 1 <= len(parts) <= untrusted.MOST_PARTS:
        raise Refused("parts: should be a list of one or more")
    if not all(isinstance(part, Mapping) for part in parts):
        raise Refused("parts: each should be an object")
    for part in parts:
        untrusted.check_law(part)
    untrusted.check(document)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def plain(value: Any) -> Any:
    """Plain JSON values: no numpy scalars, infinities as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else str(float(value))
    return value
