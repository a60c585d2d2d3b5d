"""What is known of the privacy of one run: its profile in both directions, its RDP curve, its pure ε."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dp_accounting
import numpy as np

from dphypo.accounting import _dp_accounting
from dphypo.accounting.events import DEFAULT_ORDERS, ApproximateDp, PureDp, RdpCurve
from dphypo.accounting.profiles import Floats, FromRdp, Infimum, Profile, Supremum, epsilon_for, randomised_response

Event = dp_accounting.DpEvent | PureDp | ApproximateDp | RdpCurve
"""A statement about one run that can be accounted."""


@dataclass(frozen=True, eq=False)
class Run:
    """One run, for every λ of the space.

    ``profiles`` holds the profiles of the two ordered pairs of neighbours ("remove": from D to D without a record;
    "add": the reverse); one profile serves for both when the run is symmetric. ``orders`` and ``rdp`` are the RDP
    curve, where there is one, ``rdp_at`` gives it at further orders, where it can, and ``pure`` is the ε of pure DP,
    infinite where there is none.
    """

    profiles: tuple[Profile, Profile]
    orders: Floats | None
    rdp: Floats | None
    pure: float
    rdp_at: Callable[[Floats], Floats] | None = None

    @property
    def symmetric(self) -> bool:
        """Whether both directions have the same profile."""
        return self.profiles[0] is self.profiles[1]

    def epsilons(self, delta: float) -> dict[str, float]:
        """ε of this run alone at δ: by its RDP curve ("rdp") and by its profile ("pld"), as far as they exist."""
        result = {}
        if self.orders is not None and self.rdp is not None:
            result["rdp"] = epsilon_of_rdp(self.orders, self.rdp, delta)[0]
        if not all(isinstance(profile, FromRdp) for profile in self.profiles):
            result["pld"] = max(epsilon_for(profile, delta) for profile in self.profiles)
        return result


def describe(
    event: Event | Sequence[Event],
    relation: dp_accounting.NeighboringRelation,
    grid: float = _dp_accounting.DEFAULT_GRID,
) -> Run:
    """What is known of a run with the given event, or of one whose event is any of several (one for each λ)."""
    if isinstance(event, (list, tuple)):
        if not event:
            raise ValueError("event = [] is not valid: give at least one event")
        return _worst([_describe_one(part, relation, grid) for part in event])
    return _describe_one(event, relation, grid)  # type: ignore[arg-type]


def _describe_one(event: Event, relation: dp_accounting.NeighboringRelation, grid: float) -> Run:
    match event:
        case PureDp(epsilon):
            return _pure(epsilon)
        case ApproximateDp(epsilon, delta):
            profile = randomised_response(epsilon, delta)
            return Run((profile, profile), None, None, math.inf if delta > 0 else epsilon)
        case RdpCurve(orders, epsilons):
            return _from_curve(np.array(orders), np.array(epsilons))
        case dp_accounting.DpEvent():
            return _from_event(event, relation, grid)
        case _:
            raise TypeError(
                f"event = {event!r} is not a statement about privacy: give a dp_accounting.DpEvent, an RdpCurve, a "
                "PureDp, an ApproximateDp, or a list of these"
            )


def _from_event(event: dp_accounting.DpEvent, relation: dp_accounting.NeighboringRelation, grid: float) -> Run:
    known = _dp_accounting.compose(event, relation, grid)
    pure = _dp_accounting.pure_epsilon(event)
    if known.remove is None or known.add is None:
        assert known.orders is not None  # compose() raises if it knows neither
        assert known.epsilons is not None
        run = _from_curve(known.orders, known.epsilons)
        return Run(run.profiles, run.orders, run.rdp, pure)
    if math.isfinite(pure):
        # The discretised losses of a pure mechanism keep a trace of infinite loss; its definition has none.
        exact = _pure(pure)
        remove = Infimum((known.remove, exact.profiles[0]))
        add = remove if known.add is known.remove else Infimum((known.add, exact.profiles[1]))
        orders, rdp = (exact.orders, exact.rdp) if known.orders is None else (known.orders, known.epsilons)
        return Run((remove, add), orders, rdp, pure)
    rdp_at = None if known.orders is None else lambda orders: _dp_accounting.rdp_at(event, relation, orders)
    return Run((known.remove, known.add), known.orders, known.epsilons, pure, rdp_at)


def _from_curve(orders: Floats, epsilons: Floats) -> Run:
    usable = np.isfinite(epsilons)
    profile = FromRdp(orders[usable], epsilons[usable])
    return Run((profile, profile), orders, epsilons, math.inf)


def _pure(epsilon: float) -> Run:
    """Randomised response, which dominates every ε-DP mechanism: its Rényi divergences in closed form."""
    orders = np.array(DEFAULT_ORDERS)
    log_p, log_q = -np.log1p(np.exp(-epsilon)), -np.log1p(np.exp(epsilon))
    rdp = np.logaddexp(orders * log_p + (1 - orders) * log_q, orders * log_q + (1 - orders) * log_p) / (orders - 1)
    profile = randomised_response(epsilon)
    return Run((profile, profile), orders, np.minimum(np.maximum(rdp, 0.0), epsilon), epsilon)


def _worst(runs: Sequence[Run]) -> Run:
    """A run that is at least as bad as each of several, at every ε, every order and in both directions."""
    if len(runs) == 1:
        return runs[0]
    remove = Supremum(tuple(run.profiles[0] for run in runs))
    add = remove if all(run.symmetric for run in runs) else Supremum(tuple(run.profiles[1] for run in runs))
    pure = max(run.pure for run in runs)
    curves = [(run.orders, run.rdp) for run in runs if run.orders is not None and run.rdp is not None]
    if len(curves) < len(runs):
        return Run((remove, add), None, None, pure)
    orders = np.unique(np.concatenate([alphas for alphas, _ in curves]))
    rdp = np.max([_at_orders(orders, alphas, values) for alphas, values in curves], axis=0)
    return Run((remove, add), orders, rdp, pure)


def _at_orders(wanted: Floats, orders: Floats, rdp: Floats) -> Floats:
    """An RDP curve at other orders, rounded up: the value at the next known order, infinite beyond the last."""
    position = np.searchsorted(orders, wanted, side="left")
    return np.append(rdp, np.inf)[position]


def epsilon_of_rdp(orders: Floats, rdp: Floats, delta: float) -> tuple[float, float]:
    """ε at δ of an RDP curve, by dp_accounting's conversion, and the order that attains it."""
    usable = np.isfinite(rdp)
    if not usable.any():
        return math.inf, math.nan
    epsilon, order = dp_accounting.rdp.compute_epsilon(orders[usable], rdp[usable], delta)
    return float(epsilon), float(order)
