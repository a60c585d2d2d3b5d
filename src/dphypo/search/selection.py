"""Which run is best, and what those who propose the next λ are told of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from dphypo.journal.records import Record, Trial
from dphypo.mechanisms import Outcome
from dphypo.samplers import History
from dphypo.search.release import Ending
from dphypo.space import Space

Floats = npt.NDArray[np.float64]


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
    """The runs of a part as arrays in the unit cube of a space; scores times ``sign`` are better the larger they are.

    Each run is converted once: a draw costs the same after any number of runs.
    """

    def __init__(self, space: Space, sign: float) -> None:
        self._space, self._sign = space, sign
        self._unit: Floats = np.empty((0, len(space.parameters)))
        self._features: Floats = space.features(self._unit)
        self._scores: Floats = np.empty(0)
        self._trials = self._ended = 0

    def ended(self, record: Record) -> int:
        """How many of the first runs have ended, before one that has not."""
        while self._ended in record.results:
            score = record.results[self._ended].score
            self._scores = _room(self._scores, self._ended + 1)
            self._scores[self._ended] = np.nan if score is None else self._sign * score
            self._ended += 1
        return self._ended

    def history(self, record: Record, usable: int | None) -> History:
        """The first ``usable`` runs, which have ended; with None, all that have ended."""
        ended = self.ended(record)
        self._convert(record)
        if usable is not None:
            return self._rows(record, range(usable), self._scores[:usable])
        later = [number for number in range(ended, len(record.trials)) if number in record.results]
        if not later:
            return self._rows(record, range(ended), self._scores[:ended])
        more = [record.results[number].score for number in later]
        scores = np.array([np.nan if score is None else self._sign * score for score in more])
        return self._rows(record, [*range(ended), *later], np.concatenate([self._scores[:ended], scores]))

    def pending(self, record: Record, usable: int | None) -> list[dict[str, Any]]:
        """The λ of the runs that were drawn and whose results may not be used."""
        first = self.ended(record) if usable is None else usable
        unknown = [n for n in range(first, len(record.trials)) if usable is not None or n not in record.results]
        return [dict(record.trials[number].params) for number in unknown]

    def _rows(self, record: Record, numbers: Sequence[int], scores: Floats) -> History:
        rows: Any = slice(len(numbers)) if isinstance(numbers, range) else np.array(numbers)
        params = Params(record.trials, numbers)
        return History(self._features[rows], self._unit[rows], scores, np.isnan(scores), params)

    def _convert(self, record: Record) -> None:
        total = len(record.trials)
        if self._trials == total:
            return
        fresh = self._space.to_unit([trial.params for trial in record.trials[self._trials :]])
        self._unit, self._features = _room(self._unit, total), _room(self._features, total)
        self._unit[self._trials : total] = fresh
        self._features[self._trials : total] = self._space.features(fresh)
        self._trials = total


class Params(Sequence[Mapping[str, Any]]):
    """The hyperparameters of some runs, read where they are."""

    def __init__(self, trials: Sequence[Trial], numbers: Sequence[int]) -> None:
        self._trials, self._numbers = trials, numbers

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Params: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | Params:
        if isinstance(index, slice):
            return Params(self._trials, self._numbers[index])
        return dict(self._trials[self._numbers[index]].params)

    def __len__(self) -> int:
        return len(self._numbers)


def _room(rows: Floats, needed: int) -> Floats:
    """The array with room for so many rows: twice as much each time, so that all of them together are copied once."""
    if len(rows) >= needed:
        return rows
    larger = np.empty((max(2 * len(rows), needed, 16), *rows.shape[1:]))
    larger[: len(rows)] = rows
    return larger
