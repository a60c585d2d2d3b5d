"""How λ of the next run is drawn: by a search rule kept inside the band in a study, by a proposer in a survey.

In a study this is "Update π⁽ʲ⁺¹⁾ such that c ≤ π⁽ʲ⁺¹⁾(λ) / π⁽⁰⁾(λ) ≤ C" and "draw λ ∼ π⁽ʲ⁾" of Framework 1.

A survey has no band: any function of what is published may propose λ, one of our search rules or a sampler of Optuna.
The last run is executed where the posterior mean of a Gaussian process is best: the best of many noisy scores is often
a lucky one. A positive number that spans a decade or more is searched on a logarithmic scale: learning rates and
clipping norms act by factors, and published runs need not follow the prior. On MNIST, whose clipping norm has a uniform
prior from 0.3 to 6, this removes a third of the regret of a survey (``python -m benchmarks.scales``).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
from scipy.stats import loguniform

from dphypo import _validate
from dphypo._validate import Floats
from dphypo.accounting.guarantee import PolicyClass
from dphypo.band import Band
from dphypo.band.projections import Projection, named_projection
from dphypo.entropy import Entropy, Seeded, uniforms
from dphypo.errors import SamplerError
from dphypo.journal.journal import Record, Trial
from dphypo.laws import Law
from dphypo.mechanisms import Outcome
from dphypo.samplers import GaussianProcess, History, OptunaSampler, Sampler, default_sampler
from dphypo.samplers.gaussian_process import Units
from dphypo.samplers.sampler import basis, description
from dphypo.search import progress
from dphypo.search.release import OnRun, Row
from dphypo.space import Candidates, Grid, Space
from dphypo.space.dimension import Finite, Parameter, is_number, nearest_value, plain
from dphypo.space.space import MOST_CANDIDATES

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


Params = Mapping[str, Any]
Within = Callable[[Params], bool]
"""Which hyperparameters of a space may be run."""


@runtime_checkable
class Proposer(Protocol):
    """Proposes the hyperparameters of the next run of a survey."""

    def propose(self, space: Space, history: History, pending: Sequence[Params], entropy: Entropy) -> dict[str, Any]:
        """λ of the next run.

        Args:
            space: the hyperparameters and their prior.
            history: the finished runs that may be used, scores larger the better; all of it is public.
            pending: the hyperparameters of runs that were proposed and whose results may not be used yet.
            entropy: where randomness comes from.
        """


@dataclass(frozen=True)
class SamplerProposer:
    """Uses one of ``dphypo.samplers`` without a band: it proposes the candidate with the largest weight.

    With the default rule, a Gaussian process on standardised scores, that is the largest μ + 2σ: the upper confidence
    bound. A pending run counts as if it had scored the posterior mean, so concurrent runs spread out. The defaults lost
    least in simulated surveys of twenty runs (``paper/RESULTS.md``).

    Args:
        sampler: the search rule; by default a Gaussian process.
        start: how many initial runs are spread over the prior, at the points of a scrambled Sobol set. A survey without
            an explicit proposer uses half of its runs.
        candidates: how many candidates are drawn from the prior for each proposal.
    """

    sampler: Sampler = field(default_factory=lambda: GaussianProcess(tau=2.0, units=Units.STANDARD))
    start: int = 10
    candidates: int = 4096

    def __post_init__(self) -> None:
        if not isinstance(self.sampler, Sampler):
            raise _validate.fail("sampler", self.sampler, "give an object with weights(candidates, history)")
        _validate.integer(at_least=1, start=self.start)
        _validate.integer(at_least=1, candidates=self.candidates)

    def propose(self, space: Space, history: History, pending: Sequence[Params], entropy: Entropy) -> dict[str, Any]:
        """The candidate that the rule puts most of its weight on, relative to the prior."""
        number = len(history) + len(pending)
        if (scaled := on_scales(space)) is not space:
            space, history = scaled, _seen(history.params, history.scores, scaled)
        if number < self.start or len(history) == 0:
            return space.candidates(max(self.start, number + 1), Seeded(0)).params(number)
        candidates = space.candidates(self.candidates, entropy.child("candidates"))
        assumed = with_pending(space, history, pending)
        weights = np.asarray(self.sampler.weights(candidates, assumed), dtype=np.float64)
        return candidates.params(int(np.argmax(weights / candidates.masses)))


@dataclass(frozen=True)
class Evenly:
    """Spreads runs evenly over the prior of the only hyperparameter, whatever their scores. All can run at once.

    >>> from scipy.stats import loguniform
    >>> space, none = Space({"drift": loguniform(0.01, 100)}), History.empty(features=1, unit=1)
    >>> [round(Evenly(2).propose(space, none, [{}] * number, Seeded(0))["drift"], 3) for number in range(2)]
    [0.1, 10.0]
    """

    runs: int

    def propose(self, space: Space, history: History, pending: Sequence[Params], entropy: Entropy) -> dict[str, Any]:
        """The middle of the next part of the prior, which is cut into as many equal parts as there are runs."""
        place = ((len(history) + len(pending)) % self.runs + 0.5) / self.runs
        return space.from_unit(np.full((1, len(space.parameters)), place))[0]


@dataclass(frozen=True)
class FromOptuna:
    """Uses an Optuna sampler: GPSampler, TPE, CMA-ES or any other (``pip install dphypo[optuna]``).

    The sampler works over the unit cube in which every prior is uniform; see :class:`dphypo.samplers.OptunaSampler`.
    With a seed, a resumed survey proposes the same λ again.
    """

    sampler: BaseSampler

    def propose(self, space: Space, history: History, pending: Sequence[Params], entropy: Entropy) -> dict[str, Any]:
        """The sampler's proposal. It sees a pending run as one that scored the posterior mean of a Gaussian process."""
        return OptunaSampler(self.sampler).proposed(space, with_pending(space, history, pending))[0]


def read_proposer(proposer: object, runs: int = 20) -> Proposer:
    """Convert to a proposer: from one of this module, one of ``dphypo.samplers``, or an Optuna sampler."""
    if proposer is None:
        return SamplerProposer(start=max(runs // 2, 2))
    if isinstance(proposer, Proposer):
        return proposer
    if isinstance(proposer, Sampler):
        return SamplerProposer(proposer)
    if hasattr(proposer, "sample_relative"):
        return FromOptuna(proposer)  # type: ignore[arg-type]
    own = "an object with propose(space, history, pending, entropy)"
    remedy = f"give a sampler of dphypo.samplers or optuna.samplers, or {own}"
    raise _validate.fail("proposer", proposer, remedy)


def with_pending(space: Space, history: History, pending: Sequence[Params]) -> History:
    """The history, in which each pending run has the score that the finished ones predict."""
    if not pending or history.failed.all():
        return history
    where = Candidates(space, space.to_unit(pending))
    expected, _ = _SURROGATE.posterior(where, history)
    return _seen([*history.params, *pending], np.concatenate([history.scores, expected]), space)


_TRIED = 1024
_NEAR = 256  # perturbations of a point
_CANDIDATES = 4096
_SURROGATE = GaussianProcess(units=Units.STANDARD)


Pick = Callable[..., dict[str, Any]]
"""A public function of the published table that gives λ, called with (space, rows, maximize=...)."""


def posterior_mean(space: Space, rows: Sequence[Row], *, maximize: bool) -> dict[str, Any]:
    """λ with the best posterior mean under a Gaussian process on all published scores.

    The candidates are draws from the prior and the published λ, then perturbations of the best of those. The draws have
    a public seed, so anyone gets the same λ from the same table.
    """
    entropy, space = Seeded(0), on_scales(space)
    history = history_of(space, rows, maximize=maximize)
    if history.failed.all():
        raise _validate.fail("rows", len(rows), "no published run has a score")
    unit = np.vstack([space.candidates(_CANDIDATES, entropy.child("pick")).unit, history.unit])

    def best() -> Floats:
        mean, _ = _SURROGATE.posterior(Candidates(space, unit), history)
        return np.asarray(unit[np.argmax(mean)])

    for spread in (0.05, 0.02):
        steps = spread * (2 * uniforms(_NEAR * unit.shape[1], entropy.child(f"near {spread}")) - 1)
        near = np.clip(best() + steps.reshape(_NEAR, -1), 1e-9, 1 - 1e-9)
        unit = np.vstack([unit, near])
    return space.from_unit(best()[None])[0]


@dataclass(frozen=True)
class Parabola:
    """λ of a nearly known hyperparameter: the posterior mean of its best value, given noisy scores of runs around it.

    On a logarithmic scale, the best value is a priori normal around the middle of the runs, and scores are a parabola
    around it plus noise. Curvature and noise are unknown: they are averaged over a grid, with equal weight on a
    logarithmic scale. If scores are mostly noise, the mean stays near the middle. The best value for short runs is not
    quite the best for a full one, so only the part spread²/(spread² + transfer²) of the way to it is taken.

    Args:
        name: the name of the hyperparameter.
        spread: the standard deviation of the logarithm of its best value.
        transfer: the same for the best value of a full run, relative to that of short runs.

    >>> rows = [Row({"drift": 0.1 * 2**x}, score=0.9 - 0.1 * (x - 1) ** 2) for x in (-2, -1, 0, 1, 2)]
    >>> space = Space({"drift": loguniform(0.01, 1)})
    >>> 0.15 < Parabola("drift", 0.7)(space, rows, maximize=True)["drift"] < 0.25
    True
    """

    name: str
    spread: float
    transfer: float = 0.0

    def __call__(self, space: Space, rows: Sequence[Row], *, maximize: bool) -> dict[str, Any]:
        sign = 1.0 if maximize else -1.0
        done = [row for row in rows if row.score is not None]
        places = np.log([row.params[self.name] for row in rows])
        middle = float(places.mean())
        x = np.log([row.params[self.name] for row in done]) - middle
        scores = sign * np.array([row.score for row in done])
        wide = math.hypot(self.spread, self.transfer)
        best = np.linspace(-3, 3, 121) * wide
        curvature, noise = np.geomspace(1e-3, 1.0, 13), np.geomspace(1e-3, 0.3, 13)
        shape = -curvature[:, None, None] * (x - best[:, None]) ** 2  # curvature, best, run
        left = scores - shape
        left = left - left.mean(-1, keepdims=True)  # the height is free
        fit = (left**2).sum(-1)[:, :, None] / noise**2
        odds = np.exp(-0.5 * (fit - fit.min())) / noise ** max(len(done) - 1, 0)
        odds = odds.sum((0, 2)) * np.exp(-0.5 * (best / wide) ** 2)
        moved = float((odds * best).sum() / odds.sum()) if odds.sum() > 0 else 0.0
        moved *= (self.spread / wide) ** 2
        (dimension,) = (one.dimension for one in space.parameters if one.name == self.name)
        return {**rows[0].params, self.name: nearest_value(dimension, math.exp(middle + moved))}


def history_of(space: Space, rows: Sequence[Row], *, maximize: bool) -> History:
    """Published rows as a proposer or a surrogate sees them: larger scores are better."""
    scores = (1.0 if maximize else -1.0) * np.array([row.score for row in rows], dtype=np.float64)
    return _seen([row.params for row in rows], scores, space)


def _seen(params: Sequence[Params], scores: Floats, space: Space) -> History:
    unit = space.to_unit(params)
    return History(space.features(unit), unit, scores, np.isnan(scores), tuple(map(dict, params)))


def middle(space: Space) -> dict[str, Any]:
    """The middle of the prior: the median of every parameter."""
    return space.from_unit(np.full((1, len(space.parameters)), 0.5))[0]


def point_of(space: Space, params: Mapping[str, Any]) -> dict[str, Any]:
    """Check hyperparameters that were given by name, and return them as a point of the space.

    A prior such as the normal one allows every number but draws none beyond certain bounds. Runs are accounted for
    within these bounds, so a value proposed outside is moved inside. A run receives the values as declared: 64 for
    64.0, a tuple for a list, and Python numbers for numpy ones.
    """
    space.to_unit([params])
    dimensions = {parameter.name: parameter.dimension for parameter in space.parameters}
    point: dict[str, Any] = {}
    for name, value in params.items():
        dimension = dimensions[name]
        if isinstance(dimension, Finite):
            point[name] = dimension.choices[dimension.position(value)]
        else:
            number: Any = plain(name, value)
            point[name] = nearest_value(dimension, number)
    return point


def moved_into(prior: Space, declared: Space, params: Mapping[str, Any]) -> dict[str, Any]:
    """A point of the declared space, moved into a prior that may be narrower.

    A number outside the prior becomes the nearest one inside it; anything else, and a parameter that is active only
    there, takes the median of the prior.
    """
    given, kept = point_of(declared, params), {}
    unit = np.full((1, len(prior.parameters)), 0.5)
    for column, parameter in enumerate(prior.parameters):
        name, dimension = parameter.name, parameter.dimension
        if name in given and isinstance(dimension, Finite) and given[name] in dimension:
            kept[name] = given[name]
        elif name in given and dimension.ordered and is_number(given[name]):
            kept[name] = nearest_value(dimension, given[name])
        if name in kept:
            unit[0, column] = dimension.unit([kept[name]])[0]
    return {name: kept.get(name, value) for name, value in prior.from_unit(unit)[0].items()}


def nearest(space: Space, params: Mapping[str, Any], within: Within, entropy: Entropy) -> dict[str, Any]:
    """These hyperparameters if they may be run; else the nearest that may, of many draws from the prior."""
    if within(params):
        return dict(params)
    candidates = space.candidates(_TRIED, entropy.child("within"))
    allowed = [index for index in range(len(candidates)) if within(candidates.params(index))]
    if not allowed:
        raise _validate.fail("within", within, f"it excludes every one of {_TRIED} draws from the prior")
    there = space.features(space.to_unit([params]))[0]
    distances = np.linalg.norm(candidates.features[allowed] - there, axis=1)
    return candidates.params(allowed[int(np.argmin(distances))])


DECADE = 10.0


def on_scales(space: Space) -> Space:
    """The same values with another prior: log-uniform where it was uniform on a positive range of a decade or more.

    Other parameters stay as they are, and so does a prior that was shaped around a point.

    >>> from scipy.stats import uniform
    >>> on_scales(Space({"clip": uniform(0.5, 9.5), "dropout": uniform(0, 0.9), "layers": [1, 2, 4]}))
    Space({'clip': loguniform(a=0.5, b=10), 'dropout': uniform(scale=0.9), 'layers': [1, 2, 4]})
    """
    changed = {parameter.name: prior for parameter in space.parameters if (prior := _logarithmic(parameter))}
    return space.with_priors(changed) if changed and not space.shaped else space


def _logarithmic(parameter: Parameter) -> Any:
    """The prior of a parameter on a logarithmic scale; None if it keeps its own."""
    stated, dimension = parameter.description, parameter.dimension
    if isinstance(dimension, Finite):
        return None
    low, high = (float(end) for end in dimension.prior.support())
    wide = stated.get("distribution") == "uniform" and 0 < DECADE * low <= high
    return loguniform(low, high) if wide else None


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


@dataclass(frozen=True)
class Policy:
    """A search rule kept inside the band, and what the guarantee assumes about it.

    It is built from the arguments of a study and fills in those left out. ``cells`` is the ``grid`` of a study;
    ``first`` is n₀, how many of the first runs are drawn from the prior: samplers of this library have a ``start``.
    """

    band: Band
    sampler: Sampler
    projection: Projection
    candidates: int
    cells: Mapping[str, int] | None
    policy: PolicyClass
    first: int

    def __post_init__(self) -> None:
        given: dict[str, Any] = dict(vars(self))
        sampler = default_sampler(self.band) if given["sampler"] is None else _checked_sampler(given["sampler"])
        into = named_projection(given["projection"]) if isinstance(given["projection"], str) else given["projection"]
        if not isinstance(into, Projection):
            raise _validate.fail("projection", into, "give one, such as dphypo.band.Greedy(), or its name")
        if _validate.integer(at_least=1, candidates=self.candidates) > MOST_CANDIDATES:
            raise _validate.fail("candidates", self.candidates, f"give at most {MOST_CANDIDATES}")
        if given["first"] is None:
            ours = type(sampler).__module__.startswith("dphypo.samplers.")
            first = int(getattr(sampler, "start", 1)) if ours else 1
        else:
            first = _validate.integer(at_least=1, first_from_prior=given["first"])
        policy = _claim(given["policy"], sampler, into)
        vars(self).update(sampler=sampler, projection=into, cells=_cells(self.cells), policy=policy, first=first)

    @property
    def adaptive(self) -> bool:
        """Whether the history matters: with c = C = 1 the prior is the only density in the band."""
        return self.band.C > 1

    @property
    def history_only(self) -> bool:
        """Whether the guarantee relies on a search rule that sees only the history."""
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
class DrawnRuns:
    """What decides the runs of a study: T is drawn from its law, and λ inside the band.

    With ``grid``, that set of cells with its masses is the prior for the whole search. Without it, fresh candidates are
    drawn for every run, each from the prior given everything before: reusing one set, or one Sobol sequence, for
    several runs would break the band.
    """

    law: Law
    policy: Policy
    space: Space  # in which the search rule sees λ
    grid: Grid | None
    lag: int | None  # how many of the latest runs λ of the next one may not depend on; None: as many as are under way

    published: ClassVar[bool] = False  # whether all results are

    @property
    def in_order(self) -> bool:
        """Whether the guarantee assumes that results are used in the order of the runs, not of their ends."""
        return self.policy.history_only

    def draw_total(self, entropy: Entropy) -> int:
        """How many runs there are."""
        return self.law.sample(entropy.child("T"))

    def possible(self, total: int) -> bool:
        """Whether there may be this many runs: a journal that says otherwise was tampered with."""
        return bool(self.law.pmf(total) > 0)

    def groups(self, workers: int) -> GroupSizes | None:
        """How many runs to give at a time to a mechanism that executes many at once; None for one by one."""
        return GroupSizes(workers, workers) if workers > 1 else None

    def usable(self, number: int, lag: int, groups: GroupSizes | None) -> int | None:
        """How many of the first runs λ of this one depends on; None for all that have ended."""
        return max(number - lag, 0) if self.in_order else None

    def display(self, record: Callable[[], Record], *, show: bool, on_run: object) -> Display:
        """Shows nothing: how many runs have ended is secret."""
        return contextlib.nullcontext(lambda trial, outcome: None)

    def draw(self, past: Past, record: Record, usable: int | None, entropy: Entropy) -> dict[str, Any]:
        """λ, drawn from the prior itself while the search rule sees fewer than ``first`` results.

        A run never sees more results than there are runs before it, so the first n₀ = ``first`` runs are drawn from the
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
            return policy.band.project(weights, prior, policy.projection)
        except Exception as error:
            failure = error
        # Raised here, outside the handler: the rule's own error may quote the history and is not to be printed.
        raise SamplerError(policy.sampler, failure)


_LARGEST_GROUP = 64


@dataclass(frozen=True)
class DeclaredRuns:
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
    in_order: ClassVar[bool] = False

    @classmethod
    def once(
        cls, prior: Space, params: Callable[[], dict[str, Any]], *, within: Within | None = None, table: bool = False
    ) -> DeclaredRuns:
        """One run, at λ that was published or follows from public values."""
        return cls(1, prior, prior, lambda *_: params(), 0, within=within, table=table)

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


Runs: TypeAlias = DrawnRuns | DeclaredRuns
"""What decides the runs of a part: how many there are, λ of each, and what λ may depend on."""


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
