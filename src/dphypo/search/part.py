"""What a study, a survey and a last run have in common: a part of a declaration.

A part is declared in public, runs in secret on a journal, and publishes a value. The next part is given what was
published, and nothing else. :class:`dphypo.Stage` is the part that is a study, :class:`dphypo.Survey` publishes all its
runs, :class:`dphypo.LastRun` makes one.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, runtime_checkable

from dphypo.accounting import Term
from dphypo.entropy import Entropy
from dphypo.journal.records import Record, Trial
from dphypo.mechanisms import Mechanism, Outcome
from dphypo.samplers import History
from dphypo.search import progress
from dphypo.search.interruption import Lost
from dphypo.search.live import NOWHERE, LiveFile
from dphypo.search.optimiser import Within, nearest, point_of
from dphypo.search.release import Ending, Release
from dphypo.search.selection import Past
from dphypo.search.table import OnRun, at_edge, table_of
from dphypo.space import Space


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


_LARGEST_GROUP = 64
Propose = Callable[[History, Sequence[Mapping[str, Any]], Entropy], dict[str, Any]]
"""λ of the next run, from published results and the λ of runs that are under way."""


@dataclass(frozen=True)
class DeclaredRuns:
    """What decides published runs, those of a survey or the last one."""

    runs: int
    space: Space  # where the optimiser sees them
    prior: Space  # what is proposed must lie in it
    propose: Propose
    lag: int | None = None
    arriving: bool = False  # whether results are used as they arrive
    within: Within | None = None
    table: bool = True  # whether rows are shown as runs end

    in_order: ClassVar[bool] = False
    published: ClassVar[bool] = True

    def draw_total(self, entropy: Entropy) -> int:
        return self.runs

    def possible(self, total: int) -> bool:
        return total == self.runs

    def groups(self, workers: int) -> GroupSizes | None:
        """Half of the runs at once, then a fifth at a time (``benchmarks/groups.py`` measures what that costs)."""
        if self.runs < 2 or self.lag is not None:
            return None
        return GroupSizes(min(self.runs // 2, _LARGEST_GROUP), min(max(self.runs // 5, 1), _LARGEST_GROUP))

    def usable(self, number: int, lag: int, groups: GroupSizes | None) -> int | None:
        if self.arriving:
            return None
        return max(number - lag, 0) if groups is None else groups.start(number)

    def draw(self, past: Past, record: Record, usable: int | None, entropy: Entropy) -> dict[str, Any]:
        proposed = self.propose(past.history(record, usable), past.pending(record, usable), entropy)
        point = point_of(self.prior, proposed)
        return point if self.within is None else nearest(self.prior, point, self.within, entropy)

    @contextlib.contextmanager
    def watch(
        self, record: Callable[[], Record], *, show: bool, ticking: bool, on_run: OnRun | None
    ) -> Iterator[Callable[[Trial, Outcome], object]]:
        """A line for every run, and a remark if the best lies at the edge of the space."""
        told, show = on_run if self.table else None, show and self.table
        with progress.rows(record, self.runs, told, show=show, public=self.arriving) as one_more:
            yield one_more
        if show and (remark := at_edge(table_of(record()), self.prior.to_dict())):
            print(remark, file=sys.stderr)


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
