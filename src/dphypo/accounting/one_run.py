"""The privacy of one run: its profile in both directions, its RDP curve, and its pure ε.

**Proposition D**, a run on one Poisson subsample of the records, of rate q. If (P, Q) dominates the run on what it is
given, the pair ((1−q)Q + qP, Q) dominates the whole. Its divergences are those of (P, Q) at another order:

    remove:  H_{e^ε}((1−q)Q + qP ‖ Q) = q H_{(e^ε − 1 + q)/q}(P ‖ Q),  or 1 − e^ε where that order is not positive;
    add:     H_{e^ε}(Q ‖ (1−q)Q + qP) = a H_{e^ε q/a}(Q ‖ P) with a = 1 − (1−q)e^ε,  or 0 where a is not positive.

The run may depend on the size of the subsample only as its own privacy allows. Proof: docs/theory/tools.md.

**Lemma (slack)**, what a run with rounded noise adds to that of its event, charged on the final δ. If on each of two
neighbours the release A is within total variation S of a release I that is (ε, δ)-DP, A is (ε, δ + (1 + e^ε)·S)-DP for
the two: A(E) ≤ I(E) + S ≤ e^ε I′(E) + δ + S ≤ e^ε (A′(E) + S) + δ + S.

S adds up over runs, since each can be coupled with its ideal given all that came before: ``count`` times the slack of
published runs, E[T] times that of a search (the sum of P[T ≥ j]), and for a record the slack of the terms that use it.
The slack of a run is the largest over λ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import dp_accounting
import numpy as np

from dphypo.accounting import dp_library, profiles
from dphypo.accounting.dp_library import Relation
from dphypo.accounting.events import ApproximateDp, Event, PureDp, RdpCurve, RoundedDp, canonical, ideal
from dphypo.accounting.profiles import Curve, Floats, Formula, RunProfile, epsilon_for, randomised_response
from dphypo.errors import UnaccountableError

ADD_OR_REMOVE_ONE = Relation.ADD_OR_REMOVE_ONE
# The orders of dp_accounting's RDP accountant reach from just above 1 to 1024; these do too.
DEFAULT_ORDERS = np.array([*(1 + x / 10.0 for x in range(1, 100)), *range(11, 64), 128, 256, 512, 1024])
_SLACK = 1e-12  # of a subsampled run, relative, on δ and on the order: for the rounding of exponentials and logarithms
_UP = 1 + 1e-12  # for the rounding of what slack adds up to
_SHARES = (1e-9, 1e-6, 1e-3, 0.1, 0.5)  # of δ that the slack may take; the first that is enough
_REFINED = 3


@dataclass(frozen=True, eq=False)
class OneRun:
    """One run, for every λ of the space.

    The profiles are those of the two ordered pairs of neighbours, "remove" (from D to D without a record) and "add"
    (the reverse): the same object twice when the run is symmetric.
    """

    profiles: tuple[RunProfile, RunProfile]
    pure: float  # the ε of pure DP, infinite where there is none
    make_curve: Callable[[], Curve | None] = field(default=lambda: None, repr=False)

    @cached_property
    def curve(self) -> Curve | None:
        """The RDP curve, if there is one; it is computed on first use."""
        return self.make_curve()

    @property
    def ways(self) -> list[tuple[RunProfile, RunProfile]]:
        """The profile of each direction, with that of the other; one direction if both are the same."""
        remove, add = self.profiles
        return [(remove, add)] if remove is add else [(remove, add), (add, remove)]

    @property
    def has_losses(self) -> bool:
        """Whether the profiles know more than the RDP curve."""
        return not all(isinstance(profile, Curve) for profile in self.profiles)

    def epsilons(self, delta: float) -> dict[str, float]:
        """ε of this run alone at δ: by its RDP curve ("rdp") and by its profile ("pld"), as far as they exist."""
        found = {} if self.curve is None else {"rdp": self.curve.epsilon(delta)[0]}
        if self.has_losses:
            found["pld"] = max(epsilon_for(profile, delta) for profile in self.profiles)
        return found


def read_events(event: Event | Sequence[Event], relation: Relation) -> tuple[Event, ...]:
    """One event or several in canonical form; one that no accountant supports is refused at once."""
    events = tuple(canonical(one) for one in (event if isinstance(event, (list, tuple)) else [event]))
    if not isinstance(relation, dp_accounting.NeighboringRelation):
        raise TypeError(f"relation = {relation!r} is not a dp_accounting.NeighboringRelation")
    if not events:
        raise ValueError("event = [] is not valid: give at least one event")
    for one in map(ideal, events):
        if isinstance(one, dp_accounting.DpEvent) and not dp_library.is_known(one, relation):
            raise _unaccountable(one, relation, "no accountant of dp_accounting supports it")
    return events


def describe(events: Sequence[Event], relation: Relation, grid: float = dp_library.DEFAULT_GRID) -> OneRun:
    """The privacy of a run whose event is one of these (one for each λ, or one for all), without its slack."""
    return _worst([_describe_one(ideal(canonical(event)), relation, grid) for event in events])


def _unaccountable(event: Event, relation: Relation, why: object) -> UnaccountableError:
    return UnaccountableError(
        f"the event {event!r} cannot be accounted under {relation.name}: {why}. State an event that dp_accounting "
        "supports, or an RdpCurve, a PureDp or an ApproximateDp"
    )


@lru_cache(maxsize=16)
def _describe_one(event: Event, relation: Relation, grid: float) -> OneRun:
    match event:
        case PureDp(epsilon):
            return _pure(epsilon)
        case ApproximateDp(epsilon, delta):
            profile = randomised_response(epsilon, delta)
            return OneRun((profile, profile), math.inf if delta > 0 else epsilon)
        case RdpCurve(orders, epsilons):
            curve = Curve(np.array(orders), np.array(epsilons))
            return OneRun((curve, curve), math.inf, lambda: curve)
    try:
        remove, add = dp_library.losses(event, relation, grid)
    except dp_accounting.UnsupportedEventError as error:
        if isinstance(event, dp_accounting.PoissonSampledDpEvent) and relation is ADD_OR_REMOVE_ONE:
            return _subsampled(event, _describe_one(event.event, relation, grid))
        if (known := dp_library.curve(event, relation)) is None:
            raise _unaccountable(event, relation, error) from None
        return OneRun((known, known), math.inf, lambda: known)
    # The pure ε of an event is that of a record added or removed; a replaced one may count twice.
    pure = dp_library.pure_epsilon(event)
    if math.isinf(pure) or (pure > 0 and relation is not ADD_OR_REMOVE_ONE):
        return OneRun((remove, add), math.inf, lambda: dp_library.curve(event, relation))
    # The discretised losses of a pure mechanism keep a trace of infinite loss; its definition has none.
    exact = _pure(pure)
    smaller = profiles.infimum((remove, exact.profiles[0]))
    other = smaller if add is remove else profiles.infimum((add, exact.profiles[1]))
    return OneRun((smaller, other), pure, lambda: dp_library.curve(event, relation) or exact.curve)


def _subsampled(event: dp_accounting.PoissonSampledDpEvent, run: OneRun) -> OneRun:
    """A whole run on one Poisson subsample of the records; dp_accounting's accountant knows single steps only."""
    rate = float(event.sampling_probability)
    if not 0 < rate < 1:
        return run if rate == 1 else _pure(0.0)
    # ε of the whole where the run is ε-DP: log(1 + q(e^ε − 1)).
    pure = run.pure if math.isinf(run.pure) else float(np.logaddexp(math.log1p(-rate), math.log(rate) + run.pure))
    both = removed(run.profiles[0], rate), added(run.profiles[1], rate)
    return OneRun(both, pure, lambda: dp_library.curve(event, ADD_OR_REMOVE_ONE))


def _pure(epsilon: float) -> OneRun:
    """Randomised response, which dominates every ε-DP mechanism: its Rényi divergences in closed form.

    (α−1) D_α = log(cosh((α−½)ε) / cosh(ε/2)); for small arguments, log(1 + 2 sinh(αε/2) sinh((α−1)ε/2) / cosh(ε/2)).
    """
    orders = DEFAULT_ORDERS
    large = np.logaddexp((orders - 0.5) * epsilon, (0.5 - orders) * epsilon) - np.logaddexp(epsilon / 2, -epsilon / 2)
    few = np.minimum(orders * epsilon, 1.0) / orders  # ε where αε is small, so that nothing overflows
    small = np.log1p(2 * np.sinh(orders * few / 2) * np.sinh((orders - 1) * few / 2) / np.cosh(few / 2))
    rdp = np.where(orders * epsilon < 1, small, large) / (orders - 1)
    profile = randomised_response(epsilon)
    curve = Curve(orders, np.minimum(rdp * (1 + 1e-12), epsilon))
    return OneRun((profile, profile), epsilon, lambda: curve)


def _worst(runs: Sequence[OneRun]) -> OneRun:
    """A run that is at least as bad as each of several, at every ε, every order and in both directions."""
    if len(runs) == 1:
        return runs[0]
    remove = profiles.supremum(run.profiles[0] for run in runs)
    add = remove if all(len(run.ways) == 1 for run in runs) else profiles.supremum(run.profiles[1] for run in runs)

    def curve() -> Curve | None:
        known = [run.curve for run in runs if run.curve is not None]
        return profiles.largest(known) if len(known) == len(runs) else None

    return OneRun((remove, add), max(run.pure for run in runs), curve)


def removed(inner: RunProfile, rate: float) -> Formula:
    """The profile from the records with x to those without, for a run on one subsample, whose own is ``inner``."""
    low = math.log1p(-rate)

    def deltas(eps: Floats) -> Floats:
        share = -np.expm1(np.minimum(low - eps, 1.0))  # 1 − (1−q)e^(−ε); the order is e^ε/q times it
        order = eps - math.log(rate) + np.log(np.maximum(share, 1e-300))
        smaller = rate * inner.delta(order - _SLACK * (1 + np.abs(order)))
        certain = -np.expm1(np.minimum(eps, 0.0))
        # For ε < 0 the order is a difference of numbers near 1, which rounds absolutely.
        value = np.where(share > 0, np.maximum(smaller, certain) + np.where(eps < 0, 1e-15, 0.0), certain)
        return np.minimum(value * (1 + _SLACK), 1.0)

    return Formula(low, float(np.logaddexp(low, math.log(rate) + inner.top)), deltas)


def added(inner: RunProfile, rate: float) -> Formula:
    """The profile from the records without x to those with it. Its losses are at most log(1/(1−q))."""
    high = -math.log1p(-rate)

    def deltas(eps: Floats) -> Floats:
        share = -np.expm1(np.minimum(eps - high, 0.0))  # a
        order = eps + math.log(rate) - np.log(np.maximum(share, 1e-300))
        smaller = share * inner.delta(order - _SLACK * (1 + np.abs(order)))
        return np.minimum(np.where(share > 0, smaller * (1 + _SLACK) + 1e-15, 0.0), 1.0)

    return Formula(inner.bottom - float(np.logaddexp(math.log(rate), inner.bottom - high)), high, deltas)


def largest_slack(events: Iterable[Event]) -> float:
    """The slack of a run whose event is one of these."""
    return max(event.slack if isinstance(event, RoundedDp) else 0.0 for event in events)


def total_slack(runs: float, slack: float) -> float:
    """The slack of this many runs, or this many on average, rounded up."""
    return runs * slack * _UP


def charge_slack(epsilons: Callable[[float], dict[str, float]], delta: float, slack: float) -> dict[str, float]:
    """ε at δ by each bound, where ``epsilons`` gives it for runs without slack. The smallest is found most exactly.

    >>> charge_slack(lambda delta: {"one": 2.0, "two": 40.0}, 1e-6, 1e-16)
    {'one': 2.0, 'two': inf}
    """
    if slack == 0:
        return epsilons(delta)
    settled: dict[str, float] = {}

    def settle(rest: float) -> bool:
        # delta − rest is exact: rest is at least half of delta.
        for name, epsilon in epsilons(rest).items():
            fits = _charged(epsilon, slack) <= delta - rest
            settled[name] = min(epsilon if fits else math.inf, settled.get(name, math.inf))
        return min(settled.values()) < math.inf

    share = next((share for share in _SHARES if settle(delta - share * delta)), 0.0)
    for _ in range(_REFINED if share > _SHARES[1] else 0):  # a slack that matters: give up no more than it takes
        settle(math.nextafter(delta - _charged(min(settled.values()), slack), 0.0))
    if max(settled.values()) == math.inf:
        settle(delta - _SHARES[-1] * delta)
    return settled


def add_slack(epsilons: Floats, deltas: Floats, slack: float) -> Floats:
    """δ at increasing ε, from that of runs without slack."""
    if slack == 0:
        return deltas
    more = np.array([_charged(float(epsilon), slack) for epsilon in epsilons])
    return np.asarray(np.minimum.accumulate(np.minimum(_UP * (deltas + more), 1.0)))


def _charged(epsilon: float, slack: float) -> float:
    return (1 + math.exp(epsilon)) * slack * _UP if epsilon < 700 else math.inf
