"""Noise for every kind of run, so that the whole search costs a given (ε, δ).

Where the privacy of a run depends on λ (batch size, epochs), runs come in kinds. Each kind gets noise of its own, and
the guarantee of the search is that of the envelope: the pointwise supremum of the profiles of all kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dp_accounting

from dphypo import _validate
from dphypo.accounting import PolicyClass, account, calibrate, canonical, event_to_dict, rounded_up
from dphypo.band import Band
from dphypo.errors import JournalTamperedError
from dphypo.journal import Keep, solved_anew
from dphypo.laws import Law
from dphypo.mechanisms import Declared, Split, over_space
from dphypo.solving import solving
from dphypo.space import Space

MOST_KINDS = 64
_DECIMALS = 4


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
    keep: Keep = solved_anew,
    progress: bool = True,
) -> dict[Hashable, float]:
    """The noise multiplier of each kind with which a search over all of them is (ε, δ)-DP.

    First each kind by itself, so that a search over it alone costs ε. The profiles of the kinds then agree about where
    the search's guarantee is read off, and differ a little elsewhere. The search over all of them costs what their
    pointwise supremum does, so all multipliers are raised by one factor until that is ε.

    Args:
        found: the kinds of run.
        space, runs, band: of the search.
        score_event, split: of the score, where it looks at private records.
        epsilon, delta: what the search may cost.
        policy, first_from_prior: what the search rule sees, and how many first runs it leaves to the prior.
        keep: keeps numbers that take long to find: :func:`dphypo.journal.keeping` keeps them in a journal.
        progress: say on a terminal how far it is, if it takes longer than two seconds.
    """
    if len(found) > MOST_KINDS:
        raise ValueError(
            f"the space holds {len(found)} kinds of run with noise of their own (batch sizes and epochs): at most "
            f"{MOST_KINDS} are calibrated. Give short lists, for example batch_size: [64, 128, 256]"
        )

    policy = _validate.choice(PolicyClass, policy=policy)
    rule: dict[str, Any] = {"policy": policy, "first_from_prior": first_from_prior}

    def whole(events: list[dp_accounting.DpEvent]) -> list[Any]:
        return _events(events, score_event, split, space)

    def solve(events: Callable[[float], list[dp_accounting.DpEvent]], smallest: float) -> float:
        def at(knob: float) -> list[Any]:
            return whole(events(knob))

        question = {
            "solved": "noise of a search",
            "at 1": [event_to_dict(canonical(event)) for event in at(1.0)],
            "runs": [type(runs).__module__, type(runs).__qualname__, runs.to_dict()],
            "band": [band.c, band.C],
            "rule": [policy.value, first_from_prior],
            "budget": [epsilon, delta],
        }
        budget: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "smallest": smallest, "decimals": _DECIMALS}
        return keep(question, lambda: calibrate(at, runs, band, **budget, **rule).value)

    with solving(show=progress):
        found_noise = _multipliers(found, solve)
    if keep is not solved_anew:
        events = whole([kind.event(found_noise[kind.key]) for kind in found])
        if account(events, runs, band, **rule).epsilon(delta) > epsilon:
            raise JournalTamperedError("the noise that is kept in it costs more than epsilon")
    return found_noise


def _multipliers(
    found: Sequence[Kind], solve: Callable[[Callable[[float], list[dp_accounting.DpEvent]], float], float]
) -> dict[Hashable, float]:
    """Each kind by itself, then one factor for all."""
    alone = {kind: solve(lambda knob, kind=kind: [kind.event(knob)], 0.05) for kind in found}  # type: ignore[misc]
    if len(alone) == 1:
        return {kind.key: sigma for kind, sigma in alone.items()}
    # Rounded before they are accounted: a resumed study, declared anew, finds the same numbers, and they cost no more.
    factor = solve(lambda knob: [kind.event(rounded_up(knob * sigma, _DECIMALS)) for kind, sigma in alone.items()], 1.0)
    return {kind.key: rounded_up(factor * sigma, _DECIMALS) for kind, sigma in alone.items()}


def _events(event: Any, score_event: Any, split: Split, space: Space) -> list[Any]:
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    return over_space.events(Declared(_no_train, event, relation, score_event, split), space)


def _no_train(params: Mapping[str, Any], *, seed: int) -> Any:
    raise NotImplementedError("this mechanism only states its events")
