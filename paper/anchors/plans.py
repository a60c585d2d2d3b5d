"""The plan of the experiments: every way to tune with its noise, lengths and seeds, written down before any of it runs.

``python -m paper anchors-plans`` writes ``plans.json``; the machine with the GPU reads it and needs no accountant. All
ways spend a total of ε = 3 at δ = 1e-5, everything charged: short runs, private scores, selection, statistics that
normalise features, and the last run. All take at most the compute of three full runs (a random number of runs: on
average).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dphypo.laws import Geometric, Law, Poisson
from dphypo.mechanisms import DpSgd, NoiseRehearsal
from paper.anchors.charges import DELTA, EPSILON, Part, cost, matched, solve
from paper.anchors.tasks import CLIP, MOMENTUM, TASKS, Task
from paper.anchors.trainer import Floats
from paper.train.descent import Average, Descent, Memories

FILE = Path(__file__).with_name("plans.json")
SEARCHES = 24
SEED = 281_000
PRICE = 0.01  # the most by which a survey of ours may raise the noise of the last run
RUNS = 8
SHARE = 1 / 6  # of the records score, where the last run trains on all of them
RIVAL_SHARE = 1 / 12  # where what is released never sees those that score
UNTUNED = 0.1  # learning rate of Opacus's MNIST example, whose clipping norm is one


def statistics(task: Task) -> list[Part]:
    """What normalising the features costs, whatever the way to tune."""
    return [] if task.statistics is None else [Part(task.statistics, "both", count=2)]


def walk(params: Mapping[str, Any], gradients: Iterable[Floats], steps: int) -> Floats:
    """SGD with momentum whose model is the average of its weights, for a rehearsal."""
    weights, descent, average = None, Descent(Memories(params["momentum"])), Average(params["average"])
    for gradient in gradients:
        (direction,) = descent.directions([torch.from_numpy(gradient)])
        weights = torch.zeros_like(direction) if weights is None else weights
        weights.sub_(params["learning_rate"] * direction)
        average.add([weights])
    return np.asarray(average.values[0].numpy())


class Plans:
    """The ways to tune one task."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.extra = statistics(task)
        self.alone = solve(lambda noise: [*self.extra, self.full(noise)])

    def full(self, noise: float, side: str = "both", share: float = 0.0) -> Part:
        """A full run on all records, or on those that do not score."""
        rate = self.task.batch / round(self.task.records * (1 - share))
        return Part(noise, side, rate=rate, steps=self.task.steps)

    def survey(self, name: str, count: int, steps: int, **space: Any) -> dict[str, Any]:
        """Short runs on one side, scores on the other, the last run on all: as ``dphypo.tune`` charges it."""
        task, trained = self.task, round(self.task.records * (1 - SHARE))

        def parts(noise: float) -> list[Part]:
            short = Part(
                matched(noise, task.steps, steps), "training", count, rate=task.batch / trained, steps=steps
            )  # fmt: skip
            return [*self.extra, short, self.full(noise)]

        noise = solve(parts, self.alone)
        scores = solve(lambda one: [*self.extra, self.full(noise), Part(one, "scoring", count)], 20.0)
        return {
            "name": name, "kind": "survey", "share": SHARE, "count": count, "steps": steps, "noise": noise,
            "short noise": matched(noise, task.steps, steps), "score noise": scores,
            "price": round(noise / self.alone - 1, 5), "compute": 1 + count * steps / task.steps,
            **self.short(steps, noise), **space,
            "parts": [one.to_dict() for one in (*parts(noise), Part(scores, "scoring", count))],
        }  # fmt: skip

    def short(self, steps: int, noise: float) -> dict[str, Any]:
        """The learning rate of a short run over the full run's."""
        params = {"learning_rate": 1.0, "momentum": MOMENTUM, "average": self.task.average}
        full = DpSgd(rate=self.full(noise).rate, steps=self.task.steps, noise_multiplier=noise)
        rule = NoiseRehearsal(walk, full, noise * CLIP / self.task.batch)
        return {"rate factor": rule(params, steps / self.task.steps)["learning_rate"]}

    def cheap(self) -> dict[str, Any]:
        """Ours: as long as short runs can be for at most one per cent more noise."""
        steps = max(2, math.ceil(0.06 * self.task.steps))
        while (found := self.survey("ours", RUNS, steps))["price"] > PRICE:
            steps = min(steps - 1, int(steps * math.sqrt(PRICE / found["price"])))
        return found

    def untuned(self) -> dict[str, Any]:
        """One run with the defaults of a well-known example."""
        return self.one("untuned", {"rate": UNTUNED})

    def one(self, name: str, settings: dict[str, Any]) -> dict[str, Any]:
        """One run on all records at the noise of a run alone."""
        return {"name": name, "kind": "one run", "noise": self.alone, "compute": 1.0, **settings,
                "parts": [one.to_dict() for one in (*self.extra, self.full(self.alone))]}  # fmt: skip

    def geometric(self, mean: float = 3.0) -> dict[str, Any]:
        """Liu and Talwar (2019), Papernot and Steinke (2022): a geometric number of full runs, the best released."""
        law = Geometric(mean=mean)

        def parts(noise: float) -> list[Part]:
            run = self.full(noise, "training", RIVAL_SHARE)
            return [*self.extra, Part(noise, "training", rate=run.rate, steps=run.steps, law=law.to_dict())]

        def scored(noise: float) -> list[Part]:
            return [*self.extra, Part(noise, "scoring", law=law.to_dict())]

        noise, scores = solve(parts, 1.5 * self.alone), solve(scored, 4.0)
        return {"name": "geometric search", "kind": "geometric", "share": RIVAL_SHARE, "noise": noise,
                "score noise": scores, "compute": mean, "lengths": drawn(law, 1),
                "parts": [one.to_dict() for one in (*parts(noise), scored(scores)[-1])]}  # fmt: skip

    def subset(self, mean: float = 15.0, subset: float = 0.1) -> dict[str, Any]:
        """Koskela and Kulkarni (2023): a Poisson number of runs on random subsets, the best learning rate scaled up.

        Steps, noise and sampling rate stay, so batches shrink with the subset, and the full run's learning rate is
        that of the subset over its share. Each run has a subset of its own; the paper draws one for all.
        """
        law, full = Poisson(mean), self.full(1.0, "training", RIVAL_SHARE)

        def parts(noise: float) -> list[Part]:
            search = Part(noise, "training", rate=full.rate, steps=full.steps, subset=subset, law=law.to_dict())
            return [*self.extra, search, self.full(noise)]

        noise = solve(parts, self.alone)
        scores = solve(lambda one: [*self.extra, self.full(noise), Part(one, "scoring", law=law.to_dict())], 20.0)
        return {"name": "on a subset", "kind": "subset", "share": RIVAL_SHARE, "noise": noise, "subset": subset,
                "score noise": scores, "compute": 1 + mean * subset, "lengths": drawn(law, 2),
                "parts": [one.to_dict() for one in (*parts(noise), Part(scores, "scoring", law=law.to_dict()))],
                }  # fmt: skip

    def scaling(self, trials: int = 6) -> dict[str, Any]:
        """Panda and others (2024): the best η·steps at two small ε, a line through both to the last run's ε."""
        task = self.task
        rate = task.batch / round(task.records * (1 - RIVAL_SHARE))
        lengths = [math.ceil(share * task.steps) for share in (0.05, 0.1)]
        spent = [EPSILON / 20, EPSILON / 10]
        noises = [
            solve(partial(self._trial, rate, steps), 10.0, epsilon)
            for epsilon, steps in zip(spent, lengths, strict=True)
        ]
        shorts = [Part(noise, "training", trials, rate=rate, steps=steps)
                  for noise, steps in zip(noises, lengths, strict=True)]  # fmt: skip
        noise = solve(lambda one: [*self.extra, *shorts, self.full(one)], self.alone)
        scores = solve(lambda one: [*self.extra, self.full(noise), Part(one, "scoring", 2 * trials)], 20.0)
        last = cost([self.full(noise)])
        return {"name": "linear scaling", "kind": "scaling", "share": RIVAL_SHARE, "noise": noise, "trials": trials,
                "steps": lengths, "short noise": noises, "spent": spent, "last": last, "score noise": scores,
                "compute": 1 + trials * sum(lengths) / task.steps,
                "parts": [one.to_dict()
                          for one in (*self.extra, *shorts, self.full(noise), Part(scores, "scoring", 2 * trials))],
                }  # fmt: skip

    @staticmethod
    def _trial(rate: float, steps: int, noise: float) -> list[Part]:
        return [Part(noise, "training", rate=rate, steps=steps)]

    def probes(self, every: int = 5, raised: float = 1.01) -> dict[str, Any]:
        """HyFreeDP, Liu and Bu (2025): step sizes from three private losses, for one per cent more noise."""
        noise, probed = raised * self.alone, math.ceil(self.task.steps / every)

        def parts(losses: float) -> list[Part]:
            run = self.full(noise)
            joint = (noise**-2 + 3 * losses**-2) ** -0.5  # of a step that also tells three losses of its batch
            return [*self.extra, Part(noise, "both", rate=run.rate, steps=run.steps - probed),
                    Part(joint, "both", rate=run.rate, steps=probed)]  # fmt: skip

        losses = solve(parts, 10 * noise)
        return {"name": "HyFreeDP", "kind": "probes", "noise": noise, "loss noise": losses, "every": every,
                "compute": 1 + 3 / every / 3, "parts": [one.to_dict() for one in parts(losses)]}  # fmt: skip

    def every_way(self) -> list[dict[str, Any]]:
        """Ours, what it is compared with, and what can be reached in hindsight."""
        return [
            self.cheap(),
            self.survey("rate and clipping norm, 15 runs of a tenth", 15, math.ceil(0.1 * self.task.steps), clips=True),
            self.untuned(),
            self.geometric(),
            self.subset(),
            self.scaling(),
            self.probes(),
            self.one("best in hindsight, not charged", {"hindsight": True}),
        ]


def drawn(law: Law, stream: int) -> list[int]:
    """The number of runs of every search, drawn beforehand."""
    unit = np.random.default_rng([SEED, stream]).random(SEARCHES)
    counts = np.arange(0, 400)
    below = np.cumsum([law.pmf(int(count)) for count in counts])
    return [int(np.searchsorted(below, one)) for one in unit]


def write(path: Path = FILE) -> None:
    """All tasks."""
    known: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "seed": SEED, "tasks": {}}
    for name, task in TASKS.items():
        ways = Plans(task).every_way() if task.model == "linear" else few(task)
        searches = SEARCHES if task.model == "linear" else SEARCHES // 2
        known["tasks"][name] = {"task": asdict(task), "searches": searches, "ways": ways}
        for way in ways:
            print(name, way["name"], round(way["noise"], 4), way.get("price"), way["compute"], flush=True)
    path.write_text(json.dumps(known, indent=1) + "\n")


def few(task: Task) -> list[dict[str, Any]]:
    """A network takes longer: ours, and untuned."""
    plans = Plans(task)
    return [plans.cheap(), plans.untuned()]
