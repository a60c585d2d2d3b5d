"""The terms of published runs: what a record meets in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dphypo import _validate
from dphypo.accounting import EVERYONE, Term, account_published
from dphypo.mechanisms import Mechanism, over_space
from dphypo.space import Space

Within = Callable[[Mapping[str, Any]], bool]
"""Which hyperparameters of a space may be run."""


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
        both_sides: whether the runs train on the records that score, too. Runs that state no split may train on any
            record in any case.
        scored: whether the scores are published; a score that is thrown away costs nothing.
        within: hyperparameters for which it is false are never run.
    """
    trains, scores = over_space.by_side(mechanism, space, within, scored=scored)
    if not trains:
        raise _validate.fail("within", within, "it excludes every point of the space")
    sides = mechanism.split
    side = EVERYONE if both_sides or sides is None else sides.training
    terms = [Term(account_published(trains, count, relation=mechanism.relation), side)]
    if scores and sides is not None:
        terms.append(Term(account_published(scores, count, relation=mechanism.relation), sides.scoring, scores=True))
    return tuple(terms)
