"""How λ of the next run is drawn: from a search rule held to the band in a study, by a proposer in a survey.

In a study this is "Update π⁽ʲ⁺¹⁾ such that c ≤ π⁽ʲ⁺¹⁾(λ) / π⁽⁰⁾(λ) ≤ C" and "draw λ ∼ π⁽ʲ⁾" of Framework 1.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.accounting.guarantee import PolicyClass
from dphypo.band import Band
from dphypo.band.band import BandLike
from dphypo.band.projections import Projection, named_projection
from dphypo.entropy import Entropy
from dphypo.errors import SamplerError
from dphypo.journal.journal import Record, Trial
from dphypo.laws import Law
from dphypo.mechanisms import Outcome
from dphypo.samplers import History, Sampler, default_sampler
from dphypo.samplers.sampler import basis, description
from dphypo.search import progress
from dphypo.search.proposer import Within, nearest, point_of
from dphypo.search.release import OnRun
from dphypo.space import Candidates, Grid, Space
from dphypo.space.space import MOST_CANDIDATES

Floats = npt.NDArray[np.float64]
Display = AbstractContextManager[Callable[[Trial, Outcome], object]]
"""Shows runs as they end; its value is called with every run that has ended."""


@dataclass(frozen=True)
class GroupSizes:
    """How many runs a mechanism executes at once: ``first`` at the beginning, then ``later`` at a time."""

    first: int
    later: int

    def of(self, number: int) -> int:
        return self.first if number < self.first else self.later

    def start(self, number: int) -> int:
        """The first run of that group: λ of all its runs depend on the results before it."""
        return 0 if number < self.first else number - (number - self.first) % self.later


class Past:
    """The runs of a part as points in the unit cube of a space; scores times ``sign`` are better the larger they are.

    Each run is converted once.
    """

    def __init__(self, space: Space, sign: float) -> None:
        self._space, self._sign = space, sign
        self._unit: Floats = np.empty((0, len(space.parameters)))

    def history(self, record: Record, usable: int | None) -> History:
        """The first ``usable`` runs, which have ended; with None, all that have ended."""
        fresh = self._space.to_unit([trial.params for trial in record.trials[len(self._unit) :]])
        self._unit = np.vstack([self._unit, fresh])
        rows = sorted(record.results) if usable is None else list(range(usable))
        scores = self._sign * np.array([record.results[number].score for number in rows], dtype=np.float64)
        unit, params = self._unit[rows], tuple(dict(record.trials[number].params) for number in rows)
        return History(self._space.features(unit), unit, scores, np.isnan(scores), params)

    def pending(self, record: Record, usable: int | None) -> list[dict[str, Any]]:
        """The λ of the runs that were drawn and whose results may not be used."""
        used = record.results if usable is None else range(usable)
        return [dict(trial.params) for trial in record.trials if trial.number not in used]


class Runs(ABC):
    """What decides the runs of a part: how many there are, λ of each, and what λ may depend on.

    Attributes:
        space: the space in which the search rule sees λ.
        lag: how many of the latest runs λ of the next one may not depend on; None: as many as are under way.
        published: whether all results are published.
        in_order: whether the guarantee assumes that results are used in the order of the runs, not in that of their
            ends.
    """

    space: Space
    lag: int | None
    published: ClassVar[bool]

    @property
    @abstractmethod
    def in_order(self) -> bool: ...
    @abstractmethod
    def draw_total(self, entropy: Entropy) -> int:
        """How many runs there are."""

    @abstractmethod
    def possible(self, total: int) -> bool:
        """Whether there may be this many runs: a journal that says otherwise was tampered with."""

    @abstractmethod
    def groups(self, workers: int) -> GroupSizes | None:
        """How many runs a mechanism that executes many at once is given at a time; None if one by one."""

    @abstractmethod
    def usable(self, number: int, lag: int, groups: GroupSizes | None) -> int | None:
        """On how many of the first runs λ of this one depends; None if on all that have ended."""

    @abstractmethod
    def draw(self, past: Past, record: Record, usable: int | None, entropy: Entropy) -> dict[str, Any]:
        """λ of the next run."""

    @abstractmethod
    def display(self, record: Callable[[], Record], *, show: bool, on_run: OnRun | None) -> Display:
        """A block that shows runs as they end, as far as they are published."""


@dataclass(frozen=True)
class Policy:
    """A search rule held to the band, and what the guarantee counts on about it.

    ``cells`` is the ``grid`` of a study; ``first`` is n₀, how many of the first runs are drawn from the prior.
    """

    band: Band
    sampler: Sampler
    projection: Projection
    candidates: int
    cells: Mapping[str, int] | None
    policy: PolicyClass
    first: int

    @classmethod
    def of(
        cls,
        band: BandLike,
        sampler: Sampler | None,
        projection: Projection | str,
        *,
        candidates: int,
        grid: Mapping[str, int] | None,
        policy: PolicyClass | str | None,
        first_from_prior: int | None,
    ) -> Policy:
        """The policy of a study, with what was left out filled in: samplers of this library have a ``start``."""
        band, candidates = Band.of(band), _validate.integer(at_least=1, candidates=candidates)
        sampler = default_sampler(band) if sampler is None else _checked_sampler(sampler)
        into: object = named_projection(projection) if isinstance(projection, str) else projection
        if not isinstance(into, Projection):
            raise _validate.fail("projection", projection, "give one, such as dphypo.band.Greedy(), or its name")
        if candidates > MOST_CANDIDATES:
            raise _validate.fail("candidates", candidates, f"give at most {MOST_CANDIDATES}")
        if first_from_prior is not None:
            first = _validate.integer(at_least=1, first_from_prior=first_from_prior)
        else:
            ours = type(sampler).__module__.startswith("dphypo.samplers.")
            first = int(getattr(sampler, "start", 1)) if ours else 1
        return cls(band, sampler, into, candidates, _cells(grid), _claim(policy, sampler, into), first)

    @property
    def adaptive(self) -> bool:
        """Whether the history matters: with c = C = 1 the prior is the only density in the band."""
        return self.band.C > 1

    @property
    def history_only(self) -> bool:
        """Whether the guarantee counts on a search rule that sees only the history."""
        return self.adaptive and self.policy is PolicyClass.HISTORY

    @property
    def counted(self) -> int:
        """n₀ as the guarantee counts it. Without a band every run is drawn from the prior, and no bound needs n₀."""
        return self.first if self.adaptive else 0

    def describe(self) -> dict[str, Any]:
        """The search rule with its settings, as JSON: a history-only study may not change it later."""
        cells = None if self.cells is None else dict(self.cells)
        settings = {"projection": repr(self.projection), "candidates": self.candidates, "grid": cells}
        return {**description(self.sampler), **settings}

    def certified(self) -> dict[str, Any] | None:
        """The search rule as a certificate states it, and who vouches that it sees only the history."""
        if not self.history_only:
            return None
        return {**self.describe(), "sees only the history by": basis(self.sampler, self.projection)}

    def grid(self, prior: Space) -> Grid | None:
        """The cells of a prior. A small finite space is searched over all of them; ``cells`` cuts a larger one."""
        sizes = [parameter.dimension.size for parameter in prior.parameters]
        small = all(size is not None for size in sizes) and math.prod(size or 0 for size in sizes) <= self.candidates
        return prior.grid(**self.cells) if self.cells is not None else prior.grid() if small else None


@dataclass(frozen=True)
class DrawnRuns(Runs):
    """What decides the runs of a study: T is drawn from its law, and λ inside the band.

    With ``grid``, that set of cells with its masses is the prior, for the whole search. Without, fresh candidates are
    drawn for every run, each from the prior given everything before: one set, or one Sobol sequence, used for several
    runs would break the band.
    """

    law: Law
    policy: Policy
    space: Space
    grid: Grid | None
    lag: int | None  # how many of the latest runs λ of the next one may not depend on; None: as many as are under way

    published: ClassVar[bool] = False

    @property
    def in_order(self) -> bool:
        return self.policy.history_only

    def draw_total(self, entropy: Entropy) -> int:
        return self.law.sample(entropy.child("T"))

    def possible(self, total: int) -> bool:
        return bool(self.law.pmf(total) > 0)

    def groups(self, workers: int) -> GroupSizes | None:
        return GroupSizes(workers, workers) if workers > 1 else None

    def usable(self, number: int, lag: int, groups: GroupSizes | None) -> int | None:
        return max(number - lag, 0) if self.in_order else None

    def display(self, record: Callable[[], Record], *, show: bool, on_run: object) -> Display:
        """Shows nothing: how many runs have ended is secret."""
        return contextlib.nullcontext(lambda trial, outcome: None)

    def draw(self, past: Past, record: Record, usable: int | None, entropy: Entropy) -> dict[str, Any]:
        """λ: from the prior itself as long as the search rule sees fewer than ``first`` results.

        A run never sees more results than runs came before it, so that the first n₀ = ``first`` runs are from the
        prior, with any lag. Without a band every run is.
        """
        history = past.history(record, usable) if self.policy.adaptive else None
        from_prior = history is None or len(history) < self.policy.first or not self.policy.adaptive
        if self.grid is not None:
            index = self._index(self.grid, None if from_prior else history, entropy)
            return self.grid.draw_within(index, entropy.child("within"))
        if from_prior:
            return self.space.sample(entropy.child("draw"))
        candidates = self.space.candidates(self.policy.candidates, entropy.child("candidates"))
        return candidates.params(self._index(candidates, history, entropy))

    def _index(self, candidates: Candidates | Grid, history: History | None, entropy: Entropy) -> int:
        masses = candidates.masses if history is None else self._projected(candidates, history)
        return self.policy.band.draw(masses, entropy.child("draw"), candidates.masses)

    def _projected(self, candidates: Candidates | Grid, history: History) -> Floats:
        policy, prior = self.policy, candidates.masses
        failure: Exception
        try:
            weights = np.asarray(policy.sampler.weights(candidates, history), dtype=np.float64)
            if weights.shape != prior.shape:
                raise ValueError(f"weights have shape {weights.shape}: there are {len(prior)} candidates")
            # The weights are masses: on cells of unequal mass, a rule that ranks them must rank densities.
            return policy.band.project(weights, prior, policy.projection, base=None if self.grid is None else prior)
        except Exception as error:
            failure = error
        # Raised here, outside the handler: the rule's own error may quote the history and is not to be printed.
        raise SamplerError(policy.sampler, failure)


_LARGEST_GROUP = 64


@dataclass(frozen=True)
class DeclaredRuns(Runs):
    """What decides published runs, those of a survey or the last one."""

    runs: int
    space: Space  # in which the proposer sees λ
    prior: Space  # what is proposed must lie in it
    propose: Callable[[History, Sequence[Mapping[str, Any]], Entropy], dict[str, Any]]  # the λ are of pending runs
    lag: int | None = None
    arriving: bool = False  # whether results are used as they arrive
    within: Within | None = None
    table: bool = True  # whether rows are shown as runs end

    published: ClassVar[bool] = True

    @property
    def in_order(self) -> bool:
        return False

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

    def display(self, record: Callable[[], Record], *, show: bool, on_run: OnRun | None) -> Display:
        told, show = on_run if self.table else None, show and self.table
        return progress.rows(record, self.runs, self.prior.to_dict(), told, show=show, public=self.arriving)


def _checked_sampler(sampler: object) -> Sampler:
    if isinstance(sampler, Sampler):
        return sampler
    remedy = (
        "give one of dphypo.samplers, such as GaussianProcess() or OptunaSampler(TPESampler()), or an object "
        "with weights(candidates, history); dphypo.testing.check_sampler tests one"
    )
    if hasattr(sampler, "sample_relative"):
        remedy = f"it is a sampler of Optuna: give dphypo.samplers.OptunaSampler({type(sampler).__name__}(...))"
    raise _validate.fail("sampler", sampler, remedy)


def _claim(policy: PolicyClass | str | None, sampler: Sampler, projection: Projection) -> PolicyClass:
    """What the search rule may look at: what the user claims, or else what the rule states itself."""
    qualifies = basis(sampler, projection) is not None
    if policy is None:
        return PolicyClass.HISTORY if qualifies else PolicyClass.ANYTHING
    found = _validate.choice(PolicyClass, policy=policy)
    if found is PolicyClass.HISTORY and not qualifies:
        remedy = f"{type(sampler).__name__} or its projection may look at more than the history: leave policy out, or "
        remedy += "declare history_only = True in the class that defines weights (of a projection: ratios), if what "
        remedy += "they give depends on the candidates, the history and independent randomness alone"
        raise _validate.fail("policy", policy, remedy)
    return found


def _cells(given: Mapping[str, int] | None) -> Mapping[str, int] | None:
    if given is None:
        return None
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise _validate.fail("grid", given, 'give the number of cells by name, such as {"lr": 32}')
    return {name: _validate.integer(at_least=1, **{f"grid[{name!r}]": count}) for name, count in given.items()}
