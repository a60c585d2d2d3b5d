"""The plan of the experiments: every way to tune with its noise, lengths and seeds, written down before any of it runs.

``python -m paper anchors-plans`` writes ``plans.json``; the machine with the GPU reads it and needs no accountant. All
ways spend the task's total ε at δ = 1e-5, everything charged: short runs, private scores, selection, statistics that
normalise features, and the last run. All take at most the compute of three full runs (a random number of runs: on
average). Noise is that of a run as one Gaussian mechanism (:mod:`paper.anchors.structure`), so that the plan holds for
every structure with all records in a step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dphypo.laws import Geometric, Law, Poisson
from dphypo.mechanisms import NoiseRehearsal, SampledGaussian
from paper.anchors.charges import DELTA, EPSILON, Part, cost, solve
from paper.anchors.normalise import recipe
from paper.anchors.structure import ADAM_1600, STRUCTURES, Structure
from paper.anchors.tasks import TASKS, Task
from paper.anchors.trainer import Floats
from paper.train.descent import Average, Descent

FILE = Path(__file__).with_name("plans.json")
SEED = 285_000
# Short runs, and how long: at most one per cent more noise.
SURVEYS = {"linear": (5, 0.063), "cnn": (6, 0.05), "wide": (5, 0.052)}
SHARE = 1 / 6  # of the records score, where the last run trains on all of them
RIVAL_SHARE = 1 / 12  # where what is released never sees those that score
CORRECTION = 0.7  # of the learning rate of short runs of linear models, by the second pilot
RIVAL_SEARCHES = 4  # of networks, which take longer


def factor(structure: Structure, fraction: float, deviation: float = 5e-4) -> float:
    """The learning rate of a short run over the full run's, by the library's rehearsal."""

    def walk(params: Mapping[str, Any], gradients: Iterable[Floats], steps: int) -> Floats:
        weights, descent, average = None, Descent(structure.memories), Average(structure.kept(steps))
        for number, gradient in enumerate(gradients):
            (direction,) = descent.directions([torch.from_numpy(gradient)])
            weights = torch.zeros_like(direction) if weights is None else weights
            weights.sub_(params["learning_rate"] * (1 - number / steps if structure.decay else 1) * direction)
            average.add([weights])
        return np.asarray(average.values[0].numpy())

    full = SampledGaussian(rate=1.0, steps=structure.steps, noise_multiplier=1.0)
    found = NoiseRehearsal(walk, full, deviation)({"learning_rate": 1.0}, fraction)["learning_rate"]
    return round(float(found), 5)


class Plans:
    """The ways to tune one task, all with the structure of the task's full runs."""

    def __init__(self, task: Task, structure: Structure) -> None:
        sums = recipe(task.recipe).sums if task.recipe else 0
        self.task, self.structure = task, structure
        self.extra = [Part(task.statistics, "both", count=sums)] if sums else []
        self.alone = self.solved(lambda noise: [self.run(noise)])

    def run(self, noise: float, share: float = 0.0, fraction: float = 1.0, count: int = 1, **more: Any) -> Part:
        """Runs of a fraction of the steps, on all records or without the share that scores.

        All steps together have ``noise`` as one mechanism on all their records; batches make it cheaper.
        """
        side, batch = "training" if share else "both", self.structure.batch
        if batch is None:
            return Part(noise, side, count, **more)
        steps, used = round(fraction * self.structure.steps), self.task.records - round(self.task.records * share)
        return Part(noise * math.sqrt(steps), side, count, rate=batch / used, steps=steps, **more)

    def solved(self, parts: Callable[[float], list[Part]], start: float | None = None) -> float:
        """The smallest noise at which these parts, and the statistics of the features, cost ε."""
        first = start or (1.4 if self.structure.batch is None else 0.3)
        return solve(lambda noise: [*self.extra, *parts(noise)], first, self.task.epsilon)

    def way(self, name: str, kind: str, parts: list[Part], noise: float, compute: float, **more: Any) -> dict[str, Any]:
        """As the plan states it."""
        return {"name": name, "kind": kind, "noise": noise, "compute": compute, **more,
                "parts": [one.to_dict() for one in (*self.extra, *parts)]}  # fmt: skip

    def one(self, name: str, **settings: Any) -> dict[str, Any]:
        """One run on all records at the noise of a run alone."""
        return self.way(name, "one run", [self.run(self.alone)], self.alone, 1.0, **settings)

    def ours(self, count: int, fraction: float) -> dict[str, Any]:
        """Short runs on one side, scores on the other, the last run on all: as ``dphypo.tune`` charges it.

        A run of the fraction f has noise σ/√f, which is ν/f as one mechanism.
        """

        def parts(noise: float) -> list[Part]:
            return [self.run(noise / fraction, SHARE, fraction, count), self.run(noise)]

        noise = self.solved(parts)
        scores = self.solved(lambda one: [self.run(noise), Part(one, "scoring", count)], 20.0)
        return self.way(
            "ours", "survey", [*parts(noise), Part(scores, "scoring", count)], noise, 1 + count * fraction, share=SHARE,
            count=count, fraction=fraction, factor=factor(self.structure, fraction),
            price=round(noise / self.alone - 1, 5), **{"score noise": scores},
        )  # fmt: skip

    def geometric(self, mean: float = 3.0) -> dict[str, Any]:
        """Liu and Talwar (2019), Papernot and Steinke (2022): a geometric number of full runs, the best released."""
        law = Geometric(mean=mean)
        noise = self.solved(lambda one: [self.run(one, RIVAL_SHARE, law=law.to_dict())])
        scores = self.solved(lambda one: [Part(one, "scoring", law=law.to_dict())], 2.0)
        parts = [self.run(noise, RIVAL_SHARE, law=law.to_dict()), Part(scores, "scoring", law=law.to_dict())]
        return self.way("geometric search", "geometric", parts, noise, mean, share=RIVAL_SHARE,
                        lengths=drawn(law, 1), **{"score noise": scores})  # fmt: skip

    def subset(self, mean: float = 15.0, subset: float = 0.1) -> dict[str, Any]:
        """Koskela and Kulkarni (2023): a Poisson number of runs on random subsets, then a full run.

        Steps and noise stay. Each run has a subset of its own; the paper draws one for all.
        """
        law = Poisson(mean)

        def parts(noise: float) -> list[Part]:
            search = replace(self.run(noise, RIVAL_SHARE), subset=subset, law=law.to_dict())
            return [replace(search, rate=search.rate or 1.0, steps=search.steps or 1), self.run(noise)]

        noise = self.solved(parts)
        scored = Part(
            self.solved(lambda one: [self.run(noise), Part(one, "scoring", law=law.to_dict())], 20.0),
            "scoring", law=law.to_dict(),
        )  # fmt: skip
        return self.way("on a subset", "subset", [*parts(noise), scored], noise, 1 + mean * subset, subset=subset,
                        share=RIVAL_SHARE, lengths=drawn(law, 2), **{"score noise": scored.noise})  # fmt: skip

    def scaling(self, trials: int = 6) -> dict[str, Any]:
        """Panda and others (2024): the best η·steps at two small ε, a line through both to the last run's ε."""
        fractions, spent = [0.1, 0.2], [EPSILON / 20, EPSILON / 10]

        def short(fraction: float, epsilon: float) -> float:
            return solve(lambda one: [self.run(one, RIVAL_SHARE, fraction)], 20.0, epsilon)

        noises = [short(*level) for level in zip(fractions, spent, strict=True)]
        shorts = [self.run(noise, RIVAL_SHARE, at, trials) for at, noise in zip(fractions, noises, strict=True)]
        noise = self.solved(lambda one: [*shorts, self.run(one)])
        scores = self.solved(lambda one: [self.run(noise), Part(one, "scoring", 2 * trials)], 20.0)
        parts = [*shorts, self.run(noise), Part(scores, "scoring", 2 * trials)]
        return self.way(
            "linear scaling", "scaling", parts, noise, 1 + trials * sum(fractions), share=RIVAL_SHARE, trials=trials,
            fractions=fractions, spent=spent, last=cost([self.run(noise)]),
            **{"short noise": noises, "score noise": scores},
        )  # fmt: skip

    def probes(self, every: int = 5, raised: float = 1.01) -> dict[str, Any]:
        """HyFreeDP, Liu and Bu (2025): step sizes from three private losses, for one per cent more noise.

        The losses of all probes together are one Gaussian mechanism as well: its noise is "loss noise". With batches
        it is that of three losses on one batch.
        """
        noise, batch = raised * self.alone, self.structure.batch

        def losses(level: float) -> Part:
            if batch is None:
                return Part(level, "both")
            return Part(level, "both", rate=batch / self.task.records, steps=math.ceil(self.structure.steps / every))

        level = self.solved(lambda one: [self.run(noise), losses(one)], 10.0)
        return self.way("HyFreeDP", "probes", [self.run(noise), losses(level)], noise, 1 + 1 / every,
                        every=every, **{"loss noise": level})  # fmt: skip

    def every_way(self) -> list[dict[str, Any]]:
        """Ours, what it is compared with, and what can be reached in hindsight; what takes longest comes last."""
        ours, untuned = self.ours(*SURVEYS[self.task.model]), self.one("untuned")
        if self.task.model == "wide":
            return [ours, untuned]
        if self.task.model == "cnn":
            rivals = [untuned, self.probes(), self.scaling(), self.geometric(), self.subset()]
            return [ours, *({**one, "searches": RIVAL_SEARCHES} for one in rivals)]
        factor = round(CORRECTION * ours["factor"], 5)
        return [ours, {**ours, "name": f"ours, short runs × {CORRECTION:g}", "factor": factor}, untuned,
                {**self.one("untuned, Adam", structure=ADAM_1600.to_dict()), "compute": 2.0},
                self.one("best in hindsight, not charged", hindsight=True),
                self.probes(), self.scaling(), self.geometric(), self.subset()]  # fmt: skip


def drawn(law: Law, stream: int) -> list[int]:
    """The number of runs of every search, drawn beforehand."""
    most = max(task.searches for task in TASKS.values() if not task.ways)
    unit = np.random.default_rng([SEED, stream]).random(most)
    below = np.cumsum([law.pmf(count) for count in range(400)])
    return [int(np.searchsorted(below, one)) for one in unit]


def write(names: Sequence[str] = (), path: Path = FILE) -> None:
    """All tasks, or those with these names; the others stay as they are."""
    known: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "seed": SEED, "tasks": {}}
    if names:
        known = json.loads(path.read_text())
    for name, task in ((name, TASKS[name]) for name in names or TASKS):
        ways = Plans(task, STRUCTURES[task.model]).every_way()
        ways = [way for way in ways if not task.ways or way["name"] in task.ways]
        known["tasks"][name] = {"task": asdict(task), "structure": STRUCTURES[task.model].to_dict(), "ways": ways}
        for way in ways:
            print(name, way["name"], round(way["noise"], 4), way.get("price"), way["compute"], flush=True)
    path.write_text(json.dumps(known, indent=1) + "\n")
