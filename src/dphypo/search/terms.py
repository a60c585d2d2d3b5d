"""The terms of published runs: what records of each side meet in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from dphypo import _validate
from dphypo.accounting import Side, Term, account_published, event_to_dict
from dphypo.mechanisms import Mechanism, over_space
from dphypo.space import Space

Within = Callable[[Mapping[str, Any]], bool]
"""Which hyperparameters of a space may be run."""

TRAINING, SCORING, BOTH = frozenset({Side.TRAINING}), frozenset({Side.SCORING}), frozenset(Side)


def terms_of(
    mechanism: Mechanism,
    space: Space,
    count: int,
    *,
    both_sides: bool = False,
    scored: bool = True,
    within: Within | None = None,
) -> tuple[Term, ...]:
    """``count`` published runs of a mechanism, each at any λ of the space.

    Args:
        mechanism: what one run is.
        space: every λ of it is accounted for.
        count: how many runs.
        both_sides: whether the runs train on the records that score, too. Runs that score on no private records of
            their own name no records that they leave alone: they count for both sides in any case.
        scored: whether the scores are published; a score that is thrown away costs nothing.
        within: hyperparameters for which it is false are never run.
    """
    trains, scores = over_space.by_side(mechanism, space, within)
    if not trains:
        raise _validate.fail("within", within, "it excludes every point of the space")
    terms = [_term(trains, count, BOTH if both_sides or not scores else TRAINING, mechanism.relation)]
    if scores and scored:
        terms.append(_term(scores, count, SCORING, mechanism.relation))
    return tuple(terms)


def _term(events: Sequence[Any], count: int, sides: frozenset[Side], relation: Any) -> Term:
    described = [[event_to_dict(event) for event in events], count, sorted(sides), str(relation)]
    return _accounted(_Question(json.dumps(described), (events, count, sides, relation)))


@dataclass(frozen=True)
class _Question:
    """What is to be accounted for; equal questions have equal texts."""

    text: str
    values: tuple[Sequence[Any], int, frozenset[Side], Any] = field(compare=False)


@lru_cache(maxsize=64)
def _accounted(question: _Question) -> Term:
    """A term is a function of public values: one that was computed is not computed again in this process."""
    events, count, sides, relation = question.values
    return Term(account_published(events, count, relation=relation), sides)
