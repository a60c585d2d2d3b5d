"""Ladders on MNIST subsets and a table: the realised ε against the smallest in hindsight, and wrong "reached".

    python -m paper.ladder measure TASK --data data --adult FOLDER    train, and add to paper/results/ladder.json
    python -m paper.ladder landscape --data data --adult FOLDER       write src/dphypo/planning/reach.json
    python -m paper.ladder show                                       print the tables of docs/howto/choosing-epsilon.md

``data`` is the folder of paper/data/sets.py, FOLDER that of examples/adult.py. A *search* draws its records afresh and
trains all rungs of a ladder, each scored as ``tune(until=...)`` scores it. No rung depends on another, so where the
ladder stops for a target follows, for any number of targets. The *smallest ε in hindsight* for a target is where the
mean test accuracy of one run on all records, which spends all of ε and pays for no score, reaches it. Targets are not
chosen by hand: they are the accuracies of that curve at ``HINDSIGHT``. Warm rungs start from the model before them.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
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
from dphypo.integrations.scores import reaching
from dphypo.integrations.torch import DPSGD
from dphypo.search import Ladder
from dphypo.search.ladder import Rung, known_params, plan_ladder
from paper.simulate.worlds import CIFAR, MNIST, trained

FILE = Path(__file__).parent / "results" / "ladder.json"
REACH = Path(__file__).parents[1] / "src" / "dphypo" / "planning" / "reach.json"
LANDSCAPES = (
    (MNIST, 2344, "MNIST, 60000 records, convolutional network"),
    (CIFAR, 1954, "CIFAR-10, 50000 records, convolutional network"),
)
EPSILON, DELTA = 8.0, 1e-5
CLAIMS = (0.05, 0.5)  # the probabilities with which "reached" may be wrong that are compared
CURVE = (0.5, 1.0, 2.0, 4.0, 8.0)
HINDSIGHT = (0.7, 1.0, 1.4, 2.0, 2.8)
SEARCHES, REPETITIONS, WARM = 20, 4, 2
RATE = "drift"  # the learning rate in units of noise
WARM_RATES = (1.0, 0.25)
NAMES = {"mnist": "MNIST", "adult": "Adult"}
TASKS = ("mnist-3000", "mnist-10000", "adult-10000")
_LEAST = 0.1  # noise that costs next to nothing
_INPUTS = 7.0  # the norm of a record without the mean, a public constant: 6.96 for MNIST
_SCALE = 3.3  # of Adult's columns, so that it holds there, too

Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Task:
    """Records to draw from, records to test on, and how many are drawn."""

    name: str
    pool: Pair
    test: Pair
    records: int
    epochs: int
    width: int | None  # of a hidden layer; None for a linear model
    scale: float = 1.0  # of every ε: a task that is easier is tried with smaller ones

    def draw(self, seed: int) -> Pair:
        chosen = np.random.default_rng([seed, self.records]).permutation(len(self.pool[0]))[: self.records]
        return self.pool[0][chosen], self.pool[1][chosen]

    def mechanism(self, data: Pair, score: Any) -> DPSGD:
        wide, classes = int(np.prod(data[0].shape[1:])), int(self.test[1].max()) + 1

        def network() -> nn.Module:
            if self.width is None:
                return nn.Sequential(nn.Flatten(), nn.Linear(wide, classes))
            hidden = nn.Linear(wide, self.width), nn.ReLU(), nn.Linear(self.width, classes)
            return nn.Sequential(nn.Flatten(), *hidden)

        return DPSGD(model=network, data=data, score=score, epochs=self.epochs, input_scale=_INPUTS, device="cpu")

    def accuracy(self, model: nn.Module) -> float:
        with torch.no_grad():
            return float((model(self.test[0]).argmax(1) == self.test[1]).float().mean())


def task_of(name: str, data: Path, adult: Path) -> Task:
    """One of ``TASKS``."""
    from paper.data.sets import load

    kind, _, size = name.partition("-")
    if kind == "adult":
        train, test = (_table(adult, file) for file in ("adult.data", "adult.test"))
        return Task(name, train, test, int(size), epochs=5, width=None, scale=1 / 8)
    found = load(kind, data)
    pairs = (found.train, found.train_labels), (found.test, found.test_labels)
    train, test = ((torch.tensor(x / 255, dtype=torch.float32), torch.tensor(y.astype(int))) for x, y in pairs)
    return Task(name, train, test, int(size), epochs=10 if int(size) < 10_000 else 5, width=64)


def _table(folder: Path, file: str) -> Pair:
    """UCI Adult: numbers in their public ranges, one column for each category."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    from adult import NUMBERS, described, read

    columns = described(folder / "adult.names")
    frame, labels = read(folder / file, columns)
    made = []
    for name, values in columns.items():
        if values:
            made += [(frame[name] == value).to_numpy(float) for value in values]
        elif name in NUMBERS:
            low, high = NUMBERS[name]
            made.append(((frame[name].astype(float) - low) / (high - low)).clip(0, 1).to_numpy())
    return torch.tensor(_SCALE * np.stack(made, 1), dtype=torch.float32), torch.tensor(labels.to_numpy())


def measured(task: Task) -> dict[str, Any]:
    """The curve in hindsight, the rungs and all searches."""
    first = task.mechanism(task.draw(0), "accuracy")
    space = first.default_space()
    rungs = plan_ladder(space, first, Ladder(0.5), epsilon=task.scale * EPSILON, delta=DELTA).rungs
    found: dict[str, Any] = {"name": task.name, "scale": task.scale, "curve": {}, "searches": [], "warm": []}
    found["scoring"] = [rung.mechanism.score_records for rung in rungs][:1]
    found["rungs"] = [{"epsilon": rung.epsilon, "ex post": rung.ex_post} for rung in rungs]
    found["noise"] = [_noise(rung) for rung in rungs]
    for epsilon in (task.scale * one for one in CURVE):
        found["curve"][str(epsilon)] = [_alone(task, epsilon, seed) for seed in range(REPETITIONS)]
    for seed in range(SEARCHES):
        data = task.draw(1000 + seed)
        mine = [_on(rung, task.mechanism(data, "accuracy")) for rung in rungs]
        made = [rung.mechanism(rung.params, seed=10 * seed + place) for place, rung in enumerate(mine)]
        found["searches"].append([[one.score, task.accuracy(one.model)] for one in made])
        if seed < WARM:
            found["warm"].append({str(rate): _warm(task, mine, rate, seed) for rate in WARM_RATES})
    return found


def _on(rung: Rung, mechanism: DPSGD) -> Rung:
    noise, of_score = _noise(rung)
    return replace(rung, mechanism=mechanism.with_noise(noise).with_score_noise(of_score))


def _noise(rung: Rung) -> list[float]:
    """Of training and of the score."""
    mechanism: Any = rung.mechanism
    return [mechanism.noise_multiplier, mechanism.score_noise_multiplier]


@cache
def noise_of(task: Task, epsilon: float) -> float:
    """The noise of one run on all records that spends all of ε."""
    mechanism = task.mechanism(task.draw(0), _unscored)
    at = run_alone(lambda noise: mechanism.with_noise(noise).event({}))
    return solve_noise(at, epsilon=epsilon, delta=DELTA).value


def _alone(task: Task, epsilon: float, seed: int) -> float:
    """The test accuracy of that run."""
    full = task.mechanism(task.draw(seed), _unscored).with_noise(noise_of(task, epsilon))
    return task.accuracy(full(known_params(full, full.default_space()), seed=seed).model)


def _unscored(model: object) -> float:
    return 0.0


def _warm(task: Task, rungs: list[Rung], rate: float, seed: int) -> list[float]:
    """Test accuracies of rungs that start from the model before them, with this part of the learning rate."""
    found, start = [], None
    for place, rung in enumerate(rungs):
        full: Any = rung.mechanism.without_score()
        params = dict(rung.params)
        if start is not None:
            full, params[RATE] = full.at(start=start), rate * params[RATE]
        start = full(params, seed=10 * seed + place).model
        found.append(task.accuracy(start))
    return found


def measure(name: str, data: Path, adult: Path) -> None:
    """Train all that is asked of one task, and add it to the file."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    document = json.loads(FILE.read_text()) if FILE.exists() else {}
    found = {one["name"]: one for one in document.get("tasks", ())} | {name: measured(task_of(name, data, adult))}
    tasks = [found[one] for one in TASKS if one in found]
    document = {"epsilon": EPSILON, "delta": DELTA, "tasks": tasks}
    FILE.write_text(json.dumps(document, indent=1) + "\n")


@dataclass(frozen=True)
class Judged:
    """What ladders with one target came to."""

    target: float
    smallest: float  # ε in hindsight
    ratios: list[float]  # of the realised ε to it
    reached: int
    wrong: int  # of those that were said to reach the target, how many did not


def judged(task: dict[str, Any], wrong: float) -> list[Judged]:
    """Ladders on a task with every target, if "reached" may be wrong with this probability."""
    found, rungs = [], task["rungs"]
    epsilons = np.log([float(one) for one in task["curve"]])
    heights = np.maximum.accumulate([mean(one) for one in task["curve"].values()])
    (scoring,), records = task["scoring"], int(task["name"].partition("-")[2])
    for epsilon in HINDSIGHT:
        target = round(float(np.interp(np.log(task["scale"] * epsilon), epsilons, heights)), 3)
        smallest = float(np.exp(np.interp(target, heights, epsilons)))
        of = {"records": scoring, "of": records}
        starts = [reaching(target, wrong / len(rungs), noise_multiplier=noise, **of) for _, noise in task["noise"]]
        ratios, reached, missed = [], 0, 0
        for search in task["searches"]:
            stops = [place for place, (score, _) in enumerate(search) if score >= starts[place]]
            last = stops[0] if stops else len(rungs) - 1
            reached += bool(stops)
            missed += bool(stops) and search[last][1] < target
            ratios.append(rungs[last]["epsilon"] / smallest)
        found.append(Judged(target, smallest, ratios, reached, missed))
    return found


def show() -> str:
    """The tables, from what was measured."""
    document = json.loads(FILE.read_text())
    lines = [
        "| task | target | smallest ε in hindsight | ratio, `wrong=0.05` | reached; wrongly | ratio, `wrong=0.5` | "
        "reached; wrongly |",
        "|---|---|---|---|---|---|---|",
    ]
    every: dict[float, list[Judged]] = {wrong: [] for wrong in CLAIMS}
    for task in document["tasks"]:
        both = {wrong: judged(task, wrong) for wrong in CLAIMS}
        for wrong in CLAIMS:
            every[wrong] += both[wrong]
        for each in zip(*both.values(), strict=True):
            first = f"| {task['name']} | {each[0].target:.3f} | {each[0].smallest:.3g} |"
            lines.append(first + "".join(_cells([one]) for one in each))
    lines.append("| all | | |" + "".join(_cells(every[wrong]) for wrong in CLAIMS))
    lines += ["", "| task | rung | cold | warm, at its rate | at a quarter of it |", "|---|---|---|---|---|"]
    for task in document["tasks"]:
        for place in range(1, len(task["rungs"])):
            cold = mean(search[place][1] for search in task["searches"][: len(task["warm"])])
            warm = [mean(one[str(rate)][place] for one in task["warm"]) for rate in WARM_RATES]
            lines.append(f"| {task['name']} | {place + 1} | {cold:.3f} | {' | '.join(f'{one:.3f}' for one in warm)} |")
    return "\n".join(lines)


def _cells(found: list[Judged]) -> str:
    """The median ratio, how often the target was reached, and how often that was wrong."""
    ratios = [ratio for one in found for ratio in one.ratios]
    reached, wrong = sum(one.reached for one in found), sum(one.wrong for one in found)
    return f" {median(ratios):.2f} | {reached} of {len(ratios)}; {wrong} |"


def landscape(data: Path, adult: Path) -> None:
    """Reach and lost accuracy on all public tasks: the committed landscapes, and the curves in hindsight here.

    What is lost is compared with the least noise of a landscape; here, with two runs that have next to none.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found: dict[str, list[list[float]]] = {}
    for files, steps, called in LANDSCAPES:
        levels = {noise: float(scores.mean(axis=0).max()) for noise, scores in trained(files, steps).scores.items()}
        found[called] = _lost({256 * steps**0.5 / noise: height for noise, height in levels.items()})
    for one in json.loads(FILE.read_text())["tasks"]:
        task = task_of(one["name"], data, adult)
        heights = {}
        for epsilon, accuracies in one["curve"].items():
            full = task.mechanism(task.draw(0), _unscored).with_noise(noise_of(task, float(epsilon)))
            run = full.cost.run({})
            heights[run.rate * task.records * run.steps**0.5 / run.noise_multiplier] = mean(accuracies)
        full = full.with_noise(_LEAST)
        params = known_params(full, full.default_space())
        heights[run.rate * task.records * run.steps**0.5 / _LEAST] = mean(
            task.accuracy(full(params, seed=seed).model) for seed in range(2)
        )
        model = "linear model" if task.width is None else "perceptron"
        found[f"{NAMES[task.name.partition('-')[0]]}, {task.records} records, {model}"] = _lost(heights)
    REACH.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _lost(heights: dict[float, float]) -> list[list[float]]:
    """Pairs of reach and lost accuracy, by increasing reach; more noise never loses less."""
    reaches = sorted(heights)
    best = np.maximum.accumulate([heights[one] for one in reaches])
    return [[round(reach, 1), round(float(best[-1] - height), 4)] for reach, height in zip(reaches, best, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser("python -m paper.ladder", description="Ladders on MNIST subsets and a table.")
    parser.add_argument("what", choices=["measure", "landscape", "show"])
    parser.add_argument("task", nargs="?", choices=TASKS)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--adult", type=Path, default=Path("data/adult"))
    chosen = parser.parse_args()
    if chosen.what == "show":
        print(show())
    elif chosen.what == "landscape":
        landscape(chosen.data, chosen.adult)
    elif chosen.task is None:
        parser.error(f"give a task: {', '.join(TASKS)}")
    else:
        measure(chosen.task, chosen.data, chosen.adult)


if __name__ == "__main__":
    main()
