"""Ladders on subsets of pictures and on tables: the realised ε over the smallest in hindsight, and wrong "reached".

    python -m paper.ladder measure TASK [--rungs SHAPE] --data FOLDER    train, and add to paper/results/ladder.json
    python -m paper.ladder landscape --data FOLDER                       write src/dphypo/reach.json
    python -m paper.ladder show                                          print the tables of docs/howto/choosing-epsilon
    python -m paper.ladder design                                        compare designs on made-up curves: no data

The folder is that of paper/rates/tasks.py. A *ladder* draws its records afresh and climbs to its end, each rung scored
as ``tune(until=...)`` scores it. No rung depends on a score, so where it stops for a target follows, for any number of
targets. The *smallest ε in hindsight* for a target is where the mean test accuracy of one run on all records, which
spends all of ε and pays for no score, reaches it. Targets are not chosen by hand: they are the accuracies of that curve
at ``HINDSIGHT``. A target that is not reached counts with an infinite ratio. The plan is paper/LADDER.md.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from torch import nn

from dphypo.accounting import solve_noise
from dphypo.accounting.calibrate import run_alone
from dphypo.search import Ladder
from dphypo.search.ladder import Rung, known_params, plan_ladder
from dphypo.torch import DPSGD, PrivateAccuracy, split_by_hash
from dphypo.training.scores import reaching
from paper.data.sets import load
from paper.ladder_design import compared, limit, shown_at
from paper.rates.tasks import TASKS
from paper.simulate.worlds import CIFAR, MNIST, trained

FILE = Path(__file__).parent / "results" / "ladder.json"
REACH = Path(__file__).parents[1] / "src" / "dphypo" / "reach.json"
LANDSCAPES = (
    (MNIST, 2344, "MNIST, 60000 records, convolutional network"),
    (CIFAR, 1954, "CIFAR-10, 50000 records, convolutional network"),
)
DELTA, WRONG = 1e-5, (0.05, 0.5)  # the probabilities with which "reached" may be wrong that are compared
CURVE = (0.5, 1.0, 2.0, 4.0, 8.0)  # of the last total over 8, as in HINDSIGHT
HINDSIGHT = (0.7, 1.0, 1.4, 2.0, 2.8)
LADDERS, REPETITIONS = 20, 6
CHOSEN_ON = ("fashion-3000-8",)
JUDGED = (
    "mnist-3000-8", "mnist-10000-8", "mnist-10000-2", "mnist-20000-1", "diamonds-20000-1", "diamonds-40000-0.5",
    "adult-20000-0.25",
)  # fmt: skip
ADDED = ("mnist-40000-0.5",)
# Rungs, whether each starts from the one before, and the share of records that scores: None as DPSGD sets it apart.
SHAPES = {"7": (7, True, None), "7 wide": (7, True, 0.15), "4": (4, True, None), "4 cold": (4, False, None)}
NAMES = {"mnist": "MNIST", "fashion": "Fashion-MNIST", "adult": "Adult", "diamonds": "Diamonds"}
SCALES = {"mnist": 7.0, "fashion": 8.3, "adult": 2.2, "diamonds": 1.5}  # of the inputs about their mean, as declared
WIDTHS = {"mnist": 64, "fashion": 64, "adult": None, "diamonds": None}  # of a hidden layer; None for a linear model
_LEAST = 0.1  # noise that costs next to nothing

Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Task:
    """Records to draw from, how many are drawn, and the last total. Those that are not drawn test, if no others do."""

    name: str
    pool: Pair
    test: Pair | None

    @property
    def kind(self) -> str:
        return self.name.split("-")[0]

    @property
    def records(self) -> int:
        return int(self.name.split("-")[1])

    @property
    def epsilon(self) -> float:
        return float(self.name.split("-")[2])

    def draw(self, seed: int) -> tuple[Pair, Pair]:
        """The records of a search, and those that test its models."""
        order = torch.tensor(np.random.default_rng([seed, self.records]).permutation(len(self.pool[0])))
        drawn, rest = ((self.pool[0][rows], self.pool[1][rows]) for rows in order.split_with_sizes(self._sizes))
        return drawn, self.test or rest

    @property
    def _sizes(self) -> list[int]:
        return [self.records, len(self.pool[0]) - self.records]

    def mechanism(self, data: Pair, score: Any, share: float | None = None) -> DPSGD:
        wide, classes, width = data[0].shape[1], int(self.pool[1].max()) + 1, WIDTHS[self.kind]

        def network() -> nn.Module:
            if width is None:
                return nn.Linear(wide, classes)
            return nn.Sequential(nn.Linear(wide, width), nn.ReLU(), nn.Linear(width, classes))

        epochs = 10 if self.records < 10_000 or width is None else 5
        given: dict[str, Any] = {"data": data, "score": score}
        if share is not None:
            train, held_out = split_by_hash(*data, share=share)
            scoring = round(share * self.records)
            given = {"data": train, "records": self.records - scoring}
            given["score"] = PrivateAccuracy(held_out, "calibrate", records=scoring)
        return DPSGD(model=network, **given, epochs=epochs, input_scale=SCALES[self.kind], device="cpu")


def task_of(name: str, data: Path) -> Task:
    """A task by its kind, its number of records and the last total of its ladders."""
    kind = name.split("-")[0]
    if WIDTHS[kind] is None:
        inputs, labels = TASKS[kind](data)
        return Task(name, (torch.tensor(inputs), torch.tensor(labels)), None)
    found = load(kind, data)
    pairs = (found.train, found.train_labels), (found.test, found.test_labels)
    train, test = (
        (torch.tensor(x / 255, dtype=torch.float32).flatten(1), torch.tensor(y.astype(int))) for x, y in pairs
    )
    return Task(name, train, test)


def accuracy(model: nn.Module, on: Pair) -> float:
    with torch.no_grad():
        return round(float((model(on[0]).argmax(1) == on[1]).double().mean()), 5)


def measured(task: Task, shape: str) -> dict[str, Any]:
    """The curve in hindsight, and all ladders of a shape, each climbed to its end."""
    count, warm, share = SHAPES[shape]
    first = task.mechanism(task.draw(0)[0], "accuracy", share)
    totals = [task.epsilon * 8 ** (place / (count - 1) - 1) for place in range(count)]
    planned = plan_ladder(
        first.default_space(), first, Ladder(0.5, epsilons=totals), epsilon=task.epsilon, delta=DELTA
    ).rungs
    found: dict[str, Any] = {"name": task.name, "shape": shape, "scoring": first.score_records}
    found["rungs"] = [
        {"epsilon": rung.epsilon, "noise": _noise(rung), "kept": rung.kept if warm else None} for rung in planned
    ]
    ends = [task.epsilon / 8 * one for one in CURVE]
    found["curve"] = {str(one): [_alone(task, one, seed) for seed in range(REPETITIONS)] for one in ends}
    found["ladders"] = [_climbed(task, planned, shape, seed) for seed in range(LADDERS)]
    return found


def _climbed(task: Task, planned: Sequence[Rung], shape: str, seed: int) -> list[list[float]]:
    """The noisy score and the test accuracy of each rung."""
    (data, test), (_, warm, share) = task.draw(1000 + seed), SHAPES[shape]
    mechanism, model, found = task.mechanism(data, "accuracy", share), None, []
    for place, rung in enumerate(planned):
        noise, of_score = _noise(rung)
        own = mechanism.with_noise(noise).with_score_noise(of_score).at(kept=0.0)
        run = replace(rung, mechanism=own).after(model if warm else None)
        outcome = run(rung.params, seed=100 * seed + place)
        model = outcome.model
        found.append([round(float(outcome.score), 5), accuracy(model, test)])
    return found


def _noise(rung: Rung) -> list[float]:
    """Of training and of the score."""
    mechanism: Any = rung.mechanism
    return [mechanism.noise_multiplier, mechanism.score_noise_multiplier]


@cache
def noise_of(task: Task, epsilon: float) -> float:
    """The noise of one run on all records that spends all of ε."""
    mechanism = task.mechanism(task.draw(0)[0], _unscored)
    at = run_alone(lambda noise: mechanism.with_noise(noise).event({}))
    return solve_noise(at, epsilon=epsilon, delta=DELTA).value


def _alone(task: Task, epsilon: float, seed: int, noise: float | None = None) -> float:
    """The test accuracy of that run."""
    data, test = task.draw(seed)
    full = task.mechanism(data, _unscored).with_noise(noise_of(task, epsilon) if noise is None else noise)
    return accuracy(full(known_params(full, full.default_space()), seed=seed).model, test)


def _unscored(model: object) -> float:
    return 0.0


def measure(name: str, shape: str, data: Path) -> None:
    """Train all that is asked of one task, and add it to the file."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    made = measured(task_of(name, data), shape)
    found = {(one["name"], one["shape"]): one for one in _tasks()} | {(name, shape): made}
    order = [(one, how) for one in (*CHOSEN_ON, *JUDGED, *ADDED) for how in SHAPES if (one, how) in found]
    FILE.write_text(json.dumps({"delta": DELTA, "tasks": [found[key] for key in order]}, indent=1) + "\n")


def _tasks() -> list[dict[str, Any]]:
    return json.loads(FILE.read_text())["tasks"] if FILE.exists() else []


@dataclass(frozen=True)
class Judged:
    """What ladders with one target came to."""

    target: float
    smallest: float  # ε in hindsight
    margin: float  # of the rung whose total is nearest to it
    ratios: list[float]  # of the realised ε to it; infinite if the target was not reached
    wrong: int  # of those that were said to reach the target, how many did not
    limit: float  # which no valid test is below, whatever the totals
    on_rungs: list[float]  # the same on these rungs, for each ladder

    @property
    def reached(self) -> int:
        return int(np.isfinite(self.ratios).sum())


def judged(task: dict[str, Any], wrong: float) -> list[Judged]:
    """Ladders on a task with every target, if "reached" may be wrong with this probability."""
    found, rungs = [], task["rungs"]
    ends = [float(one) for one in task["curve"]]
    heights = np.maximum.accumulate([mean(one) for one in task["curve"].values()])
    of = {"records": task["scoring"], "of": int(task["name"].split("-")[1])}
    every = np.geomspace(ends[0], ends[-1], 10_000)
    curve = np.interp(np.log(every), np.log(ends), heights)
    totals = [rung["epsilon"] for rung in rungs]
    climbed = np.maximum.accumulate(np.mean(task["ladders"], axis=0)[:, 1])
    best = np.maximum(curve, np.interp(np.log(every), np.log(totals), climbed, left=0.0))
    for place in HINDSIGHT:
        target = round(float(np.interp(ends[-1] / 8 * place, every, curve)), 4)
        smallest = float(every[np.argmax(curve >= target - 5e-5)])
        starts = [reaching(target, wrong / len(rungs), noise_multiplier=rung["noise"][1], **of) for rung in rungs]
        ratios, missed = [], 0
        for ladder in task["ladders"]:
            stop = next((at for at, (score, _) in enumerate(ladder) if score >= starts[at]), None)
            ratios.append(np.inf if stop is None else rungs[stop]["epsilon"] / smallest)
            missed += stop is not None and ladder[stop][1] < target
        margin = min(zip(rungs, starts, strict=True), key=lambda one: abs(one[0]["epsilon"] - smallest))[1] - target
        shown = shown_at(target, task["scoring"], wrong)
        tested = [np.array(ladder)[:, 1] for ladder in task["ladders"]]
        on_rungs = [limit(np.array(totals), heights, smallest, shown) for heights in tested]
        found.append(Judged(target, smallest, margin, ratios, missed, limit(every, best, smallest, shown), on_rungs))
    return found


def show(result: dict[str, Any]) -> str:
    """The tables, from what was measured."""
    tasks = result["tasks"]
    lines = ["| task | rungs | records that score | margin | "]
    lines[0] += " | ".join(f"ratio, `wrong={wrong}` | limit; on these rungs | reached; wrongly" for wrong in WRONG)
    lines[0] += " |"
    lines.append("|---" * (4 + 3 * len(WRONG)) + "|")
    every: dict[str, dict[float, list[Judged]]] = {}
    for task in tasks:
        both = {wrong: judged(task, wrong) for wrong in WRONG}
        margin = median(one.margin for one in both[WRONG[0]])
        lines.append(f"| {_called(task)} | {task['shape']} | {task['scoring']} | {margin:.3f} |{_cells(both)}")
        if task["name"] in JUDGED and task["shape"] == "7":
            for wrong, one in both.items():
                every.setdefault(task["shape"], {}).setdefault(wrong, []).extend(one)
    lines += [f"| all judged tasks | {shape} | | |{_cells(both)}" for shape, both in every.items()]
    lines += ["", "| task | rungs | one run on all records, with ε/8, ε/4, ε/2, ε | the rung |", "|---|---|---|---|"]
    for task in tasks:
        ends = [float(one) for one in task["curve"]]
        places = [
            place for place, rung in enumerate(task["rungs"]) if np.isclose(ends, rung["epsilon"], rtol=1e-6).any()
        ]
        alone = ", ".join(f"{mean(one):.3f}" for one in list(task["curve"].values())[-len(places) :])
        made = ", ".join(f"{mean(ladder[place][1] for ladder in task['ladders']):.3f}" for place in places)
        lines.append(f"| {_called(task)} | {task['shape']} | {alone} | {made} |")
    return "\n".join(lines)


def _called(task: dict[str, Any]) -> str:
    kind, records, epsilon = task["name"].split("-")
    return f"{NAMES[kind]}, {records} records, to ε = {epsilon}"


def _cells(both: dict[float, list[Judged]]) -> str:
    """For each probability, the median ratio, its limits, how often targets were reached, and how often wrongly."""
    cells = []
    for found in both.values():
        ratios = [ratio for one in found for ratio in one.ratios]
        limits = _middle([one.limit for one in found]), _middle([ratio for one in found for ratio in one.on_rungs])
        reached, wrong = sum(one.reached for one in found), sum(one.wrong for one in found)
        cells.append(f" {_middle(ratios)} | {'; '.join(limits)} | {reached} of {len(ratios)}; {wrong} |")
    return "".join(cells)


def _middle(ratios: Sequence[float]) -> str:
    found = median(ratios)
    return f"{found:.2f}" if np.isfinite(found) else "not reached"


def landscape(data: Path) -> None:
    """Reach and lost accuracy on all public tasks: the committed landscapes, and the curves in hindsight here.

    What is lost is compared with the least noise of a landscape; here, with two runs that have next to none.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found: dict[str, list[list[float]]] = {}
    for files, steps, called in LANDSCAPES:
        levels = {noise: float(scores.mean(axis=0).max()) for noise, scores in trained(files, steps).scores.items()}
        found[called] = _lost({256 * steps**0.5 / noise: height for noise, height in levels.items()})
    heights: dict[str, dict[float, float]] = {}
    for name, curve in {one["name"]: one["curve"] for one in _tasks() if one["name"] in JUDGED}.items():
        task = task_of(name, data)
        run = task.mechanism(task.draw(0)[0], _unscored).with_noise(1.0).cost.run({})
        moved = run.rate * task.records * run.steps**0.5
        model = "perceptron" if WIDTHS[task.kind] else "linear model"
        of_task = heights.setdefault(f"{NAMES[task.kind]}, {task.records} records, {model}", {})
        of_task |= {moved / noise_of(task, float(epsilon)): mean(found) for epsilon, found in curve.items()}
        if moved / _LEAST not in of_task:
            of_task[moved / _LEAST] = mean(_alone(task, 0.0, seed, _LEAST) for seed in range(2))
    found |= {name: _lost(one) for name, one in heights.items()}
    REACH.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _lost(heights: dict[float, float]) -> list[list[float]]:
    """Pairs of reach and lost accuracy, by increasing reach; more noise never loses less."""
    reaches = sorted(heights)
    best = np.maximum.accumulate([heights[one] for one in reaches])
    return [[round(reach, 1), round(float(best[-1] - height), 4)] for reach, height in zip(reaches, best, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser("python -m paper.ladder", description="Ladders on MNIST subsets and a table.")
    parser.add_argument("what", choices=["measure", "landscape", "show", "design"])
    parser.add_argument("task", nargs="?", choices=[*CHOSEN_ON, *JUDGED, *ADDED])
    parser.add_argument("--rungs", choices=SHAPES, default="7")
    parser.add_argument("--data", type=Path, default=Path("data"))
    chosen = parser.parse_args()
    if chosen.what == "show":
        print(show(json.loads(FILE.read_text())))
    elif chosen.what == "design":
        print(compared())
    elif chosen.what == "landscape":
        landscape(chosen.data)
    elif chosen.task is None:
        parser.error(f"give a task: {', '.join((*CHOSEN_ON, *JUDGED, *ADDED))}")
    else:
        measure(chosen.task, chosen.rungs, chosen.data)


if __name__ == "__main__":
    main()
