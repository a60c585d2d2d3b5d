"""What a study, a survey and a last run have in common: a part of a declaration.

A part is declared in public, runs in secret on a journal, and publishes a value. The next part is given what was
published, and nothing else. :class:`dphypo.Stage` is the part that is a study, :class:`dphypo.Survey` publishes all its
runs, :class:`dphypo.LastRun` makes one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from dphypo import _validate
from dphypo.accounting import Term
from dphypo.entropy import Entropy
from dphypo.executors.executor import Crew
from dphypo.journal.records import Record, Trial
from dphypo.mechanisms import Mechanism, Outcome, capabilities
from dphypo.search.live import NOWHERE, LiveFile
from dphypo.search.policy import Past
from dphypo.search.release import Ending, Release
from dphypo.search.table import OnRun
from dphypo.space import Space


class Lost(StrEnum):
    """What becomes of a run whose process died.

    Whether the data killed a process cannot be seen from outside. Retrying such a run selects for runs that survive,
    unless all randomness of the run comes from its seed: then it ends as before. Counting it as failed is covered if
    runs die independently; an outage that takes many of them would change the law of T (docs/theory.md, "Facts about
    the search").

    An interrupt, SIGTERM, a cluster that takes a worker back, and a machine that goes away with all its processes do
    not count as deaths of a run: the run is made again with its seed, whatever is declared here.
    """

    AGAIN = "again"
    """It is made again with the same seed, at most twice: for mechanisms whose randomness comes from the seed alone."""

    FAILED = "failed"
    """It counts as failed at once."""

    @classmethod
    def read(cls, given: Lost | str | None, mechanism: Mechanism) -> Lost:
        """What the user gave; by default what fits the mechanism, which may say of itself that it is ``seeded``."""
        if given is None:
            return cls.AGAIN if capabilities.is_seeded(mechanism) else cls.FAILED
        if not isinstance(given, str) or given not in list(cls):
            raise _validate.fail("lost", given, 'give "again" or "failed", or None for what fits the mechanism')
        return cls(given)

    def check(self, crew: Crew) -> None:
        """Refuse those whose runs die together, where a death is an outcome: runs must die independently."""
        if self is Lost.FAILED and crew.breaks:
            raise _validate.fail(
                "executor",
                crew.executor,
                "one process that dies breaks such a pool and takes the other runs with it, so that their failures are "
                'not independent. Use executor="processes", or workers=1; or, if all randomness of a run comes from '
                'its seed, declare the mechanism with seeded=True, or lost="again"',
            )

    @property
    def condition(self) -> str:
        """What the guarantee assumes, for the certificate."""
        if self is Lost.AGAIN:
            return (
                "a run whose process died was made again with its seed, at most twice; that is covered if all "
                "randomness of a run comes from its seed, or if no death depends on the data"
            )
        return (
            "a run whose process died counts as failed, which is covered if runs die independently of one another; one "
            "that was stopped in order, or lost with its whole machine, was made again with its seed, which is covered "
            "if neither depends on the data"
        )


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


@dataclass(frozen=True)
class Setting:
    """What a part is given when it begins: the prior that the parts before have made, and what they have published."""

    prior: Space
    published: tuple[Any, ...] = ()
    maximize: bool = True


@dataclass(frozen=True)
class Opening:
    """What a part is begun with. Only the first part is dated: the day of a later one would tell how long runs took."""

    declared: Mapping[str, Any]  # what may not change once it has begun, as JSON
    total: Callable[[], str] = field(repr=False)  # ε and δ of the whole search, in words
    dated: bool = True  # whether the journal keeps the day
    sign: float = 1.0  # scores times this: larger is better
    stages: bool = False  # whether it is a part of a longer search, which refusals then name
    rehearse: Callable[[], None] = field(default=lambda: None, repr=False)  # raises if runs cannot be made
    timed: bool = True  # whether a log may show when runs are made: not in a search with a study, whose time is secret
    checkpoint: Path | None = None  # the file in which a last run keeps its state, if the journal is a file
    live: LiveFile = NOWHERE  # where published runs are shown as they are made


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


class Decider(Protocol):
    """What decides the runs of a part under way: how many there are, and λ of each. Fixed, and public."""

    @property
    def space(self) -> Space:
        """Where runs are placed for :meth:`draw`."""

    @property
    def lag(self) -> int | None:
        """How many of the latest runs λ of the next one may not depend on; None: as many as are under way."""

    @property
    def in_order(self) -> bool:
        """Whether the guarantee counts on it that λ depends on earlier results in the order of the runs alone."""

    @property
    def published(self) -> bool:
        """Whether results are published. The seed of a run is then erased when it has ended."""

    def draw_total(self, entropy: Entropy) -> int:
        """How many runs there are."""

    def possible(self, total: int) -> bool:
        """Whether there may be so many: a journal that says otherwise was tampered with."""

    def groups(self, workers: int) -> GroupSizes | None:
        """How many runs to make at once, if the mechanism can; None for one at a time."""

    def usable(self, number: int, lag: int, groups: GroupSizes | None) -> int | None:
        """On how many of the first runs λ of this one depends; None if on all that have ended."""

    def draw(self, past: Past, record: Record, usable: int | None, entropy: Entropy) -> dict[str, Any]:
        """λ of the next run."""

    def watch(self, record: Callable[[], Record], *, show: bool, ticking: bool, on_run: OnRun | None) -> Watch:
        """What people see while runs are made, and their own function for published runs."""


@runtime_checkable
class Part(Protocol):
    """One part of a declaration, as the user writes it: frozen, and public."""

    @property
    def mechanism(self) -> Mechanism:
        """What one run is."""

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

    def begin(self, setting: Setting) -> Decider:
        """What decides the runs."""

    def release(self, best: Release, record: Record, setting: Setting) -> Release:
        """The release of a search that ends with this part, from the best of its runs."""
