"""The guarantee of a whole search: a pure function of public values, known before anything runs."""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from dphypo import _validate
from dphypo.accounting import dp_library, one_run
from dphypo.accounting.dp_library import Relation, to_pld
from dphypo.accounting.events import Event
from dphypo.accounting.one_run import ADD_OR_REMOVE_ONE, OneRun, describe, read_events
from dphypo.accounting.profiles import Curve, Floats, Profile, epsilon_for, infimum, largest
from dphypo.accounting.theorems import theorem1_2_paper
from dphypo.accounting.theorems.theorem3_renyi import renyi
from dphypo.accounting.theorems.theorem4_profile import SearchProfile
from dphypo.accounting.theorems.theorem_h_history_only import HistoryProfile
from dphypo.band import Band
from dphypo.band.band import BandLike
from dphypo.laws import Law

if TYPE_CHECKING:
    from dphypo.accounting.certificate import Certificate
    from dphypo.accounting.composition import Composition, Releases

UNIFORM = Band(1.0, 1.0)


class PolicyClass(enum.Enum):
    """What the search rule may see. The less it sees, the smaller ε is."""

    ANYTHING = "anything"
    HISTORY = "history"


def account(
    event: Event | Sequence[Event],
    runs: Law,
    band: BandLike = UNIFORM,
    *,
    relation: Relation = ADD_OR_REMOVE_ONE,
    grid: float = dp_library.DEFAULT_GRID,
    policy: PolicyClass | str = PolicyClass.ANYTHING,
    first_from_prior: int = 0,
) -> Guarantee:
    """The privacy guarantee of a search: T runs, T from ``runs``, every density within ``band``, the best released.

    Formal guarantee: for every sampling policy that keeps the band, adaptive or not, and even one that knows the data
    and T, the released (model, λ, score) is (ε, δ)-DP for every δ with ε = ``epsilon(delta)``, provided that T is
    drawn independently of the data, that given its λ each run is independent of the others, and that each run
    satisfies ``event`` for every λ. With ``policy="history"`` it holds for policies that see only the earlier
    (λ, outcome), under the conditions that the certificate lists; they cost less.

    Args:
        event: what is known about one run: a ``dp_accounting.DpEvent``, an ``RdpCurve``, a ``PureDp`` or an
            ``ApproximateDp``; a ``RoundedDp`` of one of these, if its arithmetic is exact; or a list of these, if the
            privacy of a run depends on λ (the worst counts).
        runs: the law of T.
        band: the band, a ``Band`` or its two numbers (c, C); uniform search when left out.
        relation: which data sets are neighbours.
        grid: spacing of the privacy-loss grid. A finer grid is slower and rounds up by less.
        policy: what the search rule may see: ``"anything"``, including the data and T, or ``"history"``.
        first_from_prior: the number of first runs that are drawn exactly from the prior.

    >>> import dp_accounting
    >>> from dphypo.laws import Geometric
    >>> run = dp_accounting.SelfComposedDpEvent(
    ...     dp_accounting.PoissonSampledDpEvent(256 / 60_000, dp_accounting.GaussianDpEvent(0.71)), 2344)
    >>> guarantee = account(run, Geometric(mean=100), Band(0.75, 2))
    >>> round(guarantee.epsilon(1e-5), 2), guarantee.bound(1e-5)
    (6.94, 'profile')
    """
    law: object = runs
    if not isinstance(law, Law):
        remedy = "give, for example, dphypo.Geometric(mean=10), or list probabilities: dphypo.Pmf({1: 0.2, 8: 0.8})"
        raise TypeError(f"runs = {runs!r} is not a law of T: {remedy}")
    events = read_events(event, relation)
    policy = _validate.choice(PolicyClass, policy=policy)
    first_from_prior = _validate.integer(at_least=0, first_from_prior=first_from_prior)
    grid = _validate.positive(grid=grid)
    return _remembered(events, runs, Band.of(band), relation, grid, policy, first_from_prior)


class Accounted(ABC):
    """The methods that the guarantees of one release and of several share."""

    @abstractmethod
    def bounds(self, delta: float) -> dict[str, float]:
        """ε at δ by every bound that applies."""

    def bound(self, delta: float) -> str:
        """The name of the smallest bound, which ``epsilon`` reports."""
        bounds = self.bounds(delta)
        return min(bounds, key=bounds.__getitem__)

    def compose(self, *others: Releases | Composition) -> Composition:
        """The joint guarantee of this and further releases from the same data; each may look at earlier ones."""
        from dphypo.accounting.composition import Composition

        return Composition.of(cast(Any, self), *others)

    def certificate(self, delta: float, **public: object) -> Certificate:
        """A document of public values from which anyone can recompute ε at δ."""
        from dphypo.accounting.certificate import issue

        return issue(self.compose(), delta, public)


@dataclass(frozen=True, eq=False)
class Guarantee(Accounted):
    """The privacy of a search that releases its best run. :func:`account` makes it; every number is an upper bound."""

    events: tuple[Event, ...]
    runs: Law
    band: Band
    relation: Relation
    grid: float
    policy: PolicyClass = PolicyClass.ANYTHING
    first_from_prior: int = 0
    _known: dict[float, dict[str, float]] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def slack(self) -> float:
        """The total variation between the whole search and one with exactly these events: that of E[T] runs."""
        return one_run.total_slack(self.runs.mean, one_run.largest_slack(self.events))

    @cached_property
    def run(self) -> OneRun:
        """The privacy of one run, without its slack."""
        return describe(self.events, self.relation, self.grid)

    def epsilon(self, delta: float) -> float:
        """The smallest ε that any of the bounds proves at this δ."""
        return min(self.bounds(delta).values())

    def bounds(self, delta: float) -> dict[str, float]:
        """ε at δ by every bound that applies.

        They are "paper" (Theorems 1 and 2), "renyi" (3 and 3b), "profile" (4), "prior start" (4′, if the first runs
        come from the prior) and "history" (H, for policies that see only the history).
        """
        return one_run.charge_slack(self._bounds, _validate.delta(delta=delta), self.slack)

    def _bounds(self, delta: float) -> dict[str, float]:
        if delta not in self._known:
            found = {}
            if (by_paper := theorem1_2_paper.epsilon(self.run, self.runs, self.band, delta)) is not None:
                found["paper"] = by_paper
            if self._renyi is not None:
                found["renyi"] = self._renyi.epsilon(delta)[0]
            self._known[delta] = found | self._profile_bounds(delta)
        self._warn_of_the_last_order(self._known[delta], delta)
        return dict(self._known[delta])

    def sharpest_epsilon(self, delta: float) -> float:
        """ε at δ by the bounds on profiles: Theorem 4 and those of :attr:`sharper`."""
        return min(one_run.charge_slack(self._profile_bounds, delta, self.slack).values())

    def _profile_bounds(self, delta: float) -> dict[str, float]:
        sharper = {name: _epsilon(profiles, delta) for name, profiles in self.sharper.items()}
        return {"profile": self._by_profile(delta), **sharper}

    def delta(self, epsilon: float) -> float:
        """The smallest δ that any of the bounds proves at this ε ≥ 0."""
        at = np.array([_validate.non_negative(epsilon=epsilon)])
        found = [self._profile_deltas(at), *(curve.delta(at) for curve in self._curves)]
        if at >= self.pure:
            found.append(np.zeros(1))
        return float(one_run.add_slack(at, np.min(found, axis=0), self.slack)[0])

    def rdp(self, alpha: npt.ArrayLike) -> Floats:
        """ε(α) of the search at orders α > 1, by the smallest of Theorems 1, 3 and 3b; infinite where none is known.

        It is that of a search without slack, which no Rényi divergence covers: :attr:`slack` comes on top.
        Between the orders of the run's own curve the value at the next larger one is given.
        """
        wanted = np.asarray(alpha, dtype=np.float64)
        if not np.all(wanted > 1):
            raise _validate.fail("alpha", alpha, "Rényi orders of a search must be greater than 1")
        if not self._curves:
            return np.full(wanted.shape, np.inf)
        return np.asarray(np.min([curve.round_up(wanted) for curve in self._curves], axis=0))

    def profile(self, points: int = 200) -> tuple[Floats, Floats]:
        """A curve for plotting: ε from 0 to where δ falls no further, and δ there by Theorem 4 or a sharper one."""
        return self.compose().profile(points)

    @cached_property
    def last(self) -> float:
        """The ε at which a curve for plotting ends."""
        return self._by_profile(max(1e-12, 1.01 * self._rest))

    @property
    def _rest(self) -> float:
        """The δ that is left by Theorem 4 at any ε."""
        return max(float(search.delta(search.top)) for search in self.searches)

    def deltas(self, epsilons: Floats) -> Floats:
        """δ at increasing ε, by Theorem 4 or a sharper one."""
        return one_run.add_slack(epsilons, self._profile_deltas(epsilons), self.slack)

    def _profile_deltas(self, epsilons: Floats) -> Floats:
        bounds = (self.searches, *self.sharper.values())
        found = [np.max([one.delta(epsilons) for one in both], axis=0) for both in bounds]
        return np.asarray(np.min(found, axis=0))

    def one_run(self, delta: float) -> dict[str, float]:
        """ε of one run alone, by its RDP curve and by its privacy loss distribution: what is usually reported."""
        return self.compose().one_run(delta)

    @cached_property
    def pld(self) -> PrivacyLossDistribution:
        """A dp_accounting privacy loss distribution that dominates this search without its :attr:`slack`."""
        return to_pld(self.searches, self.grid, list(self.sharper.values()))

    @cached_property
    def searches(self) -> tuple[SearchProfile, ...]:
        """Theorem 4 in each direction of the neighbouring relation (one serves for both if the run is symmetric)."""
        return tuple(SearchProfile(*way, self.runs, self.band) for way in self.run.ways)

    @cached_property
    def sharper(self) -> dict[str, tuple[Profile, ...]]:
        """The bounds that hold for some policies only, by name, each in the directions of :attr:`searches`.

        If the band contains only the prior, a policy has no choice, and Theorem 4 is the smallest.
        """
        of, first = (self.runs, self.band), self.first_from_prior
        found: dict[str, tuple[SearchProfile | HistoryProfile, ...]] = {}
        if first and self.band.c < self.band.C:
            found["prior start"] = tuple(SearchProfile(*way, *of, first) for way in self.run.ways)
        if self.policy is PolicyClass.HISTORY and self.band.c < self.band.C:
            found["history"] = tuple(HistoryProfile(*way, *of, first) for way in self.run.ways)
        return {name: both for name, both in found.items() if all(one.exists for one in both)}

    def _by_profile(self, delta: float) -> float:
        """Theorem 4 without slack.

        A loss distribution has a trace of infinite loss, which E[T] runs multiply. Where that is a tenth of δ or more,
        the run's profile is taken as the smaller of that distribution's and its RDP curve's, which has no such trace.
        """
        epsilon = min(_epsilon(self.searches, delta), self._pure_by_profile)
        if self._rest > 0.1 * delta and self.run.has_losses and self.run.curve is not None:
            epsilon = min(epsilon, _epsilon(self._searches_by_both, delta))
        return epsilon

    @cached_property
    def pure(self) -> float:
        """The smallest ε that a bound proves at δ = 0, without slack; infinite if none does."""
        return min(theorem1_2_paper.pure_epsilon(self.run, self.runs, self.band), self._pure_by_profile)

    @cached_property
    def _pure_by_profile(self) -> float:
        """Theorem 4 at δ = 0, for runs that are ε₀-DP: ε₀ + L + max log(g/g(τ))."""
        if math.isinf(self.run.pure):
            return math.inf
        shift = max(0.0, *(search.phi.largest_shift for search in self.searches))
        return (self.run.pure + self.band.log_ratio + shift) * (1 + 1e-9)

    @cached_property
    def _searches_by_both(self) -> tuple[SearchProfile, ...]:
        assert self.run.curve is not None
        ways = ([infimum((profile, self.run.curve)) for profile in way] for way in self.run.ways)
        return tuple(SearchProfile(forward, reverse, self.runs, self.band) for forward, reverse in ways)

    @cached_property
    def _renyi(self) -> Curve | None:
        """Theorems 3 and 3b: the larger of both directions."""
        if self.run.curve is None:
            return None
        zero = float(self.runs.pgf(0.0))
        return largest([renyi(self.run.curve, search.phi, self.band, zero) for search in self.searches])

    @cached_property
    def _curves(self) -> list[Curve]:
        """The RDP curves of the search that apply."""
        curves = (self._renyi, theorem1_2_paper.renyi_curve(self.run, self.runs, self.band))
        return [curve for curve in curves if curve is not None and np.isfinite(curve.epsilons).any()]

    def _warn_of_the_last_order(self, found: dict[str, float], delta: float) -> None:
        if self._renyi is None or self.run.curve is None or self.run.curve.at is not None:
            return  # no curve, or one whose orders the user cannot add to
        epsilon, order = self._renyi.epsilon(delta)
        if 0 < epsilon <= min(found.values()) and order == self._renyi.orders[-1]:
            why = f"the best Rényi order is the largest one given, {order:g}"
            _validate.warn(f"{why}: with larger orders in the RdpCurve, ε would be smaller")


_remembered = lru_cache(maxsize=32)(Guarantee)  # what is computed from equal values is computed once


def _epsilon(searches: Sequence[Profile], delta: float) -> float:
    """ε at δ by one bound: the larger of both directions."""
    epsilon = 0.0
    for search in searches:
        if not float(search.delta(epsilon)) <= delta:
            epsilon = max(epsilon, epsilon_for(search, delta))
            if math.isinf(epsilon):
                break
    return epsilon
