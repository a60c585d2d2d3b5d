"""The guarantee of a study, from what determines it: public values alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import dp_accounting

from dphypo.accounting import (
    Certificate,
    Composition,
    Guarantee,
    PolicyClass,
    Term,
    account,
    event_to_dict,
)
from dphypo.band import Band
from dphypo.laws import Law
from dphypo.mechanisms import Mechanism, over_space
from dphypo.space import Space

FIRST = "first from the prior"
"""In the journal: how many of the first runs are drawn from the prior, if more than one."""


def accounted(
    mechanism: Mechanism,
    space: Space,
    runs: Law,
    band: Band,
    policy: PolicyClass = PolicyClass.ANYTHING,
    first_from_prior: int = 1,
) -> Guarantee:
    """The guarantee of a study whose runs are those of a mechanism, for every λ of a space.

    The first run of a study is drawn from the prior, whatever its search rule is, and more if it is declared so.
    """
    return _search(over_space.events(mechanism, space), mechanism, runs, band, policy, first_from_prior)


def terms_of_search(
    mechanism: Mechanism,
    space: Space,
    runs: Law,
    band: Band,
    policy: PolicyClass = PolicyClass.ANYTHING,
    first_from_prior: int = 1,
) -> tuple[Term, ...]:
    """What a record meets in a study, for every λ of a space.

    Where a split sets records apart and one is added or removed, there are two terms: to records that train the study
    is a search whose runs are the training, to records that score one whose runs are the scores. Else there is one,
    which reads all records.
    """
    sides = mechanism.split
    if sides is None or mechanism.relation is dp_accounting.NeighboringRelation.REPLACE_ONE:
        return (Term(accounted(mechanism, space, runs, band, policy, first_from_prior)),)
    trains, scores = over_space.by_side(mechanism, space)
    terms = [Term(_search(trains, mechanism, runs, band, policy, first_from_prior), sides.training)]
    if scores:
        search = _search(scores, mechanism, runs, band, policy, first_from_prior)
        terms.append(Term(search, sides.scoring, scores=True))
    return tuple(terms)


def _search(
    events: list[Any], mechanism: Mechanism, runs: Law, band: Band, policy: PolicyClass, first_from_prior: int
) -> Guarantee:
    # Without a band every run is drawn from the prior, and nothing depends on how many.
    first = first_from_prior if band.C > 1 else 0
    return account(events, runs, band, relation=mechanism.relation, policy=policy, first_from_prior=first)


def described(*guarantees: Guarantee) -> dict[str, Any]:
    """What determines the guarantee of a study, as JSON; where sides have guarantees of their own, of all of them."""
    first = guarantees[0]
    events = [event_to_dict(event) for guarantee in guarantees for event in guarantee.events]
    # A journal that says nothing of it is of a study whose first run alone is from the prior.
    several = {FIRST: first.first_from_prior} if first.first_from_prior > 1 else {}
    return {"law of T": first.runs.to_dict(), "band": [first.band.c, first.band.C], "event": events, **several}


@lru_cache(maxsize=64)
def composed(terms: tuple[Term, ...]) -> Composition:
    """The guarantee of all terms together."""
    return Composition(terms)


def certified(guarantee: Guarantee | Composition, delta: float, public: Mapping[str, object]) -> Certificate:
    """The certificate of a guarantee at δ, with what else is public."""
    return _certify(guarantee, delta, json.dumps(public))


@lru_cache(maxsize=256)
def _certify(guarantee: Guarantee | Composition, delta: float, public: str) -> Certificate:
    return guarantee.certificate(delta, **json.loads(public))
