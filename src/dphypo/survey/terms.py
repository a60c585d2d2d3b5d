"""The terms of published runs: what records of each side meet in them."""

from __future__ import annotations

from dphypo.accounting import Side, Term, published
from dphypo.mechanisms import Mechanism, over_space
from dphypo.space import Space

TRAINING, SCORING, BOTH = frozenset({Side.TRAINING}), frozenset({Side.SCORING}), frozenset(Side)


def terms_of(
    mechanism: Mechanism, space: Space, count: int, *, both_sides: bool = False, scored: bool = True
) -> tuple[Term, ...]:
    """``count`` published runs of a mechanism, each at any λ of the space.

    Args:
        mechanism: what one run is.
        space: every λ of it is accounted for.
        count: how many runs.
        both_sides: whether the runs train on the records that score, too.
        scored: whether the scores are published; a score that is thrown away costs nothing.
    """
    trains, scores = over_space.by_side(mechanism, space)
    terms = [Term(published(trains, count, relation=mechanism.relation), BOTH if both_sides else TRAINING)]
    if scores and scored:
        terms.append(Term(published(scores, count, relation=mechanism.relation), SCORING))
    return tuple(terms)
