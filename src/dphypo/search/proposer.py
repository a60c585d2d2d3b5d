"""How a survey proposes λ of its next run, and what it recommends.

A survey has no band: any function of what is published may propose λ, one of our search rules or a sampler of Optuna.
The last run is executed where the posterior mean of a Gaussian process is best: the best of many noisy scores is often
a lucky one. A positive number that spans a decade or more is searched on a logarithmic scale: learning rates and
clipping norms act by factors, and published runs need not follow the prior. On MNIST, whose clipping norm has a uniform
prior from 0.3 to 6, this removes a third of the regret of a survey (``python -m benchmarks.scales``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from scipy.stats import loguniform

from dphypo import _validate
from dphypo._validate import Floats
from dphypo.entropy import Entropy, Seeded, uniforms
from dphypo.samplers import GaussianProcess, History, OptunaSampler, Sampler
from dphypo.samplers.gaussian_process import Units
from dphypo.search.release import Row
from dphypo.space import Candidates, Space
from dphypo.space.dimension import Finite, Parameter, is_number, nearest_value, plain

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
    """The middle of the prior: the median of every parameter, a number to the nine digits that a prior is drawn to."""
    params = space.from_unit(np.full((1, len(space.parameters)), 0.5))[0]
    for parameter in space.parameters:
        value = params.get(parameter.name)
        if isinstance(value, float) and not isinstance(parameter.dimension, Finite):
            params[parameter.name] = nearest_value(parameter.dimension, float(f"{value:.9g}"))
    return params


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
