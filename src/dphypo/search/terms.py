"""What the parts of a declaration cost: terms, each with the side whose records it reads.

Where a split sets records apart and one is added or removed, a part has two terms: to records that train, its runs are
the training; to records that score, they are the scores. Else it has one, which reads all records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dp_accounting

from dphypo import _validate
from dphypo.accounting import Guarantee, Term, account
from dphypo.accounting.events import event_to_dict
from dphypo.accounting.published import account_published
from dphypo.accounting.sides import EVERYONE
from dphypo.laws import Law
from dphypo.mechanisms import Mechanism, over_space
from dphypo.search.policy import Policy
from dphypo.space import Space

Within = Callable[[Mapping[str, Any]], bool]
"""Which hyperparameters of a space may be run."""

FIRST = "first from the prior"


def guarantee_of_study(mechanism: Mechanism, space: Space, runs: Law, policy: Policy) -> Guarantee:
    """The guarantee of a study by itself: the best of T runs, whatever side a record is on."""
    return _search(over_space.events(mechanism, space), mechanism, runs, policy)


def terms_of_study(mechanism: Mechanism, space: Space, runs: Law, policy: Policy) -> tuple[Term, ...]:
    """The best of T runs of a mechanism, each at any λ of the space."""
    sides = mechanism.split
    if sides is None or mechanism.relation is dp_accounting.NeighboringRelation.REPLACE_ONE:
        return (Term(guarantee_of_study(mechanism, space, runs, policy)),)
    trains, scores = over_space.by_side(mechanism, space)
    terms = [Term(_search(trains, mechanism, runs, policy), sides.training)]
    if scores:
        terms.append(Term(_search(scores, mechanism, runs, policy), sides.scoring, scores=True))
    return tuple(terms)


def terms_of_runs(
    mechanism: Mechanism, space: Space, count: int, *, scored: bool = True, within: Within | None = None
) -> tuple[Term, ...]:
    """``count`` published runs of a mechanism, each at any λ of the space for which ``within`` is true.

    A mechanism that states no split may train on any record. A score that is not published (``scored``) costs nothing.
    """
    trains, scores = over_space.by_side(mechanism, space, within, scored=scored)
    if not trains:
        raise _validate.fail("within", within, "it excludes every point of the space")
    sides = mechanism.split
    side = EVERYONE if sides is None else sides.training
    terms = [Term(account_published(trains, count, relation=mechanism.relation), side)]
    if scores and sides is not None:
        terms.append(Term(account_published(scores, count, relation=mechanism.relation), sides.scoring, scores=True))
    return tuple(terms)


def describe_study(terms: tuple[Term, ...]) -> dict[str, Any]:
    """What determines the guarantee of a study, as JSON; where sides have guarantees of their own, of all of them."""
    found = [term.releases for term in terms if isinstance(term.releases, Guarantee)]
    first = found[0]
    several: dict[str, Any] = {FIRST: first.first_from_prior} if first.first_from_prior > 1 else {}
    if terms[0].side != EVERYONE:
        several["reads"] = [term.side.to_json() for term in terms]
    return {
        "law of T": first.runs.to_dict(),
        "band": [first.band.c, first.band.C],
        "event": [event_to_dict(event) for guarantee in found for event in guarantee.events],
        "relation": first.relation.name,
        **several,
    }


def describe_runs(terms: tuple[Term, ...]) -> dict[str, Any]:
    """What determines the guarantee of published runs, as JSON."""
    stated: list[dict[str, Any]] = []
    for term in terms:
        assert not isinstance(term.releases, Guarantee)
        stated.append(
            {
                "published": term.releases.count,
                "reads": term.side.to_json(),
                "event": [event_to_dict(event) for event in term.releases.events],
                "relation": term.releases.relation.name,
            }
        )
    return {"terms": stated}


def _search(events: list[Any], mechanism: Mechanism, runs: Law, policy: Policy) -> Guarantee:
    return account(
        events,
        runs,
        policy.band,
        relation=mechanism.relation,
        policy=policy.policy,
        first_from_prior=policy.counted,
    )
