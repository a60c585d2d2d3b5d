"""Guarantees are functions of public values: one that was computed is not computed again in this process.

Many searches share what they are declared by: a comparison of designs, a study that is resumed, a search in stages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import dp_accounting

from dphypo.accounting import (
    BOTH,
    Certificate,
    Composition,
    Guarantee,
    PolicyClass,
    Side,
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
    """What records of each side meet in a study, for every λ of a space.

    Where runs score on private records of their own and a record is added or removed, there are two terms: to records
    that train the study is a search whose runs are the training, to records that score one whose runs are the scores.
    Else there is one, which reads all records: a part that names no records apart may train on any.
    """
    trains, scores = over_space.by_side(mechanism, space)
    if not scores:
        return (_term(_search(trains, mechanism, runs, band, policy, first_from_prior), BOTH),)
    if mechanism.relation is dp_accounting.NeighboringRelation.REPLACE_ONE:
        return (_term(accounted(mechanism, space, runs, band, policy, first_from_prior), BOTH),)
    return (
        _term(_search(trains, mechanism, runs, band, policy, first_from_prior), frozenset({Side.TRAINING})),
        _term(_search(scores, mechanism, runs, band, policy, first_from_prior), frozenset({Side.SCORING})),
    )


def _search(
    found: list[Any], mechanism: Mechanism, runs: Law, band: Band, policy: PolicyClass, first_from_prior: int
) -> Guarantee:
    events = tuple(found)
    given: object = runs
    if not isinstance(given, Law):
        return account(events, runs, band, relation=mechanism.relation)  # which says what is wrong
    relation = mechanism.relation
    law = [type(runs).__module__, type(runs).__qualname__, runs.to_dict()]
    stated = [[event_to_dict(event) for event in events], law, [band.c, band.C], str(relation), policy.value]
    # Without a band every run is drawn from the prior, and nothing depends on how many.
    first = first_from_prior if band.C > 1 else 0
    return _account(_Question(json.dumps([*stated, first]), (events, runs, band, relation, policy, first)))


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


@dataclass(frozen=True)
class _Question:
    """What is to be accounted for; equal questions have equal texts."""

    text: str
    values: tuple[Any, Law, Band, Any, PolicyClass, int] = field(compare=False)


@lru_cache(maxsize=64)
def _term(guarantee: Guarantee, sides: frozenset[Side]) -> Term:
    """One term for one guarantee, so that parts which share it share what is computed from it."""
    return Term(guarantee, sides)


@lru_cache(maxsize=64)
def _account(question: _Question) -> Guarantee:
    events, runs, band, relation, policy, first = question.values
    return account(events, runs, band, relation=relation, policy=policy, first_from_prior=first)


@lru_cache(maxsize=256)
def _certify(guarantee: Guarantee | Composition, delta: float, public: str) -> Certificate:
    return guarantee.certificate(delta, **json.loads(public))
