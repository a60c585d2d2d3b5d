"""The ways to tune, many searches at once, on any trainer: nothing here knows of an accountant.

Every function takes a way as ``plans.json`` states it and returns the accuracy, on the public test, of what each search
releases. Draws are seeded: this measures utility. Every run has batches, noise and, where it is scored, score noise of
its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paper.anchors.tasks import CLIP, MOMENTUM, RATES, Task
from paper.anchors.trainer import Floats, Records, Runs, Trainer
from paper.simulate.survey_optimiser import Optimiser, Surveys, even
from paper.train.descent import Memories

CLIPS: Floats = np.logspace(-1.5, 1, 11)
Way = dict[str, Any]


@dataclass
class Bench:
    """A trainer for a task, with a seed for each group of runs and a count of the examples processed.

    Args:
        most: how many runs are trained at once.
    """

    task: Task
    trainer: Trainer
    share: float
    seed: int
    most: int = 96
    examples: float = 0.0
    tests: int = 10_000

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    @property
    def scored(self) -> int:
        """The declared number of records that score."""
        return round(self.task.records * self.share)

    def full(self, rate: Floats, noise: float, clip: Floats | None = None, *, everyone: bool = True) -> Runs:
        """Full runs, one for each learning rate."""
        used = self.task.records if everyone else self.task.records - self.scored
        ones = np.ones(len(rate))
        return Runs(
            rate, CLIP * ones if clip is None else clip, noise * ones, self.task.steps, self.task.batch / used,
            self.task.batch, Records.ALL if everyone else Records.TRAINING, 0, Memories(MOMENTUM), self.task.average,
        )  # fmt: skip

    def short(self, rate: Floats, way: Way, noise: float, steps: int, clip: Floats | None = None) -> Runs:
        """Short runs on the training side, with the learning rates and the momentum that the transfer rule gives."""
        runs = self.full(rate * way.get("rate factor", 1.0), noise, clip, everyone=False)
        memories = Memories(way.get("momentum", MOMENTUM))
        return replace(runs, steps=steps, memories=memories, average=way.get("average", self.task.average))

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

    def _noisy(self, right: Floats, noise: float) -> Floats:
        return np.asarray((right + noise * self.random.standard_normal(len(right))) / self.scored)

    def _made(self, runs: Runs) -> Iterator[Any]:
        """The models of all runs, group by group."""
        self.examples += len(runs) * runs.examples
        for begin in range(0, len(runs), self.most):
            yield self.trainer.train(runs.part(slice(begin, begin + self.most), self._next()))

    def _next(self) -> int:
        self.seed += 1
        return self.seed


def survey(bench: Bench, way: Way, searches: int) -> dict[str, Any]:
    """Half of the short runs spread evenly, the others where a Gaussian process hopes for most; then one full run."""
    axes = [RATES, CLIPS] if way.get("clips") else [RATES]
    places = [np.linspace(0, 1, len(axis)) for axis in axes]
    features = np.stack(np.meshgrid(*places, indexing="ij"), axis=-1).reshape(-1, len(axes))
    values = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    start = (way["count"] + 1) // 2
    found = Surveys(features, Optimiser(start=start), searches)
    shift = bench.random.random((searches, len(axes)))
    first = np.stack([even(features, number, shift) for number in range(start)], axis=1)

    def scores(cells: Any) -> Floats:
        clip = values[cells, 1] if way.get("clips") else None
        runs = bench.short(values[cells, 0], way, way["short noise"], way["steps"], clip)
        return bench.scores(runs, way["score noise"])

    for number, column in enumerate(scores(first.ravel()).reshape(searches, start).T):
        found.observe(first[:, number], column)
    for _ in range(way["count"] - start):
        cells = found.next_cells()
        found.observe(cells, scores(cells))
    last = found.best_mean()
    clip = values[last, 1] if way.get("clips") else None
    released = bench.accuracies(bench.full(values[last, 0], way["noise"], clip))
    table = {"rates": values[found.cells, 0].round(5).tolist(), "scores": found.scores.round(4).tolist()}
    return {"released": released, "picked": values[last].round(5).tolist(), "table": table}


def one_run(bench: Bench, way: Way, searches: int) -> dict[str, Any]:
    """One run at a fixed learning rate, or at the one that is best on the test (which nobody may know)."""
    rate = way.get("rate", 0.0)
    if way.get("hindsight"):
        tried = np.repeat(RATES[::4], 3)
        known = bench.accuracies(bench.full(tried, way["noise"])).reshape(-1, 3).mean(axis=1)
        smooth = np.convolve(np.pad(known, 1, mode="edge"), [0.25, 0.5, 0.25], mode="valid")
        rate = float(RATES[::4][smooth.argmax()])
    released = bench.accuracies(bench.full(np.full(searches, rate), way["noise"]))
    curve = {"curve": known.round(4).tolist()} if way.get("hindsight") else {}
    return {"released": released, "picked": rate, **curve}


def geometric(bench: Bench, way: Way, searches: int) -> dict[str, Any]:
    """A secret number of full runs at random learning rates; the best by its score is released."""
    lengths = way["lengths"][:searches]
    rates = bench.random.choice(RATES, sum(lengths))
    scores, judged = bench.both(bench.full(rates, way["noise"], everyone=False), way["score noise"])
    best = _best(scores, lengths)
    return {"released": judged[best], "picked": rates[best].round(5).tolist()}


def subset(bench: Bench, way: Way, searches: int) -> dict[str, Any]:
    """Runs on random subsets, batches in proportion; the best learning rate over the share for the full run."""
    lengths = way["lengths"][:searches]
    share = way["subset"]
    rates = bench.random.choice(RATES, sum(lengths)) * share  # so that what is scaled up lies in the space
    runs = bench.full(rates, way["noise"], everyone=False)
    scores = bench.scores(replace(runs, subset=share, batch=runs.batch * share), way["score noise"])
    middle = float(np.sqrt(RATES[0] * RATES[-1]))
    best = iter(_best(scores, [length for length in lengths if length]))
    last = np.array([rates[next(best)] / share if length else middle for length in lengths])
    return {"released": bench.accuracies(bench.full(last, way["noise"])), "picked": last.round(5).tolist()}


def scaling(bench: Bench, way: Way, searches: int) -> dict[str, Any]:
    """The best η·steps of two cheap levels, and a line through both, in ε, to the full run."""
    reach = []
    for steps, noise in zip(way["steps"], way["short noise"], strict=True):
        rates = bench.random.choice(RATES, (searches, way["trials"]))
        scores = bench.scores(bench.short(rates.ravel(), {}, noise, steps), way["score noise"])
        best = scores.reshape(rates.shape).argmax(axis=1)
        reach.append(rates[np.arange(searches), best] * steps)
    slope = (reach[1] - reach[0]) / (way["spent"][1] - way["spent"][0])
    rate = (reach[1] + slope * (way["last"] - way["spent"][1])) / bench.task.steps
    last = np.clip(rate, RATES[0], RATES[-1])
    return {"released": bench.accuracies(bench.full(last, way["noise"])), "picked": last.round(5).tolist()}


def _best(scores: Floats, lengths: list[int]) -> list[int]:
    """The place of the best score of each search."""
    ends = np.cumsum(lengths)
    return [a + int(scores[a:b].argmax()) for a, b in itertools.pairwise([0, *ends.tolist()])]


KINDS: dict[str, Callable[[Bench, Way, int], dict[str, Any]]] = {
    "survey": survey, "one run": one_run, "geometric": geometric, "subset": subset, "scaling": scaling,
}  # fmt: skip
