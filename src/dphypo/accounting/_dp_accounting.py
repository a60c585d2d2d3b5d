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
from dataclasses import dataclass

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from dphypo.accounting.profiles import Discrete, Floats

DEFAULT_GRID = 1e-3


class UnaccountableError(ValueError):
    """The event has no privacy profile that we can compute: it is not private, or dp_accounting does not know it."""


@dataclass(frozen=True, eq=False)
class Composed:
    """What dp_accounting says of one event."""

    remove: Discrete | None
    add: Discrete | None
    orders: Floats | None
    epsilons: Floats | None


def compose(
    event: dp_accounting.DpEvent, relation: dp_accounting.NeighboringRelation, grid: float = DEFAULT_GRID
) -> Composed:
    """The loss distributions of both directions, if the PLD accountant knows the event, and the RDP curve, likewise.

    Raises:
        UnaccountableError: if neither accountant knows the event, or if it is not private at all.
    """
    remove, add, pld_error = _losses(event, relation, grid)
    orders, epsilons, rdp_error = _curve(event, relation)
    if remove is None and orders is None:
        raise UnaccountableError(
            f"the event {event!r} cannot be accounted under {relation.name}: {pld_error or rdp_error}. State an event "
            "that dp_accounting supports, or an RdpCurve, a PureDp or an ApproximateDp"
        )
    return Composed(remove, add, orders, epsilons)


def _losses(
    event: dp_accounting.DpEvent, relation: dp_accounting.NeighboringRelation, grid: float
) -> tuple[Discrete | None, Discrete | None, str]:
    accountant = PLDAccountant(relation, value_discretization_interval=grid)
    try:
        accountant.compose(event)
    except dp_accounting.UnsupportedEventError as error:
        return None, None, str(error)
    if accountant._contains_non_dp_event:
        raise UnaccountableError(f"the event {event!r} is not private: it has no finite ε at any δ < 1")
    distribution = accountant._pld
    remove = _clean(distribution._pmf_remove)
    return remove, remove if distribution._symmetric else _clean(distribution._pmf_add), ""


def _clean(pmf: object) -> Discrete:
    """A loss distribution with the traces of the fast Fourier transform rounded up.

    Composition leaves bins of a small negative mass. They become zero, and since rounding took from other bins what it
    gave to none, twice their sum goes to the infinite loss. Mass that is missing goes there too (``Discrete``).
    """
    dense = pmf.to_dense_pmf()  # type: ignore[attr-defined]
    masses = np.asarray(dense._probs, dtype=np.float64)
    losses = (np.arange(len(masses)) + dense._lower_loss) * dense._discretization
    rounding = -2.0 * float(masses[masses < 0].sum())
    return Discrete(losses, np.maximum(masses, 0.0), min(1.0, float(dense._infinity_mass) + rounding))


def _curve(
    event: dp_accounting.DpEvent, relation: dp_accounting.NeighboringRelation
) -> tuple[Floats | None, Floats | None, str]:
    try:
        orders, epsilons = _rdp(event, relation, None)
    except dp_accounting.UnsupportedEventError as error:
        return None, None, str(error)
    if not np.isfinite(epsilons[orders > 1]).any():
        return None, None, "its RDP is infinite at every order"
    return orders, epsilons, ""


def rdp_at(event: dp_accounting.DpEvent, relation: dp_accounting.NeighboringRelation, orders: Floats) -> Floats:
    """ε(α) of an event at further orders; the RDP accountant must know the event."""
    return _rdp(event, relation, orders)[1]


def _rdp(
    event: dp_accounting.DpEvent, relation: dp_accounting.NeighboringRelation, orders: Floats | None
) -> tuple[Floats, Floats]:
    accountant = RdpAccountant(orders, relation)
    with _without_remarks():
        accountant.compose(event)
    epsilons = np.asarray(accountant._rdp, dtype=np.float64)
    # The accountant can return a divergence a rounding below zero.
    return np.asarray(accountant._orders, dtype=np.float64), np.where(epsilons < 0, 0.0, epsilons)


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
