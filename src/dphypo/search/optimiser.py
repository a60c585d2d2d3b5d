"""Optimisers of a survey: any function of what is published may propose the next λ. There is no band.

One face for our own search rules and for Optuna's samplers. Runs that are still under way are *pending*: an optimiser
is told where they are and not what they will give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from dphypo import _validate
from dphypo.entropy import Entropy, Seeded
from dphypo.samplers import GaussianProcess, History, OptunaSampler, Sampler
from dphypo.samplers.units import Units
from dphypo.search.scales import on_scales
from dphypo.space import Candidates, Space

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

Params = Mapping[str, Any]


@runtime_checkable
class Optimiser(Protocol):
    """Proposes the hyperparameters of the next run of a survey."""

    def propose(self, space: Space, history: History, pending: Sequence[Params], entropy: Entropy) -> dict[str, Any]:
        """λ of the next run.

        Args:
            space: the hyperparameters and their prior.
            history: the finished runs that may be used, scores larger the better; all of it is public.
            pending: the hyperparameters of runs that were proposed and whose results may not be used yet.
            entropy: where randomness comes from.
        """
        ...


@dataclass(frozen=True)
class Following:
    """Follows one of ``dphypo.samplers`` without a band: the candidate with the largest weight is proposed.

    With the default rule, a Gaussian process on standardised scores, that is the largest μ + 2σ: the upper confidence
    bound. A pending run counts as one that gave the posterior mean, so that runs made side by side spread out. A
    positive number that spans a decade or more is searched by its logarithm (``survey/scales.py``). The defaults are
    those that lost least in simulated surveys of twenty runs (``paper/RESULTS.md``).

    Args:
        sampler: the search rule; by default a Gaussian process.
        start: how many runs are spread over the prior first: the points of a scrambled Sobol set. A survey whose
            optimiser is not given takes half of its runs.
        candidates: how many candidates are drawn from the prior for each proposal.
        seed: of the scramble. It is public, as is all that an optimiser does.

    >>> from scipy.stats import uniform
    >>> from dphypo.entropy import Seeded
    >>> space = Space({"x": uniform()})
    >>> proposed = Following().propose(space, History.empty(features=1, unit=1), [], Seeded(0))
    >>> list(proposed)
    ['x']
    """

    sampler: Sampler = field(default_factory=lambda: GaussianProcess(tau=2.0, units=Units.STANDARD))
    start: int = 10
    candidates: int = 4096
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.sampler, Sampler):
            raise _validate.fail("sampler", self.sampler, "give an object with weights(candidates, history)")
        _validate.integer(at_least=1, start=self.start)
        _validate.integer(at_least=1, candidates=self.candidates)

    def propose(self, space: Space, history: History, pending: Sequence[Params], entropy: Entropy) -> dict[str, Any]:
        """The candidate that the rule puts most of its weight on, relative to the prior."""
        number = len(history) + len(pending)
        if (scaled := on_scales(space)) is not space:
            space, unit = scaled, scaled.to_unit(history.params) if history.params else history.unit
            history = History(space.features(unit), unit, history.scores, history.failed, history.params)
        if number < self.start or len(history) == 0:
            return space.candidates(max(self.start, number + 1), Seeded(self.seed)).params(number)
        candidates = space.candidates(self.candidates, entropy.child("candidates"))
        assumed = with_pending(space, history, pending)
        weights = np.asarray(self.sampler.weights(candidates, assumed), dtype=np.float64)
        return candidates.params(int(np.argmax(weights / candidates.masses)))


@dataclass(frozen=True)
class FromOptuna:
    """Follows a sampler of Optuna: GPSampler, TPE, CMA-ES or any other (``pip install dphypo[optuna]``).

    The sampler works over the unit cube in which every prior is uniform; see :class:`dphypo.samplers.OptunaSampler`.
    Give it a seed, and a resumed survey proposes the same again.

    >>> import optuna
    >>> from dphypo.entropy import Seeded
    >>> space = Space({"width": [8, 16, 32]})
    >>> chosen = FromOptuna(optuna.samplers.TPESampler(seed=0))
    >>> chosen.propose(space, History.empty(features=1, unit=1), [], Seeded(0))["width"] in (8, 16, 32)
    True
    """

    sampler: BaseSampler
    _rule: OptunaSampler = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rule", OptunaSampler(self.sampler))

    def propose(self, space: Space, history: History, pending: Sequence[Params], entropy: Entropy) -> dict[str, Any]:
        """What the sampler proposes; to it a pending run is one that gave the posterior mean of a Gaussian process."""
        return self._rule.proposed(space, with_pending(space, history, pending))[0]


def read(optimiser: object, runs: int = 20) -> Optimiser:
    """An optimiser from what people give: one of ours, one of ``dphypo.samplers``, or a sampler of Optuna."""
    if optimiser is None:
        return Following(start=max(runs // 2, 2))
    if isinstance(optimiser, Optimiser):
        return optimiser
    if isinstance(optimiser, Sampler):
        return Following(optimiser)
    if hasattr(optimiser, "sample_relative"):
        return FromOptuna(optimiser)  # type: ignore[arg-type]
    raise _validate.fail(
        "optimiser",
        optimiser,
        "give a sampler of dphypo.samplers or optuna.samplers, or an object with propose(space, history, pending, "
        "entropy)",
    )


def space_for(optimiser: Optimiser, space: Space) -> Space:
    """The space in which an optimiser sees the runs: our own searches a number over decades by its logarithm."""
    return on_scales(space) if isinstance(optimiser, Following) else space


def with_pending(space: Space, history: History, pending: Sequence[Params]) -> History:
    """The history with each pending run as one that gave what the finished ones lead to expect."""
    if not pending or history.failed.all():
        return history
    unit = space.to_unit(pending)
    where = Candidates(space, unit)
    scores, _ = GaussianProcess(units=Units.STANDARD).posterior(where, history)
    return History(
        np.vstack([history.features, where.features]),
        np.vstack([history.unit, unit]),
        np.concatenate([history.scores, scores]),
        np.concatenate([history.failed, np.zeros(len(scores), dtype=np.bool_)]),
        (*history.params, *map(dict, pending)),
    )
