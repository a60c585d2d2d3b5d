"""How λ of the next run of a study is drawn, what a search rule is told of earlier runs, and which run is best.

This is "Update π⁽ʲ⁺¹⁾ such that c ≤ π⁽ʲ⁺¹⁾(λ) / π⁽⁰⁾(λ) ≤ C" and "draw λ ∼ π⁽ʲ⁾" of Framework 1.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.accounting.guarantee import PolicyClass
from dphypo.band import Band
from dphypo.band.mixed import named_projection
from dphypo.band.problem import Projection
from dphypo.entropy import Entropy
from dphypo.errors import SamplerError
from dphypo.journal.journal import Record, Trial
from dphypo.laws import Law
from dphypo.mechanisms import Outcome
from dphypo.samplers import History, Sampler, default_sampler
from dphypo.samplers.sampler import basis, description
from dphypo.search.part import GroupSizes, Watch
from dphypo.search.release import Ending
from dphypo.space import Candidates, Grid, Space
from dphypo.space.space import MOST_CANDIDATES

if TYPE_CHECKING:
    from dphypo.search.stage import Stage

Floats = npt.NDArray[np.float64]


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
    def of(cls, stage: Stage) -> Policy:
        """The policy of a stage, with what was left out filled in: samplers of this library have a ``start``."""
        band, candidates = Band.of(stage.band), _validate.integer(at_least=1, candidates=stage.candidates)
        sampler = default_sampler(band) if stage.sampler is None else _checked_sampler(stage.sampler)
        given = stage.projection
        into: object = named_projection(given) if isinstance(given, str) else given
        if not isinstance(into, Projection):
            raise _validate.fail("projection", given, "give one, such as dphypo.band.Greedy(), or its name")
        if candidates > MOST_CANDIDATES:
            raise _validate.fail("candidates", candidates, f"give at most {MOST_CANDIDATES}")
        if stage.first_from_prior is not None:
            first = _validate.integer(at_least=1, first_from_prior=stage.first_from_prior)
        else:
            ours = type(sampler).__module__.startswith("dphypo.samplers.")
            first = int(getattr(sampler, "start", 1)) if ours else 1
        return cls(band, sampler, into, candidates, _cells(stage.grid), _claim(stage.policy, sampler, into), first)

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
        """The search rule with its settings, as JSON: a history-only study may not change it on the way."""
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
class DrawnRuns:
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
        """Whether the guarantee assumes that results are used in the order of the runs, not in that of their ends."""
        return self.policy.history_only

    def draw_total(self, entropy: Entropy) -> int:
        return self.law.sample(entropy.child("T"))

    def possible(self, total: int) -> bool:
        """Whether there may be this many runs: a journal that says otherwise was tampered with."""
        return bool(self.law.pmf(total) > 0)

    def groups(self, workers: int) -> GroupSizes | None:
        return GroupSizes(workers, workers) if workers > 1 else None

    def usable(self, number: int, lag: int, groups: GroupSizes | None) -> int | None:
        """On how many of the first runs λ of this one depends; None if on all that have ended."""
        return max(number - lag, 0) if self.in_order else None

    def watch(self, record: Callable[[], Record], *, show: bool, on_run: object) -> Watch:
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


def beats(trial: Trial, outcome: Outcome, record: Record, sign: float) -> bool:
    """Whether a run that just ended is the best so far: by its score, then by its key, never by when it ended."""
    if outcome.score is None:
        return False
    if record.best is None:
        return True
    best = record.results[record.best]
    assert best.score is not None
    return (sign * outcome.score, trial.tie_key) > (sign * best.score, record.trials[record.best].tie_key)


def best_of(record: Record, sign: float) -> int | None:
    """The best of all runs, afresh; None if none has a score."""
    scored = [
        (sign * result.score, record.trials[number].tie_key, number)
        for number, result in record.results.items()
        if result.score is not None
    ]
    return max(scored)[2] if scored else None


def ending(record: Record) -> Ending:
    if record.best is not None:
        return Ending.MODEL
    return Ending.ALL_FAILED if record.trials else Ending.NO_RUN


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
