"""Really trained surveys, many at once, beside uniform searches and single runs.

:mod:`paper.experiments.survey_plans` fixed what is trained.

A run is scored on the first half of the test pictures, plus Gaussian noise; what is released is judged on the second
half. The models of one program share their Poisson
batches, and draws are seeded: this measures utility. The guarantee of the declared events asks for batches drawn for
each run and secret entropy.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paper.data.points import Floats, Grid
from paper.data.sets import Images
from paper.simulate.survey_optimiser import Cells, Optimiser, Surveys, even
from paper.train.landscape import gradients_for, provenance
from paper.train.run import Data, Settings, right, train
from paper.train.settings import Setting

SIZES = (32, 104, 320, 624)  # models a program is compiled for
MOST = {1: 260_000, 3: 215_000}  # samples of all models of a step, by the channels of a picture: what memory holds


class Trainer:
    """Trains any number of runs of one setting; counts the programs it ran, which number their seeds."""

    def __init__(self, images: Images, device: str, seed: int, sizes: Sequence[int] = SIZES) -> None:
        half = len(images.test) // 2
        first = Images(images.train, images.train_labels, images.test[:half], images.test_labels[:half])
        self.halves = Data.of(first, device), Data.of(images.second_half(), device)
        self.records = len(images.train)
        self.samples = 0.0
        self._gradients = gradients_for(self.halves[0])
        self._sizes, self._seed = sizes, seed
        self._most = MOST[images.train.shape[1]]

    @torch.no_grad()
    def accuracies(self, rows: Floats, batch: int, steps: int, halves: Sequence[int]) -> Floats:
        """Of runs (learning rate, clipping norm, noise) on the given halves of the test pictures: (halves, runs)."""
        found, begin = [], 0
        sizes = [size for size in self._sizes if size * batch <= self._most]
        while begin < len(rows):
            left = len(rows) - begin
            size = min((size for size in sizes if size >= left), default=max(sizes))
            part = rows[begin : begin + size]
            padded = np.concatenate([part, np.repeat(part[-1:], size - len(part), axis=0)])
            settings = Settings(padded[:, 0], padded[:, 1], padded[:, 2], steps, batch)
            models, _ = train(self.halves[0], settings, self._seed, gradients=self._gradients)
            judges = [self.halves[half] for half in halves]
            found.append([right(one, models, self._gradients)[: len(part)] / len(one.test) for one in judges])
            self._seed += 1
            self.samples += len(part) * steps * batch
            begin += len(part)
        return np.concatenate(found, axis=1)


class Space:
    """All pairs at all settings: the cells of a survey, with features in the unit cube."""

    def __init__(self, experiment: dict[str, Any]) -> None:
        self.settings = [Setting(**one) for one in experiment["settings"]]
        self.pairs = Grid(np.array(experiment["rates"]), np.array(experiment["clips"])).pairs
        axes = [len(experiment["rates"]), len(experiment["clips"])]
        self.setting = np.repeat(np.arange(len(self.settings)), len(self.pairs))
        place = [(np.arange(count) + 0.5) / count for count in axes]
        if experiment.get("scales") == "log":
            place = [_logarithmic(np.array(experiment[name])) for name in ("rates", "clips")]
        unit = np.stack(np.meshgrid(*place, indexing="ij"), axis=-1).reshape(-1, 2)
        columns = [np.tile(unit, (len(self.settings), 1))]
        for values in ([one.batch for one in self.settings], [one.epochs for one in self.settings]):
            levels = sorted(set(values))
            if len(levels) > 1:
                columns.append((np.array([levels.index(v) for v in values]) + 0.5)[self.setting][:, None] / len(levels))
        self.features = np.concatenate(columns, axis=1)
        self.shape = np.array(axes)  # of the grid of pairs

    def rows(self, cells: Cells, noise: Sequence[float], factor: Sequence[float] | None = None) -> Floats:
        """Learning rate (times a factor of its setting), clipping norm and noise of each cell."""
        pairs = self.pairs[cells % len(self.pairs)].copy()
        if factor is not None:
            pairs[:, 0] *= np.asarray(factor)[self.setting[cells]]
        return np.column_stack([pairs, np.asarray(noise)[self.setting[cells]]])

    def full(self, records: int) -> list[tuple[int, int]]:
        """Batch and steps of a full run of each setting."""
        return [(one.batch, one.steps(records)) for one in self.settings]


def _logarithmic(values: Floats) -> Floats:
    logs = np.log(values)
    return np.asarray((logs - logs[0]) / (logs[-1] - logs[0]))


def trained(
    space: Space, trainer: Trainer, cells: Cells, rows: Floats, lengths: Sequence[tuple[int, int]], half: int
) -> Floats:
    """Accuracies of one run at each cell on one half, setting by setting; ``lengths`` are batch and steps of each."""
    found = np.empty(len(cells))
    for number, (batch, steps) in enumerate(lengths):
        chosen = np.flatnonzero(space.setting[cells] == number)
        if len(chosen):
            (found[chosen],) = trainer.accuracies(rows[chosen], batch, steps, [half])
    return found


def surveys(space: Space, trainer: Trainer, arm: dict[str, Any], searches: int, seed: int) -> dict[str, Any]:
    """``searches`` surveys and their last runs: accuracies on the second half, and where they went."""
    random = np.random.default_rng(seed)
    shift = random.random((searches, space.features.shape[1]))
    found = Surveys(space.features, Optimiser(), searches)
    lengths = list(zip(arm["short_batch"], arm["short_steps"], strict=True))
    for t in range(arm["count"]):
        cells = even(space.features, t, shift) if t < found.optimiser.start else found.next_cells()
        rows = space.rows(cells, arm["short_noise"], arm["rate_factor"])
        scores = trained(space, trainer, cells, rows, lengths, 0)
        found.observe(cells, scores + arm["score_noise"] * random.standard_normal(searches))
    last = found.best_mean()
    table = {"cells": found.cells.tolist(), "scores": np.round(found.scores, 3).tolist(), "last": last.tolist()}
    full = space.full(trainer.records)
    return {"released": trained(space, trainer, last, space.rows(last, arm["noise"]), full, 1), "table": table}


def uniform(space: Space, trainer: Trainer, arm: dict[str, Any], searches: int, seed: int) -> dict[str, Any]:
    """``searches`` uniform searches: accuracies, on the second half, of the runs of the best score."""
    random = np.random.default_rng(seed)
    lengths = np.array(arm["lengths"][:searches])
    cells = random.integers(0, len(space.pairs), lengths.sum())
    shown, judged = trainer.accuracies(space.rows(cells, arm["noise"]), *space.full(trainer.records)[0], [0, 1])
    scores = shown + arm["score_noise"] * random.standard_normal(len(shown))
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    best = [a + int(scores[a:b].argmax()) for a, b in itertools.pairwise(bounds)]
    return {"released": judged[best], "mean runs": float(lengths.mean())}


def fixed(space: Space, trainer: Trainer, arm: dict[str, Any], searches: int, seed: int) -> dict[str, Any]:
    """``searches`` runs at one pair."""
    rows = np.tile([*arm["pair"], arm["noise"][0]], (searches, 1))
    return {"released": trainer.accuracies(rows, *space.full(trainer.records)[0], [1])[0]}


def best(space: Space, trainer: Trainer, arm: dict[str, Any], searches: int, seed: int) -> dict[str, Any]:
    """What can be reached: all cells trained ``count`` times; the best by the first half trained ``searches`` times.

    Scores of a cell are averaged with those of its neighbours of the grid, so that luck counts less.
    """
    cells = np.tile(np.arange(len(space.pairs)), arm["count"])
    shown, judged = trainer.accuracies(space.rows(cells, arm["noise"]), *space.full(trainer.records)[0], [0, 1])
    shown, judged = (one.reshape(arm["count"], -1).mean(axis=0) for one in (shown, judged))
    near = ((space.features[:, None] - space.features[None]) ** 2 * space.shape**2).sum(axis=2) < 1.5
    cell = int((near @ shown / near.sum(axis=1)).argmax())
    rows = np.repeat(space.rows(np.array([cell]), arm["noise"]), searches, axis=0)
    released = trainer.accuracies(rows, *space.full(trainer.records)[0], [1])[0]
    return {"released": released, "pair": space.pairs[cell].tolist(), "all cells": np.round(judged, 4).tolist()}


def judge(
    name: str, images: Images, plans: Path, file: Path, device: str, programs: int, sizes: Sequence[int] = (208,)
) -> None:
    """Train what the surveys of ``file`` picked once more, and the best cell beside it, with the same Poisson batches.

    The models of one program share their batches, so that one program's mean is off by more than its interval says. Of
    several programs, each with batches of its own, the differences tell how far the picks are from the best cell.
    """
    experiment, found = json.loads(plans.read_text())[name], json.loads(file.read_text())
    space, trainer = Space(experiment), Trainer(images, device, experiment["seed"] + 500, sizes)
    first = next(arm for arm in experiment["arms"] if arm["kind"] == "survey")
    best = next(arm for arm in experiment["arms"] if arm["kind"] == "best")
    last = np.array(found["arms"][first["name"]]["table"]["last"])
    reached = [*found["arms"][best["name"]]["pair"], best["noise"][0]]
    rows = np.concatenate([space.rows(last, first["noise"]), np.tile(reached, (len(last), 1))])
    judged = [trainer.accuracies(rows, *space.full(trainer.records)[0], [1])[0] for _ in range(programs)]
    picked, top = np.round(judged, 4).reshape(programs, 2, -1).swapaxes(0, 1)
    found["judged"] = {"picked": picked.tolist(), "best cell": top.mean(axis=1).round(5).tolist()}
    print(name, [picked.mean(axis=1).round(4).tolist(), top.mean(axis=1).round(4).tolist()], flush=True)
    file.write_text(json.dumps(found) + "\n")


KINDS = {"survey": surveys, "uniform": uniform, "fixed": fixed, "best": best}


def compare(
    name: str, images: Images, plans: Path, out: Path, device: str, searches: int = 104, seconds: float = float("inf"),
    sizes: Sequence[int] = SIZES,
) -> dict[str, Any]:  # fmt: skip
    """Train an experiment of ``plans``, arm by arm, and write ``out`` after each; stop when time is up."""
    started = time.time()
    experiment = json.loads(plans.read_text())[name]
    space, trainer = Space(experiment), Trainer(images, device, experiment["seed"], sizes)
    result: dict[str, Any] = {"experiment": name, "searches": searches, "arms": {}}
    full = 10 * len(images.train)  # examples processed by the paper's run
    for number, arm in enumerate(experiment["arms"]):
        begun = time.time()
        if begun > started + seconds:
            print(f"no time for {arm['name']}", flush=True)
            break
        trainer.samples = 0.0
        found = KINDS[arm["kind"]](space, trainer, arm, searches, experiment["seed"] + number)
        released = found.pop("released")
        row = {
            "mean": round(float(released.mean()), 5),
            "half": round(1.96 * float(released.std(ddof=1)) / len(released) ** 0.5, 5),
            "worst": round(float(released.min()), 4),
            "compute": round(trainer.samples / full / len(released), 3),
            "seconds": round(time.time() - begun, 1),
        }
        print(name, arm["name"], row, flush=True)
        declared = {key: value for key, value in arm.items() if value not in ([], {}, 0, 0.0) and key != "lengths"}
        result["arms"][arm["name"]] = {**row, "declared": declared, "released": released.round(4).tolist(), **found}
        result["provenance"] = json.loads(provenance(seed=experiment["seed"]))
        out.write_text(json.dumps(result) + "\n")
    return result
