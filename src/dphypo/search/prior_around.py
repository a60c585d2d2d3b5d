"""Rules that turn the release of one stage into the prior of the next. They are given the release and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, Protocol

from dphypo import _validate
from dphypo._registry import full_name
from dphypo.errors import refusals
from dphypo.search.part import Released
from dphypo.space import Space
from dphypo.space.around import Spread, read_spread
from dphypo.space.dimension import Dimension, Finite, ends
from dphypo.space.parameter import Parameter

Shift = float | Callable[[Any], Any]


class PriorRule(Protocol):
    """A fixed, public function of the release and the original space; it must give the same prior again."""

    def __call__(self, released: Released, space: Space, /) -> Space: ...


@dataclass(frozen=True)
class PriorAround:
    """The next prior: ``floor`` of the original one, the rest a kernel around the released hyperparameters.

    Args:
        spread: the kernel's standard deviation in the coordinates in which the prior is uniform, and the share that
            goes to other categories; one for all, or by name (a parameter left out of the dict keeps its prior). A
            parameter that is inactive at the released point keeps its prior.
        floor: how much of the original prior stays, for the case that the earlier stage was misled.
        shift: where the next stage's optimum is known to lie elsewhere, by name: a factor on a number, or a function
            of the released value. What leaves the range of the prior is moved to its end, or to the nearest level.

    >>> from scipy.stats import loguniform
    >>> space = Space({"lr": loguniform(1e-4, 1.0), "batch": [64, 128, 256]})
    >>> PriorAround(shift={"lr": 0.1})(Released({"lr": 0.5, "batch": 128}), space).to_dict()["around"]
    {'params': {'lr': 0.05, 'batch': 128}, 'spread': {'lr': 0.05, 'batch': 0.05}, 'floor': 0.1}
    """

    spread: Spread = 0.05
    floor: float = 0.1
    shift: Mapping[str, Shift] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shift", dict(_validate.mapping(shift=self.shift)))
        for name, shift in self.shift.items():
            if not callable(shift):
                _validate.positive(**{f"the shift of {name!r}": shift})
        _validate.within(0.0, 1.0, closed="right", floor=self.floor)

    def __call__(self, released: Released, space: Space) -> Space:
        assert released.params is not None
        dimensions = {parameter.name: parameter.dimension for parameter in space.parameters}
        params = {
            name: _shifted(name, dimensions[name], value, self.shift[name]) if name in self.shift else value
            for name, value in released.params.items()
        }
        return space.around(params, spread=self.spread, floor=self.floor)

    def check(self, space: Space) -> None:
        """Refuse, before anything runs, what does not fit the space."""
        dimensions = {parameter.name: parameter.dimension for parameter in space.parameters}
        read_spread(space.parameters, self.spread)
        for name, shift in self.shift.items():
            if name not in dimensions:
                raise _validate.fail("shift", name, f"the parameters are {', '.join(dimensions)}")
            if not callable(shift) and not dimensions[name].ordered:
                raise _validate.fail(f"the shift of {name!r}", shift, "categories have no factor: give a function")

    def to_dict(self) -> dict[str, Any]:
        spread = dict(self.spread) if isinstance(self.spread, Mapping) else self.spread
        shift = {name: full_name(shift) if callable(shift) else shift for name, shift in self.shift.items()}
        return {"rule": "PriorAround", "spread": spread, "floor": self.floor, "shift": shift}


def describe_rule(rule: PriorRule) -> dict[str, Any]:
    """A rule in the declaration and the certificate: PriorAround in full, a function of the user's by its name."""
    return rule.to_dict() if isinstance(rule, PriorAround) else {"rule": full_name(rule)}


def _shifted(name: str, dimension: Dimension, value: Any, shift: Shift) -> Any:
    """The shifted value, brought back to one that the parameter can have."""
    moved = shift(value) if callable(shift) else value * shift
    if not dimension.ordered:
        return moved
    wanted = _validate.number(**{f"the shifted {name!r}": moved})
    if isinstance(dimension, Finite):
        return min(dimension.choices, key=lambda level: abs(level - wanted))  # type: ignore[operator]
    low, high = ends(dimension)
    within = min(max(wanted, low), high)  # type: ignore[type-var]
    return round(within) if isinstance(low, int) else within  # type: ignore[arg-type]


_MOST_CASES = 100_000


def refuse_wider(prior: Space, space: Space) -> None:
    """Refuse a prior that can draw what the space cannot.

    A rule may put the prior where it likes, inside the space. Outside it, nothing was declared of a run: its event may
    be the same by accident, because the event reads no hyperparameter, and the run another all the same.
    """
    known = {parameter.name: parameter for parameter in space.parameters}
    for parameter in prior.parameters:
        if parameter.name not in known:
            raise refusals.WiderPrior(f"({parameter.name!r} is none of the declared hyperparameters.)")
        _refuse_values(parameter.name, parameter.dimension, known[parameter.name].dimension)
    _refuse_conditions(prior, space)


def _refuse_values(name: str, dimension: Dimension, declared: Dimension) -> None:
    if isinstance(dimension, Finite):
        values = dimension.choices
    elif isinstance(declared, Finite):
        raise refusals.WiderPrior(f"({name!r} was declared as a list of values, and the rule made a range of it.)")
    else:
        values = tuple(ends(dimension))
        if isinstance(ends(declared)[0], int) and not isinstance(values[0], int):
            raise refusals.WiderPrior(f"({name!r} was declared as a range of whole numbers.)")
    for value in values:
        if not _has(declared, value):
            raise refusals.WiderPrior(f"({name!r} was not declared with the value {value!r}.)")


def _has(declared: Dimension, value: Any) -> bool:
    try:
        declared.unit([value])
    except ValueError:
        return False
    if isinstance(declared, Finite):
        return True
    low, high = ends(declared)  # the event was taken at what can be drawn, which is less than the support
    return bool(low <= value <= high)


def _refuse_conditions(prior: Space, space: Space) -> None:
    """The same hyperparameters must be active, whatever values those have on which others depend."""
    parents = {s.parameters[p.parent].name for s in (prior, space) for p in s.parameters if p.parent is not None}
    given = {parameter.name: parameter.dimension for parameter in prior.parameters if parameter.name in parents}
    choices = {name: dimension.choices for name, dimension in given.items() if isinstance(dimension, Finite)}
    if prod(len(values) for values in choices.values()) > _MOST_CASES:
        raise refusals.WiderPrior("(It has too many conditions to be checked: shape the prior with space.around.)")
    for values in product(*choices.values()):
        case = dict(zip(choices, values, strict=True))
        if other := sorted(_active(prior, case) ^ _active(space, case)):
            raise refusals.WiderPrior(f"({other[0]!r} is active where it was not declared, or missing where it was.)")


def _active(space: Space, case: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    for parameter in space.parameters:  # parents stand before their children
        if parameter.parent is None or _holds(space.parameters[parameter.parent], parameter, case, found):
            found.add(parameter.name)
    return found


def _holds(parent: Parameter, parameter: Parameter, case: Mapping[str, Any], found: set[str]) -> bool:
    if parent.name not in found or parent.name not in case or not isinstance(parent.dimension, Finite):
        return False
    return parent.dimension.position(case[parent.name]) in parameter.cases
