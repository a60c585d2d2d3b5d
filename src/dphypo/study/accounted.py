"""Guarantees are functions of public values: one that was computed is not computed again in this process.

Many searches share what they are declared by: a comparison of designs, a study that is resumed, a search in stages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from dphypo.accounting import (
    BOTH,
    Certificate,
    Composition,
    Guarantee,
    PlanGuarantee,
    PolicyClass,
    Term,
    account,
    event_to_dict,
)
from dphypo.band import Band
from dphypo.laws import Law
from dphypo.mechanisms import Mechanism, over_space
from dphypo.space import Space


def accounted(
    mechanism: Mechanism, space: Space, runs: Law, band: Band, policy: PolicyClass = PolicyClass.ANYTHING
) -> Guarantee:
    """The guarantee of a study whose runs are those of a mechanism, for every λ of a space.

    The first run of a study is drawn from the prior, whatever its search rule is.
    """
    events = tuple(over_space.events(mechanism, space))
    given: tuple[object, object] = runs, band
    if not isinstance(given[0], Law) or not isinstance(given[1], Band):
        return account(events, runs, band, relation=mechanism.relation)  # which says what is wrong
    relation = mechanism.relation
    law = [type(runs).__module__, type(runs).__qualname__, runs.to_dict()]
    stated = [[event_to_dict(event) for event in events], law, [band.c, band.C], str(relation), policy.value]
    return _account(_Question(json.dumps(stated), (events, runs, band, relation, policy)))


def described(guarantee: Guarantee) -> dict[str, Any]:
    """What determines the guarantee of a study, as JSON."""
    return {
        "law of T": guarantee.runs.to_dict(),
        "band": [guarantee.band.c, guarantee.band.C],
        "event": [event_to_dict(event) for event in guarantee.events],
    }


@lru_cache(maxsize=64)
def composed(terms: tuple[Term, ...]) -> Guarantee | Composition | PlanGuarantee:
    """The guarantee of all terms together: a composition of searches, or a plan with published runs or with sides."""
    searches = [term.releases for term in terms if isinstance(term.releases, Guarantee) and term.sides == BOTH]
    if len(searches) < len(terms):
        return PlanGuarantee(terms)
    return searches[0] if len(searches) == 1 else Composition(tuple(searches))


def certified(
    guarantee: Guarantee | Composition | PlanGuarantee, delta: float, public: Mapping[str, object]
) -> Certificate:
    """The certificate of a guarantee at δ, with what else is public."""
    return _certify(guarantee, delta, json.dumps(public))


@dataclass(frozen=True)
class _Question:
    """What is to be accounted for; equal questions have equal texts."""

    text: str
    values: tuple[Any, Law, Band, Any, PolicyClass] = field(compare=False)


@lru_cache(maxsize=64)
def _account(question: _Question) -> Guarantee:
    events, runs, band, relation, policy = question.values
    first = 1 if band.C > 1 else 0  # without a band every run is drawn from the prior, and nothing depends on it
    return account(events, runs, band, relation=relation, policy=policy, first_from_prior=first)


@lru_cache(maxsize=256)
def _certify(guarantee: Guarantee | Composition | PlanGuarantee, delta: float, public: str) -> Certificate:
    return guarantee.certificate(delta, **json.loads(public))
