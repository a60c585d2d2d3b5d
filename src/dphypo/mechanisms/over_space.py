"""The event that bounds a run for every λ, when the privacy of a run depends on λ.

The guarantee needs a bound for every λ of the space, not only for those that are drawn: the pointwise supremum of the
profiles of all of them. A functional event is therefore evaluated wherever it can differ: it is called with parameters
that have no values yet; when it reads one, it is called again with each value that one can take. What it never reads
cannot matter, so a continuous learning rate that the event ignores costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import dp_accounting

from dphypo import _validate
from dphypo.accounting import PureDp, RoundedDp
from dphypo.accounting.composition import Sides
from dphypo.accounting.events import canonical, ideal
from dphypo.errors import Refusal
from dphypo.mechanisms.mechanism import Mechanism, check_signature
from dphypo.mechanisms.sampled_gaussian import COSTS
from dphypo.space import Space
from dphypo.space.dimension import Finite, ends

MOST_EVENTS = 20_000
_UNBOUNDED = (
    "The privacy event depends on a hyperparameter over which its supremum cannot be computed. The guarantee needs an "
    "event that bounds the run for every value in the space, not only for those that are drawn."
)


def check_fit(mechanism: Mechanism, space: Space) -> None:
    """Refuse a mechanism that cannot be called, and a space that it refuses.

    A hyperparameter that changes what a run costs is refused if the event ignores it.
    """
    check_signature(mechanism, "seed")
    split: object = mechanism.split
    if not isinstance(split, Sides | None):  # "same" would count as two sides
        remedy = "a mechanism gives dphypo.Split(how).sides, or None if one record may train and score"
        raise _validate.fail("split", split, remedy)
    refuse_rows_of_persons(split, mechanism.unit)
    mechanism.check_space(space)
    if callable(mechanism.event) or isinstance(mechanism.event, (list, tuple)):
        return
    for name in space.names:
        if name in COSTS:
            remedy = (
                f"what a run costs depends on it, and the event of {mechanism!r} does not. Leave it out of the space; "
                f"or declare @dphypo.mechanism(event=lambda params: ...), an event that reads params[{name!r}]; or "
                "give a list, event=[...], which states that it bounds a run at every value"
            )
            raise _validate.fail("space", name, remedy)


def refuse_rows_of_persons(split: Sides | None, unit: str) -> None:
    """Refuse sides of rows where records are persons: some rows of a person may train, and others score."""
    if split is not None and unit != "record" and not split.keep_persons_apart:
        remedy = f"a hash of each row sets the records that score apart, and a {unit} may have rows on both sides: "
        remedy += "give person= to split_by_hash too, so that the key decides"
        raise _validate.fail("split", str(split.training), remedy)


def events(mechanism: Mechanism, space: Space) -> list[Any]:
    """All events a run may have, one of each, in canonical form: the accountant takes their supremum."""
    check_fit(mechanism, space)
    return _over(mechanism, space, lambda params: _run(mechanism, params))


def by_side(
    mechanism: Mechanism,
    space: Space,
    within: Callable[[Mapping[str, Any]], bool] | None = None,
) -> tuple[list[Any], list[Any]]:
    """All events of a run for records that train, and all for records that score.

    If one record may do both, or the score uses public records, the first list has all events and the second is empty.
    Hyperparameters for which ``within`` is false are never run and are left out; both ends of a parameter in which the
    event is monotone are kept, since ``within`` may exclude an end and allow all values next to it.
    """
    check_fit(mechanism, space)

    def may_allow(params: _Watched) -> bool:
        """Whether ``within`` allows some λ that agrees with these parameters wherever not only the ends are read."""
        if within is None:
            return True
        try:
            known = {key: value for key, value in params.known.items() if key[0] not in params.at_ends}
            return bool(within(replace(params, known=known)))
        except _Reads as read:
            if read.name in params.at_ends:
                return True
            raise

    def over(of: Callable[[_Watched], list[Any]]) -> list[Any]:
        return _over(mechanism, space, lambda params: of(params) if may_allow(params) else [])

    if mechanism.score_event is None or mechanism.split is None:
        return over(lambda params: _run(mechanism, params)), []
    return over(lambda params: _at(mechanism.event, params)), over(lambda params: _at(mechanism.score_event, params))


def _over(mechanism: Mechanism, space: Space, of: Callable[[_Watched], list[Any]]) -> list[Any]:
    """All events that ``of`` lists anywhere in the space, one of each, in canonical form."""
    # Canonical before they are compared: the text of a long array leaves numbers out.
    found = everywhere(lambda params: [canonical(event) for event in of(params)], space, mechanism.monotone)
    return list(dict.fromkeys(found))


def everywhere(
    function: Callable[[_Watched], list[Any]], space: Space, monotone: frozenset[str] = frozenset()
) -> list[Any]:
    """All that a function of the parameters lists anywhere in the space, one of each."""
    found: dict[str, Any] = {}  # by their text: an event that holds a list cannot be hashed
    # The two ends of a monotone parameter are enough, if no other parameter exists only at values between them.
    parents = {parameter.parent for parameter in space.parameters}
    at_ends = frozenset(
        parameter.name
        for place, parameter in enumerate(space.parameters)
        if parameter.name in monotone and parameter.dimension.ordered and place not in parents
    )
    unexplored: list[dict[_Key, Any]] = [{}]
    visited = 0
    while unexplored:
        known = unexplored.pop()
        visited += 1
        if visited > MOST_EVENTS:
            raise Refusal(
                f"{_UNBOUNDED} It takes more than {MOST_EVENTS} different combinations of the parameters it reads: "
                "declare those in which it is monotone (monotone=), or state one event that bounds them all."
            )
        try:
            found.update((repr(value), value) for value in function(_Watched(space, known, at_ends)))
        except _Reads as read:
            values = _values(space, read.name, at_ends)
            unexplored.extend({**known, (read.name, read.scoring): value} for value in values)
    return list(found.values())


def _run(mechanism: Mechanism, params: _Watched) -> list[Any]:
    """The events of one run at given parameters: training, and the score if it has its own event.

    One may cost most at the first end of a monotone parameter and the other at the last: each end of one is combined
    with each end of the other.
    """
    trains = _at(mechanism.event, params)
    if mechanism.score_event is None:
        return trains
    scores = _at(mechanism.score_event, replace(params, scoring=True))
    replaces = mechanism.relation is dp_accounting.NeighboringRelation.REPLACE_ONE
    if replaces and any(isinstance(score, RoundedDp) for score in scores):
        raise ValueError(
            "score_event is that of a private score, which is stated for adding or removing one record; the relation "
            "is REPLACE_ONE, under which a score changes by up to twice as much. State ADD_OR_REMOVE_ONE for both, or "
            "give score_event=GaussianDpEvent(noise_multiplier / 2)"
        )
    if mechanism.split is not None and not replaces:  # a replaced record can leave training and enter the others
        return trains + scores
    return [_composed(train, score) for train in trains for score in scores]


def _at(event: Any, params: Mapping[str, Any]) -> list[Any]:
    value = event(params) if callable(event) else event
    found = list(value) if isinstance(value, (list, tuple)) else [value]
    if not found:  # a run at these parameters would not be charged
        raise _validate.fail("event", value, "state what a run costs at every λ of the space: a list needs an event")
    return found


def _composed(train: Any, score: Any) -> Any:
    """Training and scoring, if one record may be used for both."""
    if rounded := [one for one in (train, score) if isinstance(one, RoundedDp)]:
        exact = len(rounded) == 2 and all(one.exact for one in rounded)
        return RoundedDp(_composed(ideal(train), ideal(score)), sum(one.slack for one in rounded), exact)
    if isinstance(train, dp_accounting.DpEvent) and isinstance(score, dp_accounting.DpEvent):
        return dp_accounting.ComposedDpEvent((train, score))
    if isinstance(train, PureDp) and isinstance(score, PureDp):
        return PureDp(train.epsilon + score.epsilon)
    raise TypeError(
        f"a {type(train).__name__} and a {type(score).__name__} that may use the same record cannot be composed here: "
        "state both as dp_accounting events, or one event that covers training and scoring"
    )


_Key = tuple[str, bool]
"""A parameter, and whether the value is that of the score alone."""


@dataclass(eq=False)
class _Reads(BaseException):
    """The event wants a parameter without a value. Not an Exception: the event's own handlers must not catch it."""

    name: str
    scoring: bool


@dataclass(frozen=True, eq=False)
class _Watched(Mapping[str, Any]):
    """Parameters, some of which have values; reading any other stops the reader.

    Of a parameter in ``at_ends``, the score reads its own value (``scoring``).
    """

    space: Space
    known: Mapping[_Key, Any]
    at_ends: frozenset[str]
    scoring: bool = False

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        scoring = self.scoring and name in self.at_ends
        if (name, scoring) not in self.known:
            raise _Reads(name, scoring)
        return self.known[name, scoring]

    def __contains__(self, name: object) -> bool:
        """Whether the parameter exists here. If it depends on another's value, that one is read."""
        if name not in self.space.names:
            return False
        parameter = self.space.parameters[self.space.names.index(str(name))]
        if parameter.parent is None:
            return True
        parent = self.space.parameters[parameter.parent]
        assert isinstance(parent.dimension, Finite)
        return parent.name in self and parent.dimension.position(self[parent.name]) in parameter.cases

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.space.names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _values(space: Space, name: str, at_ends: frozenset[str]) -> list[Any]:
    """Every value of a finite parameter; the two ends of one in which the event is monotone."""
    dimension = space.parameters[space.names.index(name)].dimension
    if name in at_ends:
        return list(ends(dimension))
    if isinstance(dimension, Finite):
        return list(dimension.choices)
    raise Refusal(
        f"{_UNBOUNDED} It reads {name!r}, which is continuous. If the run is always more private, or always less, as "
        f"{name!r} grows, declare monotone=[{name!r}]: the supremum is then at an end of its range. Otherwise give "
        f"{name!r} a list of values, or state one event that bounds every value."
    )
