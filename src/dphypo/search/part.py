"""What a study, a survey and a last run have in common: a part of a declaration.

A part is declared in public, runs in secret on a journal, and publishes a value. The next part is given what was
published, and nothing else. :class:`dphypo.Stage` is the part that is a study, :class:`dphypo.Survey` publishes all its
runs, :class:`dphypo.LastRun` makes one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dphypo import _validate
from dphypo._validate import full_name
from dphypo.accounting import Term
from dphypo.executors.executor import Lost
from dphypo.journal.records import Record, Trial
from dphypo.mechanisms import Mechanism, Outcome
from dphypo.search.release import Ending, Release
from dphypo.space import Space
from dphypo.space.around import Spread, read_spread
from dphypo.space.dimension import nearest_value

if TYPE_CHECKING:
    from dphypo.search.policy import DrawnRuns
    from dphypo.search.survey import DeclaredRuns


@dataclass(frozen=True)
class Released:
    """What an intermediate stage has published: all that a rule for the next prior is given.

    ``params`` is None if there is no best run, ``score`` unless the stage was declared to release it.
    """

    params: Mapping[str, Any] | None
    score: float | None = None
    ending: Ending = Ending.MODEL

    def __post_init__(self) -> None:
        if self.params is not None:
            object.__setattr__(self, "params", MappingProxyType(dict(self.params)))


Shift = float | Callable[[Any], Any]
PriorRule = Callable[[Released, Space], Space]
"""A fixed, public function of the release and the original space; it must give the same prior again."""


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
        params = dict(released.params)
        for parameter in space.parameters:
            name, dimension = parameter.name, parameter.dimension
            if name in self.shift and name in params:
                shift, value = self.shift[name], params[name]
                moved = shift(value) if callable(shift) else value * shift
                if dimension.ordered:  # back to a value that the parameter can have
                    moved = nearest_value(dimension, _validate.number(**{f"the shifted {name!r}": moved}))
                params[name] = moved
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


@dataclass(frozen=True)
class PartSetting:
    """What a part is given when it begins: the prior that the parts before have made, and what they have published."""

    declared: Space  # has every λ that was published; a prior may be narrower
    prior: Space
    published: tuple[Any, ...] = ()


@dataclass(frozen=True)
class GroupSizes:
    """How many runs are made at once, by a mechanism that can: ``first`` at the beginning, then ``later`` at a time."""

    first: int
    later: int

    def of(self, number: int) -> int:
        return self.first if number < self.first else self.later

    def start(self, number: int) -> int:
        """The first run of that group: λ of all its runs depend on the results before it."""
        return 0 if number < self.first else number - (number - self.first) % self.later


Watch = AbstractContextManager[Callable[[Trial, Outcome], object]]
"""Shows that runs are made; it is told of every run that has ended."""


@runtime_checkable
class Part(Protocol):
    """One part of a declaration, as the user writes it: frozen, and public."""

    @property
    def mechanism(self) -> Mechanism:
        """What one run is."""

    @property
    def executed(self) -> Mechanism:
        """The mechanism that is run and accounted for: a last run may leave out its score."""

    @property
    def lost_runs(self) -> Lost:
        """What becomes of a run whose process died."""

    @property
    def models(self) -> str | Path | None:
        """A folder in which the models of all runs are published; None if they are not."""

    @property
    def table(self) -> bool:
        """Whether the results of all runs are published."""

    def terms(self, space: Space, *, last: bool, alone: bool) -> tuple[Term, ...]:
        """Refuse what does not fit the space, then account for the part at every λ of it.

        ``last`` says that nothing follows, ``alone`` that nothing comes before, either.
        """

    def describe(self, terms: tuple[Term, ...]) -> dict[str, Any]:
        """What determines the guarantee, as JSON: it may not change once the first part has begun."""

    def hands_on(self, *, last: bool) -> dict[str, Any]:
        """What the part publishes and what becomes of it, as JSON, for the declaration and the certificate."""

    def search_rule(self) -> dict[str, Any] | None:
        """The search rule on which the guarantee relies, for the certificate; None if it relies on none."""

    def compute(self) -> str:
        """What the part costs in compute, in a sentence that depends on public values alone."""

    def read(self, record: Record) -> Any:
        """What a part that is over has published. Nothing else of its record is looked at."""

    def state(self, published: Any) -> dict[str, Any]:
        """What was published, as JSON, for the certificate."""

    def next_prior(self, published: Any, space: Space) -> Space | None:
        """The prior of the next part, from what was published; None to leave the prior as it is."""

    def begin(self, setting: PartSetting) -> DrawnRuns | DeclaredRuns:
        """What decides the runs."""

    def release(self, best: Release, record: Record, setting: PartSetting) -> Release:
        """The release of a search that ends with this part, from the best of its runs."""
