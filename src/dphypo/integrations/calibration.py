"""Noise for every kind of run, so that the whole search costs a given (ε, δ).

Where the privacy of a run depends on λ (batch size, epochs), runs come in kinds. Each kind gets noise of its own, and
the guarantee of the search is that of the envelope: the pointwise supremum of the profiles of all kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from dphypo.accounting import Guarantee, account
from dphypo.accounting.events import Event
from dphypo.accounting.guarantee import PolicyClass
from dphypo.accounting.noise import solve_settings
from dphypo.band import Band
from dphypo.band.band import BandLike
from dphypo.journal.journal import keeping
from dphypo.journal.store import Store
from dphypo.laws import Law
from dphypo.mechanisms import Declared, Mechanism, capabilities, over_space
from dphypo.search.progress import solving
from dphypo.space import Space

M = TypeVar("M", bound=Mechanism)

MOST_KINDS = 64
_REMEDY = "run fewer times (a smaller mean of T), use a narrower band, sample less or take fewer steps"


@dataclass(frozen=True)
class Kind:
    """Runs with the same privacy but for their noise: what tells them apart, and their event as a function of noise."""

    key: Hashable
    event: Callable[[float], Event] = field(compare=False, repr=False)


def kinds(space: Space, kind_of: Callable[[Mapping[str, Any]], Kind]) -> list[Kind]:
    """Every kind of run in a space, found as a study finds every event: by all values of what ``kind_of`` reads."""
    return over_space.everywhere(lambda params: [kind_of(params)], space)


def calibrated(
    mechanism: M,
    space: Space,
    runs: Law,
    band: BandLike,
    *,
    epsilon: float,
    delta: float,
    policy: PolicyClass | str = PolicyClass.ANYTHING,
    first_from_prior: int = 0,
    journal: str | Path | Store | None = None,
    progress: bool = True,
) -> M:
    """The mechanism with the noise multiplier of each kind with which a search over all of them is (ε, δ)-DP.

    The search over all of them costs what the pointwise supremum of their profiles does.

    Args:
        mechanism: what is searched over.
        space, runs, band: of the search.
        epsilon, delta: what the search may cost.
        policy, first_from_prior: what the search rule sees, and how many first runs it leaves to the prior.
        journal: where the noise is kept.
        progress: say on a terminal how far it is, if it takes longer than two seconds.
    """
    found = capabilities.kinds_of(mechanism, space)
    if len(found) > MOST_KINDS:
        raise ValueError(
            f"the space holds {len(found)} kinds of run with noise of their own (batch sizes and epochs): at most "
            f"{MOST_KINDS} are calibrated. Give short lists, for example batch_size: [64, 128, 256]"
        )

    def search(*events: Event) -> Guarantee:
        declared = Declared(_no_train, events, mechanism.relation, mechanism.score_event, mechanism.split)
        every = over_space.events(declared, space)
        return account(every, runs, Band.of(band), policy=policy, first_from_prior=first_from_prior)

    with keeping(journal, "noise") as keep, solving(show=progress):
        noise, _ = solve_settings(
            {kind.key: lambda value, kind=kind: search(kind.event(value)) for kind in found},  # type: ignore[misc]
            lambda noise: search(*(kind.event(noise[kind.key]) for kind in found)),
            epsilon=epsilon,
            delta=delta,
            keep=keep,
            remedy=_REMEDY,
        )
    return cast(M, capabilities.with_noise(mechanism, noise))


def _no_train(params: Mapping[str, Any], *, seed: int) -> Any:
    raise NotImplementedError("this mechanism only states its events")
