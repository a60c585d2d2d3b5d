"""The one place that reaches into dp_accounting: the privacy loss distribution and the RDP curve of an event.

dp_accounting composes events but gives no public access to the two directions of a privacy loss distribution, nor to
an RDP curve. The private attributes are read here and nowhere else; ``tests/test_dp_accounting.py`` fails when a new
version moves them.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator
from typing import TypeAlias

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.rdp import RdpAccountant

from dphypo.accounting.curve import Curve
from dphypo.accounting.profiles import Discrete, Floats

DEFAULT_GRID = 1e-3
Relation: TypeAlias = dp_accounting.NeighboringRelation


class UnaccountableError(ValueError):
    """The event has no privacy profile that we can compute: it is not private, or dp_accounting does not know it."""


def losses(event: dp_accounting.DpEvent, relation: Relation, grid: float = DEFAULT_GRID) -> tuple[Discrete, Discrete]:
    """The loss distributions of both directions, remove and add; the same object twice if they are equal.

    Raises:
        dp_accounting.UnsupportedEventError: if the PLD accountant does not know the event.
        UnaccountableError: if the event is not private.
    """
    accountant = PLDAccountant(relation, value_discretization_interval=grid)
    accountant.compose(event)
    if accountant._contains_non_dp_event:
        raise UnaccountableError(f"the event {event!r} is not private: it has no finite ε at any δ < 1")
    return directions(accountant._pld)


def directions(distribution: PrivacyLossDistribution) -> tuple[Discrete, Discrete]:
    """Both directions of a privacy loss distribution, remove and add; the same object twice if they are equal."""
    remove = _clean(distribution._pmf_remove)
    return remove, remove if distribution._symmetric else _clean(distribution._pmf_add)


def _clean(pmf: object) -> Discrete:
    """A loss distribution with the traces of the fast Fourier transform rounded up.

    Composition leaves bins of a small negative mass. They become zero, and since rounding took from other bins what it
    gave to none, twice their sum goes to the infinite loss. Mass that is missing goes there too (``Discrete``).
    """
    dense = pmf.to_dense_pmf()  # type: ignore[attr-defined]
    masses = np.asarray(dense._probs, dtype=np.float64)
    positions = (np.arange(len(masses)) + dense._lower_loss) * dense._discretization
    rounding = -2.0 * float(masses[masses < 0].sum())
    infinity = max(0.0, float(dense._infinity_mass)) + rounding
    return Discrete(positions, np.maximum(masses, 0.0), min(1.0, infinity))


def curve(event: dp_accounting.DpEvent, relation: Relation) -> Curve | None:
    """The RDP curve at dp_accounting's own orders; ``None`` if the RDP accountant does not know a finite one."""

    def at(orders: Floats | None) -> tuple[Floats, Floats]:
        accountant = RdpAccountant(orders, relation)
        with _without_remarks():
            accountant.compose(event)
        epsilons = np.asarray(accountant._rdp, dtype=np.float64)
        # The accountant can return a divergence a rounding below zero.
        return np.asarray(accountant._orders, dtype=np.float64), np.maximum(epsilons, 0.0)

    try:
        orders, epsilons = at(None)
    except dp_accounting.UnsupportedEventError:
        return None
    if not np.isfinite(epsilons[orders > 1]).any():
        return None
    return Curve(orders, epsilons, lambda more: at(more)[1])


@contextlib.contextmanager
def _without_remarks() -> Iterator[None]:
    """dp_accounting logs every order at which its series does not converge. Such an order is infinite: others count."""

    def passes(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("_compute_log_a_frac failed to converge")

    logger = logging.getLogger("absl")
    logger.addFilter(passes)
    try:
        yield
    finally:
        logger.removeFilter(passes)


def pure_epsilon(event: dp_accounting.DpEvent) -> float:
    """The ε of pure DP that the event has by its definition; infinite if it has none that we know."""
    match event:
        case dp_accounting.NoOpDpEvent():
            return 0.0
        case dp_accounting.LaplaceDpEvent():
            return 1.0 / event.noise_multiplier if event.noise_multiplier > 0 else math.inf
        case dp_accounting.SelfComposedDpEvent():
            return float(event.count) * pure_epsilon(event.event) if event.count else 0.0
        case dp_accounting.ComposedDpEvent():
            return math.fsum(pure_epsilon(part) for part in event.events)
        case _:
            return math.inf
