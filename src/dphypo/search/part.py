"""What a study, a survey and a last run have in common: a part of a declaration.

A part is declared in public, runs in secret on a journal, and publishes a value. The next part is given what was
published, and nothing else. :class:`dphypo.Stage` is the part that is a study, :class:`dphypo.Survey` publishes all its
runs, :class:`dphypo.LastRun` makes one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dphypo import _validate
from dphypo.accounting import Term
from dphypo.executors.executor import Lost
from dphypo.journal.journal import Record, Trial
from dphypo.mechanisms import Mechanism, Outcome
from dphypo.search.release import Release
from dphypo.space import Space
from dphypo.space.around import Spread, read_spread

if TYPE_CHECKING:
    from dphypo.search.policy import DrawnRuns
    from dphypo.search.survey import DeclaredRuns


@dataclass(frozen=True)
class PriorAround:
    """The next prior: ``floor`` of the original one, and the rest a kernel around the λ that a survey recommends.

    Args:
        spread: the kernel's standard deviation in the coordinates in which the prior is uniform, and the share that
            goes to other categories; one for all, or by name (a parameter left out of the dict keeps its prior). A
            parameter that is inactive at the recommended point keeps its prior.
        floor: the share of the original prior that remains, in case the survey was misled.

    >>> from scipy.stats import loguniform
    >>> space = Space({"lr": loguniform(1e-4, 1.0), "batch": [64, 128, 256]})
    >>> PriorAround()({"lr": 0.05, "batch": 128}, space).to_dict()["around"]
    {'params': {'lr': 0.05, 'batch': 128}, 'spread': {'lr': 0.05, 'batch': 0.05}, 'floor': 0.1}
    """

    spread: Spread = 0.05
    floor: float = 0.1

    def __post_init__(self) -> None:
        _validate.within(0.0, 1.0, closed="right", floor=self.floor)

    def __call__(self, params: Mapping[str, Any], space: Space) -> Space:
        return space.around(params, spread=self.spread, floor=self.floor)

    def check(self, space: Space) -> None:
        """Refuse a spread that does not fit the space, before anything runs."""
        read_spread(space.parameters, self.spread)

    def to_dict(self) -> dict[str, Any]:
        spread = dict(self.spread) if isinstance(self.spread, Mapping) else self.spread
        return {"rule": "PriorAround", "spread": spread, "floor": self.floor}


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
