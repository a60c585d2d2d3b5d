"""Poisson batches as numbers of records, in arrays of fixed shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dphypo import noise

Indices = npt.NDArray[np.int64]


class Sampler:
    """The Poisson batches of one run: each record independently with the rate, in every step.

    Args:
        words: the run's; the batches and the subsample have streams of their own.
        size: how many records there are, which is private.
        rate: the probability with which a step takes a record.
        subsample: the probability with which the run may use a record at all.
    """

    def __init__(self, words: noise.Words, size: int, rate: float, subsample: float = 1.0) -> None:
        self._words, self._rate = words.stream("batches"), rate
        self._kept = noise.chosen(subsample, words.stream("subsample"), size)

    def batches(self, steps: int) -> tuple[Indices, Indices, Indices]:
        """The batches of the next steps: for each record taken its step, its place in the batch, and its number."""
        size = len(self._kept)
        taken = noise.chosen(self._rate, self._words, steps * size)
        step, number = np.divmod(taken, max(1, size))
        starts = np.searchsorted(step, np.arange(steps))
        return step, np.arange(len(taken)) - starts[step], self._kept[number]


def draw(
    samplers: Sequence[Sampler], steps: int, size: int, count: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Numbers of records, and which are some, for the next steps of all runs, [steps, pieces, runs, size].

    A step has ``count`` pieces of so many records. A batch that does not fit makes more of them.
    """
    drawn = [sampler.batches(steps) for sampler in samplers]
    longest = max((int(place.max()) + 1 for _, place, _ in drawn if len(place)), default=0)
    shape = (steps, max(count, -(-longest // size)), len(drawn), size)
    numbers, valid = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
    for run, (step, place, number) in enumerate(drawn):
        piece, row = np.divmod(place, size)
        numbers[step, piece, run, row], valid[step, piece, run, row] = number, True
    return numbers, valid
