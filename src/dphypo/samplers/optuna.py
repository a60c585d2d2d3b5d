"""Optuna's samplers in a study: the weights decrease with the distance to the points that Optuna proposes."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy.spatial.distance import cdist

from dphypo import _validate
from dphypo._validate import Floats
from dphypo.samplers.sampler import History
from dphypo.space import Candidates, Grid, Space
from dphypo.space.dimension import MIDDLE
from dphypo.space.space import is_active

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import Trial

Params: TypeAlias = Mapping[str, Any]


def near(points: Sequence[Params], candidates: Candidates | Grid, fraction: float) -> Floats:
    """The prior mass times exp(−u/``fraction``), where u is the prior mass closer to the points than the candidate.

    An optimiser that proposes one point cannot be followed exactly, because the band allows no density above C. Its
    proposal becomes a preference among the candidates, the nearest first. For ``Greedy`` only this order matters: it
    puts C on the nearest prior mass p that the band allows, whatever the fraction. Distance is measured over all
    parameters, each in units of its prior's spread.
    """
    masses = np.asarray(candidates.masses, dtype=np.float64)
    if not points:
        return masses.copy()
    scale = scales(candidates.space)
    features = candidates.space.features(candidates.space.to_unit(points))
    # Rounded, so that points at the same distance get the same weight.
    distances = np.round(cdist(candidates.features * scale, features * scale).min(axis=1), 12)
    order = np.argsort(distances, kind="stable")
    before = np.concatenate([[0.0], np.cumsum(masses[order])])
    nearer = before[np.searchsorted(distances[order], distances, side="left")]
    return np.asarray(masses * np.exp(-np.minimum(nearer / fraction, 600.0)))


def scales(space: Space) -> Floats:
    """Factors for the feature columns, so that each parameter contributes 2 to the mean squared distance of two draws.

    A number is uniform on (0, 1) as a feature: its squared distance has mean 1/6. A category with k equally likely
    choices is k columns, one of them 1: two draws differ with probability 1 − 1/k, and then by 2.
    """
    dimensions = [parameter.dimension for parameter in space.parameters]
    squares = [12.0 if one.ordered else 1.0 / max(1.0 - 1.0 / one.width, 0.5) for one in dimensions]
    return np.asarray(np.sqrt(np.repeat(squares, [one.width for one in dimensions])))


_STRIDE = 1024  # random numbers reserved for the proposals of one run


@dataclass(frozen=True)
class OptunaSampler:
    """The proposals of a sampler of Optuna, as weights that decrease with the distance to them.

    With ``history_only=True`` you state that the sampler's proposals depend on the history and on independent
    randomness only: neither its settings (``gamma``, ``constraints_func``, an inner sampler) nor your own code in it
    may look at the data, the clock or anything else. The search then costs less (Theorem H), and the certificate
    names the statement as yours.

    The sampler works in an in-memory study over the unit cube, where every prior is uniform. It is copied and told the
    whole history for every draw, with the parameters that were drawn, so that samplers that keep state between ask and
    tell (CMA-ES, genetic algorithms) work too. Optuna's log is silenced, because it would show scores. If the sampler
    has a seed, a resumed study is reproducible; without one only the privacy is the same.

    Args:
        sampler: from ``optuna.samplers`` (``pip install dphypo[optuna]``).
        proposals: number of proposals per step.
        fraction: the prior mass around the proposals over which the weight decreases by a factor e.
        history_only: your statement that the sampler sees only the history.

    >>> import optuna
    >>> OptunaSampler(optuna.samplers.TPESampler(seed=0), history_only=True).proposals
    1
    """

    sampler: BaseSampler
    proposals: int = 1
    fraction: float = 0.2
    history_only: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.sampler, type) or not hasattr(self.sampler, "sample_relative"):
            raise _validate.fail("sampler", self.sampler, "give a sampler of Optuna, such as TPESampler()")
        object.__setattr__(self, "proposals", _validate.integer(at_least=1, proposals=self.proposals))
        object.__setattr__(self, "fraction", _validate.positive(fraction=self.fraction))
        object.__setattr__(self, "history_only", _validate.flag(history_only=self.history_only))

    def weights(self, candidates: Candidates | Grid, history: History) -> Floats:
        """The prior mass times exp(−u/fraction), where u is the prior mass closer to the proposals."""
        return near(self.proposed(candidates.space, history), candidates, self.fraction)

    def proposed(self, space: Space, history: History) -> list[dict[str, Any]]:
        """The hyperparameters that Optuna proposes after this history."""
        from optuna import create_study

        with _silence():
            study = create_study(direction="maximize", sampler=deepcopy(self.sampler))
            for index in range(len(history)):
                _tell(study, space, history, index)
            _advance(study.sampler, len(history))
            points = np.array([_suggested(study.ask(), space) for _ in range(self.proposals)])
        return space.from_unit(points)


def _tell(study: Study, space: Space, history: History, index: int) -> None:
    """Tell one run of the history, with its own parameters instead of those the sampler would have chosen."""
    from optuna.samplers import GPSampler, RandomSampler, TPESampler
    from optuna.trial import TrialState

    fixed: dict[str, float] = {}
    for parameter, coordinate in zip(space.parameters, history.unit[index].tolist(), strict=True):
        if parameter.name in history.params[index]:
            dimension: Any = parameter.dimension
            place = coordinate if dimension.ordered else int(dimension.positions(np.array([coordinate]))[0])
            fixed[parameter.name] = place
    study.enqueue_trial(fixed)
    trial = study.ask()
    if not isinstance(study.sampler, (TPESampler, GPSampler, RandomSampler)):
        # Sampling may store state on the trial that the sampler reads later. These three read only parameters and
        # values, and need not sample for a past run.
        _ = trial.relative_params
    _suggested(trial, space)
    if history.failed[index]:
        study.tell(trial, state=TrialState.FAIL)
    else:
        study.tell(trial, float(history.scores[index]))


def _advance(sampler: BaseSampler, runs: int) -> None:
    """Advance the sampler's random numbers, so that every run has its own: past runs are told without drawing any."""
    from optuna.samplers import BaseSampler

    for held in vars(sampler).values():
        if isinstance(held, BaseSampler):
            _advance(held, runs)
        elif isinstance(state := getattr(held, "rng", None), np.random.RandomState):
            state.random_sample(_STRIDE * runs)


def _suggested(trial: Trial, space: Space) -> Floats:
    """The point of the unit cube that a trial suggests; inactive parameters are in the middle."""
    point = np.full((1, len(space.parameters)), MIDDLE)
    for place, parameter in enumerate(space.parameters):
        dimension: Any = parameter.dimension
        if is_active(parameter, space.parameters, point)[0]:
            if dimension.ordered:
                point[0, place] = trial.suggest_float(parameter.name, 0.0, 1.0)
            else:
                point[0, place] = dimension.centres[trial.suggest_categorical(parameter.name, range(dimension.size))]
    return point.ravel()


_SILENT = threading.RLock()


@contextmanager
def _silence() -> Iterator[None]:
    """Optuna without its log and warnings, which would show scores, and how many runs were drawn.

    Both are settings of the process: the first of two threads to leave would end the silence of the other.
    """
    from optuna import logging

    with _SILENT:
        verbosity = logging.get_verbosity()
        logging.set_verbosity(logging.CRITICAL)
        try:
            with warnings.catch_warnings(action="ignore"):
                yield
        finally:
            logging.set_verbosity(verbosity)
