"""Where the last run is made: a public function of the published table.

Scores are noisy, and the best of many noisy scores is often a lucky one. The posterior mean of a Gaussian process
shares what neighbouring runs say, so its maximum is taken instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from dphypo import _validate
from dphypo.entropy import Entropy, Seeded, uniforms
from dphypo.samplers import GaussianProcess, History
from dphypo.samplers.units import Units
from dphypo.search.scales import on_scales
from dphypo.search.table import Row
from dphypo.search.terms import Within
from dphypo.space import Candidates, Space
from dphypo.space.unit import interior

_TRIED = 1024


class Pick(Protocol):
    """A public function of the published table that gives λ."""

    def __call__(self, space: Space, rows: Sequence[Row], *, maximize: bool) -> dict[str, Any]: ...


@dataclass(frozen=True)
class PosteriorMean:
    """λ with the best posterior mean under a Gaussian process on all published scores.

    It is sought among candidates from the prior and the published λ, then among perturbations of the best of those. A
    positive number that spans a decade or more is seen on a logarithmic scale (``survey/scales.py``).

    Args:
        sampler: the Gaussian process.
        candidates: how many candidates are drawn from the prior.
        seed: of those draws. It is public: the same table gives the same λ to anybody.

    >>> from scipy.stats import uniform
    >>> rows = [Row({"x": x}, -((x - 0.6) ** 2)) for x in (0.05, 0.3, 0.5, 0.7, 0.95)]
    >>> chosen = PosteriorMean()(Space({"x": uniform()}), rows, maximize=True)
    >>> 0.5 <= chosen["x"] <= 0.7
    True
    """

    sampler: GaussianProcess = field(default_factory=lambda: GaussianProcess(units=Units.STANDARD))
    candidates: int = 4096
    seed: int = 0

    def __post_init__(self) -> None:
        _validate.integer(at_least=1, candidates=self.candidates)

    def __call__(self, space: Space, rows: Sequence[Row], *, maximize: bool) -> dict[str, Any]:
        entropy, space = Seeded(self.seed), on_scales(space)
        history = history_of(space, rows, maximize=maximize)
        if history.failed.all():
            raise _validate.fail("rows", len(rows), "no published run has a score: use the fallback")
        unit = np.vstack([space.candidates(self.candidates, entropy.child("pick")).unit, history.unit])
        for spread in (0.05, 0.02):
            unit = np.vstack([unit, perturbed(unit[_best(self.sampler, space, unit, history)], spread, entropy)])
        return space.from_unit(unit[_best(self.sampler, space, unit, history)][None])[0]


def _best(sampler: GaussianProcess, space: Space, unit: np.ndarray[Any, Any], history: History) -> int:
    mean, _ = sampler.posterior(Candidates(space, unit), history)
    return int(np.argmax(mean))


def perturbed(point: np.ndarray[Any, Any], spread: float, entropy: Entropy, count: int = 256) -> np.ndarray[Any, Any]:
    """Points near a point of the unit cube."""
    steps = spread * (2 * uniforms(count * len(point), entropy.child(f"near {spread}")) - 1)
    return np.clip(point + steps.reshape(count, len(point)), 1e-9, 1 - 1e-9)


def history_of(space: Space, rows: Sequence[Row], *, maximize: bool) -> History:
    """Published rows as an optimiser or a surrogate sees them: larger scores are better."""
    sign = 1.0 if maximize else -1.0
    scores = np.array([np.nan if row.score is None else sign * row.score for row in rows])
    params = tuple(dict(row.params) for row in rows)
    unit = space.to_unit(params) if params else np.empty((0, len(space.parameters)))
    return History(space.features(unit), unit, scores, np.isnan(scores), params)


def middle(space: Space) -> dict[str, Any]:
    """The middle of the prior: the median of every parameter.

    >>> middle(Space({"layers": [1, 2, 3]}))
    {'layers': 2}
    """
    return space.from_unit(np.full((1, len(space.parameters)), 0.5))[0]


def point_of(space: Space, params: Mapping[str, Any]) -> dict[str, Any]:
    """Hyperparameters that were given by name, refused unless they are a point of the space.

    A prior such as the normal one allows every number and draws none beyond some: runs are accounted for as far as it
    draws, so what is proposed beyond is moved there.

    >>> from scipy.stats import norm
    >>> round(point_of(Space({"x": norm()}), {"x": 50.0})["x"], 1)
    6.3
    """
    space.to_unit([params])
    given = dict(params)
    for parameter in space.parameters:
        dimension: Any = parameter.dimension
        if parameter.name in given and dimension.ordered and dimension.size is None:
            first, last = sorted(dimension.values(interior(np.array([0.0, 1.0]))))
            given[parameter.name] = min(max(given[parameter.name], first), last)
    return given


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
