"""Noise for every kind of run, so that the whole search costs a given (ε, δ).

Where the privacy of a run depends on λ (batch size, epochs), runs come in kinds. Each kind gets noise of its own, and
the guarantee of the search is that of the envelope: the pointwise supremum of the profiles of all kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dp_accounting

from dphypo.accounting import Guarantee, Keep, PolicyClass, account, solve_settings
from dphypo.band import Band
from dphypo.laws import Law
from dphypo.mechanisms import Declared, Split, over_space
from dphypo.search import solving
from dphypo.space import Space

MOST_KINDS = 64
_REMEDY = "run fewer times (a smaller mean of T), use a narrower band, sample less or take fewer steps"


@dataclass(frozen=True)
class Kind:
    """Runs with the same privacy but for their noise: what tells them apart, and their event as a function of noise."""

    key: Hashable
    event: Callable[[float], dp_accounting.DpEvent] = field(compare=False, repr=False)


def kinds(space: Space, kind_of: Callable[[Mapping[str, Any]], Kind]) -> list[Kind]:
    """Every kind of run in a space, found as a study finds every event: by all values of what ``kind_of`` reads."""
    return over_space.everywhere(lambda params: [kind_of(params)], space)


def noise(
    found: Sequence[Kind],
    space: Space,
    runs: Law,
    band: Band,
    *,
    score_event: dp_accounting.DpEvent | None,
    split: Split,
    epsilon: float,
    delta: float,
    policy: PolicyClass | str = PolicyClass.ANYTHING,
    first_from_prior: int = 0,
    keep: Keep | None = None,
    progress: bool = True,
) -> dict[Hashable, float]:
    """The noise multiplier of each kind with which a search over all of them is (ε, δ)-DP.

    The search over all of them costs what the pointwise supremum of their profiles does.

    Args:
        found: the kinds of run.
        space, runs, band: of the search.
        score_event, split: of the score, where it looks at private records.
        epsilon, delta: what the search may cost.
        policy, first_from_prior: what the search rule sees, and how many first runs it leaves to the prior.
        keep: where the noise is kept: :func:`dphypo.journal.keeping` keeps it in a journal.
        progress: say on a terminal how far it is, if it takes longer than two seconds.
    """
    if len(found) > MOST_KINDS:
        raise ValueError(
            f"the space holds {len(found)} kinds of run with noise of their own (batch sizes and epochs): at most "
            f"{MOST_KINDS} are calibrated. Give short lists, for example batch_size: [64, 128, 256]"
        )

    def search(*events: dp_accounting.DpEvent) -> Guarantee:
        every = _events(events, score_event, split, space)
        return account(every, runs, band, policy=policy, first_from_prior=first_from_prior)

    with solving(show=progress):
        noise, _ = solve_settings(
            {kind.key: lambda value, kind=kind: search(kind.event(value)) for kind in found},  # type: ignore[misc]
            lambda noise: search(*(kind.event(noise[kind.key]) for kind in found)),
            epsilon=epsilon,
            delta=delta,
            keep=keep,
            remedy=_REMEDY,
        )
    return noise


def _events(event: Any, score_event: Any, split: Split, space: Space) -> list[Any]:
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    return over_space.events(Declared(_no_train, event, relation, score_event, split), space)


def _no_train(params: Mapping[str, Any], *, seed: int) -> Any:
    raise NotImplementedError("this mechanism only states its events")
