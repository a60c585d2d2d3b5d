"""Runs whose results are all published: plain adaptive composition, no law of T and no selection.

Every run may look at all results that were published before it, and may be at any setting of the space. Each run is
therefore dominated by the pointwise supremum over the settings, in each direction, and k runs by the k-fold product of
that pair (Zhu, Dong and Wang 2022). A last run at a λ chosen from a published table is one more factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import dp_accounting
import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.accounting import dp_library, slack
from dphypo.accounting.dominating_pair import run_to_pld
from dphypo.accounting.events import Event, canonical
from dphypo.accounting.one_run import ADD_OR_REMOVE_ONE, Run, check, describe
from dphypo.accounting.profiles import Floats

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution


@dataclass(frozen=True, eq=False)
class PublishedRuns:
    """``count`` runs, each with one of ``events``, whose results are all published."""

    events: tuple[Event, ...]
    count: int
    relation: dp_accounting.NeighboringRelation
    grid: float

    @cached_property
    def slack(self) -> float:
        """How far all the runs together are from their events, in total variation."""
        return slack.total(self.count, slack.largest(self.events))

    @cached_property
    def run(self) -> Run:
        """What is known of one of the runs."""
        return describe(self.events, self.relation, self.grid)

    def one_run(self, delta: float) -> dict[str, float]:
        """ε of one run alone, by its RDP curve and by its privacy loss distribution."""
        return slack.charge(self.run.epsilons, _validate.delta(delta=delta), slack.largest(self.events))

    def rdp(self, alpha: npt.ArrayLike) -> Floats:
        """ε(α) of all the runs together without their slack, at orders α > 1; infinite where none is known."""
        wanted = np.asarray(alpha, dtype=np.float64)
        curve = self.run.curve
        return np.full(wanted.shape, np.inf) if curve is None else self.count * curve.rounded_up(wanted)

    @cached_property
    def _pld(self) -> PrivacyLossDistribution:
        remove, add = self.run.profiles
        one = run_to_pld([remove] if self.run.symmetric else [remove, add], self.grid)
        return one if self.count == 1 else one.self_compose(self.count)

    def to_pld(self) -> PrivacyLossDistribution:
        """A dp_accounting privacy loss distribution that dominates all the runs together, without their slack."""
        return self._pld


def account_published(
    event: Event | Sequence[Event],
    count: int,
    *,
    relation: dp_accounting.NeighboringRelation = ADD_OR_REMOVE_ONE,
    grid: float = dp_library.DEFAULT_GRID,
) -> PublishedRuns:
    """``count`` runs whose results are all published, to be composed with others; all that are declared are paid for.

    ``event`` is what is known of one run; or a list, if the privacy of a run depends on λ (the pointwise worst counts).

    >>> account_published(dp_accounting.GaussianDpEvent(20.0), 20).count
    20
    """
    events = tuple(canonical(one) for one in (event if isinstance(event, (list, tuple)) else [event]))
    check(events, relation)
    count = _validate.integer(at_least=1, count=count)
    return _remembered(events, count, relation, _validate.positive(grid=grid))


_remembered = lru_cache(maxsize=32)(PublishedRuns)  # what is computed from equal values is computed once
