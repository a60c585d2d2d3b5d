"""The ways to tune, many searches at once, on any trainer: nothing here knows of an accountant.

Every function takes a way as ``plans.json`` states it and returns the accuracy, on the public test, of what each search
releases. Draws are seeded: this measures utility. Every run has batches, noise and, where it is scored, score noise of
its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paper.anchors.structure import Structure
from paper.anchors.tasks import Task
from paper.anchors.trainer import Floats, Records, Runs, Trainer
from paper.simulate.survey_optimiser import Optimiser, Surveys, even

Way = dict[str, Any]


@dataclass
class Bench:
    """A trainer for a task, with a seed for each group of runs and a count of the examples processed.

    Args:
        factor: learning rate of short runs of ours over the full run's.
        most: how many runs are trained at once.
    """

    task: Task
    structure: Structure
    trainer: Trainer
    share: float
    seed: int
    factor: float = 1.0
    most: int = 96
    examples: float = 0.0
    tests: int = 10_000

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    @property
    def scored(self) -> int:
        """The declared number of records that score."""
        return round(self.task.records * self.share)

    def runs(self, rate: Floats, noise: float, fraction: float = 1.0, *, everyone: bool = True) -> Runs:
        """Runs of a fraction of the steps, one for each learning rate; ``noise`` is that of all steps together."""
        shape, ones = self.structure, np.ones(len(rate))
        steps = round(fraction * shape.steps)
        used = self.task.records if everyone else self.task.records - self.scored
        batch = shape.batch or used
        return Runs(
            rate, shape.clip * ones, noise * math.sqrt(steps) * ones, steps, batch / used, batch,
            Records.ALL if everyone else Records.TRAINING, 0, shape.memories, shape.kept(steps), shape.decay,
        )  # fmt: skip

    def scores(self, runs: Runs, noise: float) -> Floats:
        """The share of the records that score which each run gets right, with noise on the count."""
        return self._noisy(
            np.concatenate([self.trainer.correct(models, test=False) for models in self._made(runs)]), noise
        )

    def accuracies(self, runs: Runs) -> Floats:
        """Of each run on the test."""
        return np.concatenate([self.trainer.correct(models, test=True) for models in self._made(runs)]) / self.tests

    def both(self, runs: Runs, noise: float) -> tuple[Floats, Floats]:
        """Scores and accuracies of the same models."""
        pairs = [[self.trainer.correct(models, test=test) for test in (False, True)] for models in self._made(runs)]
        right, judged = np.concatenate(pairs, axis=1)
        return self._noisy(right, noise), judged / self.tests

    def next_seed(self) -> int:
        self.seed += 1
        return self.seed

    def _noisy(self, right: Floats, noise: float) -> Floats:
        return np.asarray((right + noise * self.random.standard_normal(len(right))) / self.scored)

    def _made(self, runs: Runs) -> Iterator[Any]:
        """The models of all runs, group by group."""
        self.examples += len(runs) * runs.examples
        for begin in range(0, len(runs), self.most):
            yield self.trainer.train(runs.part(slice(begin, begin + self.most), self.next_seed()))


def survey(bench: Bench, way: Way, searches: int) -> dict[str, Any]:
    """Half of the short runs spread evenly, the others where a Gaussian process hopes for most; then one full run."""
    rates, fraction = bench.structure.rates, way["fraction"]
    features, start = np.linspace(0, 1, len(rates))[:, None], (way["count"] + 1) // 2
    found = Surveys(features, Optimiser(start=start), searches)
    shift = bench.random.random((searches, 1))
    first = np.stack([even(features, number, shift) for number in range(start)], axis=1)

    def scores(cells: Any) -> Floats:
        runs = bench.runs(bench.factor * rates[cells], way["noise"] / fraction, fraction, everyone=False)
        return bench.scores(runs, way["score noise"])

    for number, column in enumerate(scores(first.ravel()).reshape(searches, start).T):
        found.observe(first[:, number], column)
    for _ in range(way["count"] - start):
        cells = found.next_cells()
        found.observe(cells, scores(cells))
    last = rates[found.best_mean()]
    table = {"rates": rates[found.cells].round(6).tolist(), "scores": found.scores.round(4).tolist()}
    return {"released": bench.accuracies(bench.runs(last, way["noise"])), "picked": last, "table": table}


def one_run(bench: Bench, way: Way, searches: int) -> dict[str, Any]:
    """One run at a fixed learning rate, or at the one that is best on the test (which nobody may know)."""
    rate, curve = bench.structure.untuned, {}
    if way.get("hindsight"):
        rates = bench.structure.rates[::3]
        known = bench.accuracies(bench.runs(np.repeat(rates, 3), way["noise"])).reshape(-1, 3).mean(axis=1)
        rate = float(rates[smooth(known).argmax()])
        curve = {"curve": [rates.round(6).tolist(), known.round(4).tolist()]}
    rates = np.full(searches, rate)
    return {"released": bench.accuracies(bench.runs(rates, way["noise"])), "picked": rates, **curve}


def smooth(curve: Floats) -> Floats:
    """Each value averaged with its neighbours."""
    return np.convolve(np.pad(curve, 1, mode="edge"), [0.25, 0.5, 0.25], mode="valid")


def geometric(bench: Bench, way: Way, searches: int) -> dict[str, Any]:
    """A secret number of full runs at random learning rates; the best by its score is released."""
    lengths = way["lengths"][:searches]
    rates = bench.random.choice(bench.structure.rates, sum(lengths))
    scores, judged = bench.both(bench.runs(rates, way["noise"], everyone=False), way["score noise"])
    best = _best(scores, lengths)
    return {"released": judged[best], "picked": rates[best]}


def subset(bench: Bench, way: Way, searches: int) -> dict[str, Any]:
    """Runs on random subsets, each of all steps; the best learning rate is scaled to all records.

    Noise beside the mean gradient is larger by one over the subset's share. For SGD the learning rate is smaller by
    it; Adam's steps do not depend on it.
    """
    lengths, rates, share = way["lengths"][:searches], bench.structure.rates, way["subset"]
    scale = share if bench.structure.second is None else 1.0
    tried = bench.random.choice(rates, sum(lengths))
    runs = bench.runs(tried * scale, way["noise"], everyone=False)
    scores = bench.scores(replace(runs, subset=share, batch=runs.batch * share), way["score noise"])
    middle = float(np.sqrt(rates[0] * rates[-1]))
    best = iter(_best(scores, [length for length in lengths if length]))
    last = np.array([tried[next(best)] if length else middle for length in lengths])
    return {"released": bench.accuracies(bench.runs(last, way["noise"])), "picked": last}


def scaling(bench: Bench, way: Way, searches: int) -> dict[str, Any]:
    """The best η·steps of two cheap levels, and a line through both, in ε, to the full run."""
    rates, reach = bench.structure.rates, []
    for fraction, noise in zip(way["fractions"], way["short noise"], strict=True):
        tried = bench.random.choice(rates, (searches, way["trials"]))
        scores = bench.scores(bench.runs(tried.ravel(), noise, fraction, everyone=False), way["score noise"])
        best = scores.reshape(tried.shape).argmax(axis=1)
        reach.append(tried[np.arange(searches), best] * fraction)
    slope = (reach[1] - reach[0]) / (way["spent"][1] - way["spent"][0])
    last = np.clip(reach[1] + slope * (way["last"] - way["spent"][1]), rates[0], rates[-1])
    return {"released": bench.accuracies(bench.runs(last, way["noise"])), "picked": last}


def _best(scores: Floats, lengths: list[int]) -> list[int]:
    """The place of the best score of each search."""
    ends = np.cumsum(lengths)
    return [a + int(scores[a:b].argmax()) for a, b in itertools.pairwise([0, *ends.tolist()])]


KINDS: dict[str, Callable[[Bench, Way, int], dict[str, Any]]] = {
    "survey": survey, "one run": one_run, "geometric": geometric, "subset": subset, "scaling": scaling,
}  # fmt: skip
