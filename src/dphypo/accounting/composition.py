"""The guarantee of several releases from the same records, each free to look at what was published before it.

A *term* is a mechanism (a search that releases its best run, or runs that are all published) together with the side
whose records it reads. Each term has a dominating pair, whatever was published before it, so all together are dominated
by the product of the pairs: the adaptive composition of privacy loss distributions, direction by direction (Zhu, Dong
and Wang 2022). Which terms use a record depends on its sides: Proposition G.
Runs that are all published may each be at any setting: k of them are the k-fold product of the pointwise supremum.

Runs that train on one side and score on the other are two terms. Where a record is **replaced**, a search is **one**
term, whose event composes both: two searches, one for each part, can cost less (tests/docs/test_counterexamples.py).
Proofs: docs/theory/surveys.md.

**Sides.** A side is the set of records that a stated rule, a *split*, assigns to a mechanism. Two splits are the same
if one call made them, or if nothing says of which records they are and everything stated about them is equal.

**Proposition G.** If neighbours differ by one record that is added, removed, or blanked, all terms together cost the
**maximum, over all combinations of parts, of the composition of the terms that read such a record**. A term that states
no side reads all records. If the record is replaced by another, it may leave a side and enter another: **all compose**.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from dphypo import _validate
from dphypo.accounting import dp_library, one_run
from dphypo.accounting.dp_library import Relation, to_pld
from dphypo.accounting.events import Event
from dphypo.accounting.guarantee import Accounted, Guarantee
from dphypo.accounting.one_run import ADD_OR_REMOVE_ONE, OneRun, describe, read_events
from dphypo.accounting.profiles import Discrete, Floats, epsilon_for, round_epsilon, show_epsilon
from dphypo.errors import UnreachableError

REPLACE_ONE = Relation.REPLACE_ONE
BY_PERSON = "the key of a person"
"""What a split by persons hashes."""
_MOST_SPLITS = 6  # with more, everything is composed: the number of combinations doubles with each


class Role(StrEnum):
    """The two parts of a split, by what their records are usually for."""

    TRAINING = "training"
    SCORING = "scoring"


@dataclass(frozen=True)
class Split:
    """A rule that assigns each record to one of two sides by that record alone: not by its position, nor by others.

    Args:
        how: how the side of a record is decided, in words. ``split_by_hash`` fills in this and the rest.
        hashed: which values of a record decide; another form of the data set has other values.
        share: about how much is set apart for scoring.
        key: SHA-256 of the key, in hexadecimal.
        data: the public name of the data set, where several are used together.
        of: a random name of one call of ``split_by_hash``, or of one document; it is never written down. Splits of
            different records differ, whatever else they state.

    >>> by_number, by_key = Split("patients whose number ends in 9 score").sides, Split("hash", key="ab").sides
    >>> by_number.training.apart_from(by_number.scoring), by_number.training.apart_from(by_key.scoring)
    (True, False)
    """

    how: str
    hashed: str = ""
    share: float | None = None
    key: str = ""
    data: str = ""
    of: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for name in ("how", "hashed", "key", "data"):
            _validate.line(least=1 if name == "how" else 0, most=_validate.LONGEST_NAME, **{name: getattr(self, name)})
        if self.share is not None:
            object.__setattr__(self, "share", _validate.within(0.0, 1.0, share=self.share))

    @property
    def sides(self) -> Sides:
        """The records that train and those that score."""
        return Sides(EVERYONE.inside(self, Role.TRAINING), EVERYONE.inside(self, Role.SCORING))

    def to_json(self) -> dict[str, Any]:
        """The split as JSON; documents call ``how`` "rule"."""
        stated = {"rule": self.how, "hashed": self.hashed, "share": self.share, "key": self.key, "data": self.data}
        return {name: value for name, value in stated.items() if value not in ("", None)}

    @classmethod
    def from_json(cls, stated: Mapping[str, Any]) -> Split:
        """The split that :meth:`to_json` wrote."""
        given = dict(stated)
        return cls(given.pop("rule"), **given)


@dataclass(frozen=True)
class Side:
    """The records that are on the stated part of every stated split; without any, all records."""

    conditions: frozenset[tuple[Split, Role]] = frozenset()

    def __post_init__(self) -> None:
        if len({split for split, _ in self.conditions}) < len(self.conditions):
            raise ValueError(
                f"{self} is not a side: it names both parts of one split, which have no record in common, so nothing "
                "would be charged. To split records that were split before, give another key="
            )

    def __str__(self) -> str:
        parts = sorted(f"{part.value} of {split.how!r}" for split, part in self.conditions)
        return " and ".join(parts) or "all records"

    def inside(self, split: Split, part: Role) -> Side:
        """The side of those of these records that are on one part of a split."""
        return Side(self.conditions | {(split, Role(part))})

    def apart_from(self, other: Side) -> bool:
        """Whether no record can be on both sides: some split puts them on different parts."""
        splits = {split for split, _ in self.conditions}
        return any((split, part) not in self.conditions for split, part in other.conditions if split in splits)

    def of_records(self, name: str) -> Side:
        """The same, where splits by a hash of values are of the records with this name (:attr:`Split.of`)."""
        named = ((replace(split, of=name) if split.key else split, part) for split, part in self.conditions)
        return Side(frozenset(named))

    def to_json(self) -> list[dict[str, Any]]:
        """The conditions; an empty list is all records."""
        return sorted(({"part": part.value, "split": split.to_json()} for split, part in self.conditions), key=repr)

    @classmethod
    def from_json(cls, conditions: Sequence[Mapping[str, Any]]) -> Side:
        """The side that :meth:`to_json` wrote."""
        return cls(frozenset((Split.from_json(one["split"]), Role(one["part"])) for one in conditions))


EVERYONE = Side()
"""All records."""


@dataclass(frozen=True)
class Sides:
    """The records that train and the records that score. No record can be among both."""

    training: Side
    scoring: Side

    def __post_init__(self) -> None:
        if not self.training.apart_from(self.scoring):
            raise ValueError(
                f"training = {self.training} and scoring = {self.scoring} are not two sides: a record may be on both"
            )

    @property
    def keep_persons_apart(self) -> bool:
        """Whether no person can be on both. A hash of each row may put some rows of a person on either side."""
        training, scoring = (
            frozenset(one for one in side.conditions if one[0].hashed == BY_PERSON or not one[0].key)
            for side in (self.training, self.scoring)
        )
        return Side(training).apart_from(Side(scoring))


def read_sides(split: Sides | Split | str | None) -> Sides | None:
    """The sides that ``split`` states; None for None and for "same", where one record may train and score."""
    given: object = split
    if given is None or (isinstance(given, str) and given == "same"):
        return None
    if isinstance(given, (Split, Sides)):
        return given.sides if isinstance(given, Split) else given
    remedy = (
        "state the rule that separates the records: the parts of split_by_hash carry it, and dphypo.Split(how) states "
        'your own, which must depend on each record alone. If a record may both train and score, give "same"'
    )
    raise _validate.fail("split", given, remedy)


@dataclass(frozen=True, eq=False)
class PublishedRuns:
    """``count`` runs, each with one of ``events``, whose results are all published."""

    events: tuple[Event, ...]
    count: int
    relation: Relation
    grid: float

    @cached_property
    def slack(self) -> float:
        """The total variation between all the runs together and their events."""
        return one_run.total_slack(self.count, one_run.largest_slack(self.events))

    @cached_property
    def run(self) -> OneRun:
        """The privacy of one of the runs."""
        return describe(self.events, self.relation, self.grid)

    def rdp(self, alpha: npt.ArrayLike) -> Floats:
        """ε(α) of all the runs together without their slack, at orders α > 1; infinite where none is known."""
        wanted = np.asarray(alpha, dtype=np.float64)
        return np.full(wanted.shape, np.inf) if self.run.curve is None else self.count * self.run.curve.round_up(wanted)

    @cached_property
    def pld(self) -> PrivacyLossDistribution:
        """A privacy loss distribution that dominates all the runs together, without their slack."""
        return dp_library.repeat(to_pld([forward for forward, _ in self.run.ways], self.grid), self.count)


def account_published(
    event: Event | Sequence[Event],
    count: int,
    *,
    relation: Relation = ADD_OR_REMOVE_ONE,
    grid: float = dp_library.DEFAULT_GRID,
) -> PublishedRuns:
    """``count`` runs whose results are all published, to be composed with others. Every declared run is paid for.

    ``event`` is that of one run, or a list if the privacy of a run depends on λ (the pointwise worst counts).
    """
    events, count = read_events(event, relation), _validate.integer(at_least=1, count=count)
    return _published(events, count, relation, _validate.positive(grid=grid))


_published = lru_cache(maxsize=32)(PublishedRuns)  # what is computed from equal values is computed once
Releases: TypeAlias = Guarantee | PublishedRuns
"""The releases that a term pays for: a search that releases its best run, or runs that are all published."""


@dataclass(frozen=True, eq=False)
class Term:
    """A mechanism, and the side whose records it reads; by default all records."""

    releases: Releases
    side: Side = EVERYONE
    scores: bool = False  # whether it is what the scores of another term's runs cost
    counts: bool = False  # whether it is a noisy count of the records that fit


@dataclass(frozen=True, eq=False)
class Composition(Accounted):
    """The guarantee of all that is released. Every number is an upper bound, known before anything runs.

    >>> from dp_accounting import GaussianDpEvent
    >>> from dphypo.accounting import Split
    >>> survey, last = account_published(GaussianDpEvent(40.0), 20), account_published(GaussianDpEvent(4.0), 1)
    >>> scores = account_published(GaussianDpEvent(20.0), 20)
    >>> sides = Split("records whose number is a multiple of five score").sides
    >>> plan = Composition((Term(survey, sides.training), Term(scores, sides.scoring), Term(last, sides.training)))
    >>> round(plan.epsilon(1e-6), 2), {part: round(cost, 2) for part, cost in plan.costs(1e-6).items()}
    (1.17, {'training': 1.17, 'scoring': 0.94})
    """

    terms: tuple[Term, ...]

    def __post_init__(self) -> None:
        if not self.terms:
            raise _validate.fail("terms", self.terms, "give at least one")
        names = ", ".join(sorted({term.releases.relation.name for term in self.terms}))
        if names != self.relation.name:
            raise ValueError(
                f"parts under different neighbouring relations ({names}) do not compose: give one relation"
            )
        if len({term.releases.grid for term in self.terms}) != 1:
            raise ValueError("parts accounted on different grids do not compose: give one grid for all")
        half = any(isinstance(term.releases, Guarantee) and term.side != EVERYONE for term in self.terms)
        if half and self.relation is REPLACE_ONE:
            raise ValueError(
                "under REPLACE_ONE a search reads all records: one may leave training and enter scoring of a run, so "
                "give one search whose event composes both, as a term that states no side"
            )

    @classmethod
    def of(cls, *releases: Releases | Composition) -> Composition:
        """All of these together; what states no side reads all records."""
        terms = (one.terms if isinstance(one, Composition) else (Term(one),) for one in releases)
        return cls(tuple(itertools.chain.from_iterable(terms)))

    @property
    def relation(self) -> Relation:
        """The neighbouring relation."""
        return self.terms[0].releases.relation

    def epsilon(self, delta: float) -> float:
        """ε of all that is released together at this δ."""
        return max(self.costs(delta).values())

    def check_total(self, epsilon: float, delta: float) -> None:
        """Refuse parts that would be certified with more than the total ε that was asked for.

        Every search that is asked for a total calls this before its first run.
        """
        if (certified := round_epsilon(self.epsilon(delta))) > epsilon:
            raise UnreachableError(
                f"epsilon = {epsilon:g} at delta = {delta:g} was asked for, and the declared parts would cost "
                f"{show_epsilon(certified)}: nothing was run. Add noise to a part, run fewer times, or ask for a "
                "larger epsilon"
            )

    def delta(self, epsilon: float) -> float:
        """δ of all that is released together at this ε ≥ 0."""
        epsilon = _validate.non_negative(epsilon=epsilon)
        return max(_together(charged).delta(epsilon) for charged in self.charged.values())

    def costs(self, delta: float) -> dict[str, float]:
        """ε at δ for a record in each largest combination of parts, by name."""
        delta = _validate.delta(delta=delta)
        return {name: _together(charged).epsilon(delta) for name, charged in self.charged.items()}

    def cost(self, side: Side, delta: float) -> float:
        """ε at δ for records of a side: the largest, over the combinations of parts that they may be on."""
        delta = _validate.delta(delta=delta)
        found = [
            charged for parts, charged in self._combinations.items() if not side.apart_from(Side(frozenset(parts)))
        ]
        return max((_together(charged).epsilon(delta) for charged in found), default=0.0)

    def bounds(self, delta: float) -> dict[str, float]:
        """ε at δ by every bound that applies: those of the search, if there is one and nothing else."""
        only = self.terms[0].releases
        if len(self.terms) == 1 and isinstance(only, Guarantee):
            return only.bounds(delta)
        return {"composition": self.epsilon(delta)}

    @property
    def slack(self) -> float:
        """The largest total variation between everything that uses one record and the stated events."""
        return max(one_run.total_slack(1, math.fsum(one.slack for one in charged)) for charged in self.charged.values())

    def one_run(self, delta: float) -> dict[str, float]:
        """ε of one run of the last part alone: what is usually reported."""
        trained = tuple(term for term in self.terms if not term.scores and not term.counts)
        last = (trained or self.terms)[-1].releases
        return one_run.charge_slack(last.run.epsilons, _validate.delta(delta=delta), one_run.largest_slack(last.events))

    def rdp(self, alpha: npt.ArrayLike) -> Floats:
        """ε(α) without slack: the largest, over the combinations of parts, of what uses a record."""
        sums = [np.sum([one.rdp(alpha) for one in charged], axis=0) for charged in self.charged.values()]
        return np.asarray(np.max(sums, axis=0))

    def profile(self, points: int = 200) -> tuple[Floats, Floats]:
        """A curve for plotting: ε from 0 to where δ has fallen to 1e-11 or falls no further, and δ at each."""
        charged = [_together(one) for one in self.charged.values()]
        top = max(one.last for one in charged)
        return np.linspace(0.0, top, points), np.max([_curve(one, top, points) for one in charged], axis=0)

    @cached_property
    def charged(self) -> dict[str, tuple[Releases, ...]]:
        """By name, the releases that use a record, for each largest combination of parts; of equal ones, the first."""
        found: dict[tuple[Releases, ...], set[tuple[Split, Role]]] = {}
        for parts, charged in self._combinations.items():
            counted = Counter(charged)
            if charged not in found and not any(counted < Counter(other) for other in self._combinations.values()):
                found[charged] = set(parts)
        shared = set.intersection(*found.values()) if len(found) > 1 else set()
        splits = list(dict.fromkeys(split for parts in found.values() for split, _ in _in_order(parts - shared)))
        return {_name(parts - shared, splits): charged for charged, parts in found.items()}

    @cached_property
    def _combinations(self) -> dict[tuple[tuple[Split, Role], ...], tuple[Releases, ...]]:
        """For every combination of parts of the splits, the releases that use a record on all of them, if any."""
        splits = list(dict.fromkeys(split for term in self.terms for split, _ in _in_order(term.side.conditions)))
        if self.relation is REPLACE_ONE or len(splits) > _MOST_SPLITS:
            return {(): tuple(term.releases for term in self.terms)}
        found = {}
        for parts in itertools.product(Role, repeat=len(splits)):
            chosen = tuple(zip(splits, parts, strict=True))
            if charged := tuple(term.releases for term in self.terms if term.side.conditions <= set(chosen)):
                found[chosen] = charged
        return found


def _in_order(parts: Iterable[tuple[Split, Role]]) -> list[tuple[Split, Role]]:
    return sorted(parts, key=repr)


def _name(parts: set[tuple[Split, Role]], splits: Sequence[Split]) -> str:
    """A name that distinguishes a combination of parts from the others."""
    if len(parts) <= 1:
        return next((part.value for _, part in parts), "every record")
    return ", ".join(f"{part.value} of split {splits.index(split) + 1}" for split, part in _in_order(parts))


@dataclass(frozen=True, eq=False)
class _Composed:
    """The composition of several releases that use the same record, or of published runs."""

    releases: tuple[Releases, ...]
    _known: dict[float, float] = field(default_factory=dict, init=False, repr=False)

    def epsilon(self, delta: float) -> float:
        if delta not in self._known:
            self._known[delta] = one_run.charge_slack(self._composed, delta, self.slack)[""]
        return self._known[delta]

    def _composed(self, delta: float) -> dict[str, float]:
        return {"": min(max(epsilon_for(profile, delta) for profile in self._profiles), self._pure)}

    def delta(self, epsilon: float) -> float:
        return float(self.deltas(np.array([epsilon]))[0])

    @property
    def last(self) -> float:
        """The ε at which a curve for plotting ends."""
        return max(min(epsilon_for(profile, 1e-11), profile.top) for profile in self._profiles)

    def deltas(self, epsilons: Floats) -> Floats:
        found = np.max([profile.delta(epsilons) for profile in self._profiles], axis=0)
        return one_run.add_slack(epsilons, np.where(epsilons >= self._pure, 0.0, found), self.slack)

    @cached_property
    def slack(self) -> float:
        return one_run.total_slack(1, math.fsum(one.slack for one in self.releases))

    @cached_property
    def _profiles(self) -> tuple[Discrete, ...]:
        """The profiles of both directions; one if they are the same."""
        convolutions = sum(one.count if isinstance(one, PublishedRuns) else 1 for one in self.releases)
        pld = dp_library.compose(one.pld for one in self.releases)
        return tuple(dict.fromkeys(dp_library.directions(pld, convolutions)))

    @cached_property
    def _pure(self) -> float:
        """The sum of the ε of pure DP; infinite where a release has none. Grids leave a trace of δ."""
        total = math.fsum(
            one.count * one.run.pure if isinstance(one, PublishedRuns) else one.pure for one in self.releases
        )
        return total * (1 + 1e-12)  # for the rounding of each ε, of products and of their sum


@lru_cache(maxsize=16)
def _curve(charged: Guarantee | _Composed, top: float, points: int) -> Floats:
    """Cached, since every certificate states it."""
    return charged.deltas(np.linspace(0.0, top, points))


@lru_cache(maxsize=16)
def _together(releases: tuple[Releases, ...]) -> Guarantee | _Composed:
    """One object for the same releases, so that they are composed once; of a single search, its guarantee."""
    return releases[0] if len(releases) == 1 and isinstance(releases[0], Guarantee) else _Composed(releases)
