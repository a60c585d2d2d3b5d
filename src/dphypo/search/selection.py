"""Which run is best, and what a search rule is told of the others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dphypo.journal import Record, Trial
from dphypo.mechanisms import Outcome
from dphypo.samplers import History
from dphypo.search.release import Ending
from dphypo.space import Space


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
    """What a complete study has found."""
    if record.best is not None:
        return Ending.MODEL
    return Ending.ALL_FAILED if record.trials else Ending.NO_RUN


def history(record: Record, space: Space, sign: float) -> History:
    """The finished runs in the order in which their λ were drawn."""
    done = [trial.number for trial in record.trials if trial.number in record.results]
    results = [record.results[number] for number in done]
    unit = _units(record, space)[done]
    scores = np.array([np.nan if result.score is None else sign * result.score for result in results])
    params = tuple(dict(record.trials[number].params) for number in done)
    return History(space.features(unit), unit, scores, np.isnan(scores), params)


def _units(record: Record, space: Space) -> npt.NDArray[np.float64]:
    """The λ of every run in the unit cube. Each is computed once: a draw costs the same after any number of runs."""
    known = 0 if record.units is None else len(record.units)
    if record.units is None or known < len(record.trials):
        fresh = space.to_unit([trial.params for trial in record.trials[known:]])
        record.units = fresh if record.units is None else np.concatenate([record.units, fresh])
    return record.units
