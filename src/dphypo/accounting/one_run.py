"""What is known of the privacy of one run: its profile in both directions, its RDP curve, its pure ε."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import dp_accounting
import numpy as np

from dphypo.accounting import dp_library, subsampling
from dphypo.accounting.events import Event, canonical
from dphypo.accounting.own_events import DEFAULT_ORDERS, ApproximateDp, PureDp, RdpCurve, ideal
from dphypo.accounting.profiles import (
    Curve,
    FromRdp,
    Profile,
    epsilon_for,
    infimum,
    largest,
    randomised_response,
    supremum,
)
from dphypo.errors import UnaccountableError

ADD_OR_REMOVE_ONE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE


@dataclass(frozen=True, eq=False)
class Run:
    """One run, for every λ of the space.

    ``profiles`` holds the profiles of the two ordered pairs of neighbours ("remove": from D to D without a record;
    "add": the reverse); one profile serves for both when the run is symmetric. ``pure`` is the ε of pure DP, infinite
    where there is none, and ``curve`` the RDP curve, where there is one: it is computed when it is asked for.
    """

    profiles: tuple[Profile, Profile]
    pure: float
    make_curve: Callable[[], Curve | None] = field(default=lambda: None, repr=False)

    @cached_property
    def curve(self) -> Curve | None:
        """The RDP curve."""
        return self.make_curve()

    @property
    def symmetric(self) -> bool:
        """Whether both directions have the same profile."""
        return self.profiles[0] is self.profiles[1]

    @property
    def has_losses(self) -> bool:
        """Whether the profiles know more than the RDP curve."""
        return not all(isinstance(profile, FromRdp) for profile in self.profiles)

    def epsilons(self, delta: float) -> dict[str, float]:
        """ε of this run alone at δ: by its RDP curve ("rdp") and by its profile ("pld"), as far as they exist."""
        result = {}
        if self.curve is not None:
            result["rdp"] = self.curve.epsilon(delta)[0]
        if self.has_losses:
            result["pld"] = max(epsilon_for(profile, delta) for profile in self.profiles)
        return result


def describe(
    events: Sequence[Event], relation: dp_accounting.NeighboringRelation, grid: float = dp_library.DEFAULT_GRID
) -> Run:
    """What is known of a run whose event is one of several: one for each λ, or one for all; without any slack."""
    return _worst([_describe_one(ideal(canonical(event)), relation, grid) for event in events])


def check(events: Sequence[Event], relation: dp_accounting.NeighboringRelation) -> None:
    """Refuse events that no accountant knows, before anything is computed."""
    if not isinstance(relation, dp_accounting.NeighboringRelation):
        raise TypeError(f"relation = {relation!r} is not a dp_accounting.NeighboringRelation")
    if not events:
        raise ValueError("event = [] is not valid: give at least one event")
    for event in map(ideal, events):
        if isinstance(event, dp_accounting.DpEvent) and not dp_library.is_known(event, relation):
            raise _unaccountable(event, relation, "no accountant of dp_accounting knows it")


def _unaccountable(event: Event, relation: dp_accounting.NeighboringRelation, why: object) -> UnaccountableError:
    return UnaccountableError(
        f"the event {event!r} cannot be accounted under {relation.name}: {why}. State an event that dp_accounting "
        "supports, or an RdpCurve, a PureDp or an ApproximateDp"
    )


@lru_cache(maxsize=16)
def _describe_one(event: Event, relation: dp_accounting.NeighboringRelation, grid: float) -> Run:
    match event:
        case PureDp(epsilon):
            return _pure(epsilon)
        case ApproximateDp(epsilon, delta):
            profile = randomised_response(epsilon, delta)
            return Run((profile, profile), math.inf if delta > 0 else epsilon)
        case RdpCurve(orders, epsilons):
            return _from_curve(Curve(np.array(orders), np.array(epsilons)))
        case _:
            return _from_event(event, relation, grid)


def _from_event(event: dp_accounting.DpEvent, relation: dp_accounting.NeighboringRelation, grid: float) -> Run:
    pure = dp_library.pure_epsilon(event)
    try:
        remove, add = dp_library.losses(event, relation, grid)
    except dp_accounting.UnsupportedEventError as error:
        if isinstance(event, dp_accounting.PoissonSampledDpEvent) and relation is ADD_OR_REMOVE_ONE:
            return _subsampled(event, _describe_one(event.event, relation, grid))
        curve = dp_library.curve(event, relation)
        if curve is None:
            raise _unaccountable(event, relation, error) from None
        return _from_curve(curve)
    if math.isinf(pure):
        return Run((remove, add), pure, lambda: dp_library.curve(event, relation))
    # The discretised losses of a pure mechanism keep a trace of infinite loss; its definition has none.
    exact = _pure(pure)
    smaller = infimum((remove, exact.profiles[0]))
    other = smaller if add is remove else infimum((add, exact.profiles[1]))
    return Run((smaller, other), pure, lambda: dp_library.curve(event, relation) or exact.curve)


def _subsampled(event: dp_accounting.PoissonSampledDpEvent, run: Run) -> Run:
    """A whole run on one Poisson subsample of the records; dp_accounting's accountant knows single steps only."""
    rate = float(event.sampling_probability)
    if not 0 < rate < 1:
        return run if rate == 1 else _pure(0.0)
    remove, add = run.profiles
    profiles = subsampling.Removed(remove, rate), subsampling.Added(add, rate)
    return Run(profiles, subsampling.pure(run.pure, rate), lambda: dp_library.curve(event, ADD_OR_REMOVE_ONE))


def _from_curve(curve: Curve) -> Run:
    profile = curve.profile()
    return Run((profile, profile), math.inf, lambda: curve)


def _pure(epsilon: float) -> Run:
    """Randomised response, which dominates every ε-DP mechanism: its Rényi divergences in closed form.

    (α−1) D_α = log(cosh((α−½)ε) / cosh(ε/2)); for small arguments, log(1 + 2 sinh(αε/2) sinh((α−1)ε/2) / cosh(ε/2)).
    """
    orders = np.array(DEFAULT_ORDERS)
    large = np.logaddexp((orders - 0.5) * epsilon, (0.5 - orders) * epsilon) - np.logaddexp(epsilon / 2, -epsilon / 2)
    few = np.minimum(orders * epsilon, 1.0) / orders  # ε where αε is small, so that nothing overflows
    small = np.log1p(2 * np.sinh(orders * few / 2) * np.sinh((orders - 1) * few / 2) / np.cosh(few / 2))
    rdp = np.where(orders * epsilon < 1, small, large) / (orders - 1)
    profile = randomised_response(epsilon)
    curve = Curve(orders, np.minimum(rdp * (1 + 1e-12), epsilon))
    return Run((profile, profile), epsilon, lambda: curve)


def _worst(runs: Sequence[Run]) -> Run:
    """A run that is at least as bad as each of several, at every ε, every order and in both directions."""
    if len(runs) == 1:
        return runs[0]
    remove = supremum(run.profiles[0] for run in runs)
    add = remove if all(run.symmetric for run in runs) else supremum(run.profiles[1] for run in runs)

    def curve() -> Curve | None:
        known = [run.curve for run in runs if run.curve is not None]
        return largest(known) if len(known) == len(runs) else None

    return Run((remove, add), max(run.pure for run in runs), curve)
