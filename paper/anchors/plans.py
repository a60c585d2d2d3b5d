"""The plan of the experiments: every way to tune with its noise, lengths and seeds, written down before any of it runs.

``python -m paper anchors-plans`` writes ``plans.json``; the machine with the GPU reads it and needs no accountant. All
ways spend a total of ε = 3 at δ = 1e-5, everything charged: short runs, private scores, selection, statistics that
normalise features, and the last run. All take at most the compute of three full runs (a random number of runs: on
average). Noise is that of a run as one Gaussian mechanism (:mod:`paper.anchors.structure`), so that the plan holds for
every structure that the pilot may choose.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dphypo.laws import Geometric, Law, Poisson
from dphypo.mechanisms import DpSgd, NoiseRehearsal
from paper.anchors.charges import DELTA, EPSILON, Part, cost, solve
from paper.anchors.normalise import recipe
from paper.anchors.structure import NETWORK, STRUCTURES, Structure
from paper.anchors.tasks import TASKS, Task
from paper.anchors.trainer import Floats
from paper.train.descent import Average, Descent

FILE = Path(__file__).with_name("plans.json")
SEED = 283_000
RUNS = 8
FRACTION = 0.05  # of a full run: eight such runs cost one per cent more noise
SHARE = 1 / 6  # of the records score, where the last run trains on all of them
RIVAL_SHARE = 1 / 12  # where what is released never sees those that score
REPETITIONS = 4  # of each learning rate in the pilot


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

    full = DpSgd(rate=1.0, steps=structure.steps, noise_multiplier=1.0)
    found = NoiseRehearsal(walk, full, deviation)({"learning_rate": 1.0}, fraction)["learning_rate"]
    return round(float(found), 5)


class Plans:
    """The ways to tune one task with all records in every step."""

    def __init__(self, task: Task) -> None:
        sums = recipe(task.recipe).sums
        self.extra = [Part(task.statistics, "both", count=sums)] if sums else []
        self.alone = self.solved(lambda noise: [Part(noise, "both")])

    def solved(self, parts: Callable[[float], list[Part]], start: float = 1.4) -> float:
        """The smallest noise at which these parts, and the statistics of the features, cost ε."""
        return solve(lambda noise: [*self.extra, *parts(noise)], start)

    def way(self, name: str, kind: str, parts: list[Part], noise: float, compute: float, **more: Any) -> dict[str, Any]:
        """As the plan states it."""
        return {"name": name, "kind": kind, "noise": noise, "compute": compute, **more,
                "parts": [one.to_dict() for one in (*self.extra, *parts)]}  # fmt: skip

    def one(self, name: str, **settings: Any) -> dict[str, Any]:
        """One run on all records at the noise of a run alone."""
        return self.way(name, "one run", [Part(self.alone, "both")], self.alone, 1.0, **settings)

    def ours(self) -> dict[str, Any]:
        """Short runs on one side, scores on the other, the last run on all: as ``dphypo.tune`` charges it.

        A run of the fraction f has noise σ/√f, which is ν/f as one mechanism.
        """

        def parts(noise: float) -> list[Part]:
            return [Part(noise / FRACTION, "training", RUNS), Part(noise, "both")]

        noise = self.solved(parts)
        scores = self.solved(lambda one: [Part(noise, "both"), Part(one, "scoring", RUNS)], 20.0)
        return self.way(
            "ours", "survey", [*parts(noise), Part(scores, "scoring", RUNS)], noise, 1 + RUNS * FRACTION, share=SHARE,
            count=RUNS, fraction=FRACTION, price=round(noise / self.alone - 1, 5), **{"score noise": scores},
        )  # fmt: skip

    def geometric(self, mean: float = 3.0) -> dict[str, Any]:
        """Liu and Talwar (2019), Papernot and Steinke (2022): a geometric number of full runs, the best released."""
        law = Geometric(mean=mean)
        noise = self.solved(lambda one: [Part(one, "training", law=law.to_dict())], 2.0)
        scores = self.solved(lambda one: [Part(one, "scoring", law=law.to_dict())], 2.0)
        parts = [Part(noise, "training", law=law.to_dict()), Part(scores, "scoring", law=law.to_dict())]
        return self.way("geometric search", "geometric", parts, noise, mean, share=RIVAL_SHARE,
                        lengths=drawn(law, 1), **{"score noise": scores})  # fmt: skip

    def subset(self, mean: float = 15.0, subset: float = 0.1) -> dict[str, Any]:
        """Koskela and Kulkarni (2023): a Poisson number of runs on random subsets, then a full run.

        Steps and noise stay. Each run has a subset of its own; the paper draws one for all.
        """
        law = Poisson(mean)

        def parts(noise: float) -> list[Part]:
            search = Part(noise, "training", rate=1.0, steps=1, subset=subset, law=law.to_dict())
            return [search, Part(noise, "both")]

        noise = self.solved(parts)
        scored = Part(
            self.solved(lambda one: [Part(noise, "both"), Part(one, "scoring", law=law.to_dict())], 20.0),
            "scoring", law=law.to_dict(),
        )  # fmt: skip
        return self.way("on a subset", "subset", [*parts(noise), scored], noise, 1 + mean * subset, subset=subset,
                        share=RIVAL_SHARE, lengths=drawn(law, 2), **{"score noise": scored.noise})  # fmt: skip

    def scaling(self, trials: int = 6) -> dict[str, Any]:
        """Panda and others (2024): the best η·steps at two small ε, a line through both to the last run's ε."""
        fractions, spent = [0.1, 0.2], [EPSILON / 20, EPSILON / 10]
        noises = [solve(lambda noise: [Part(noise, "training")], 20.0, epsilon) for epsilon in spent]
        shorts = [Part(noise, "training", trials) for noise in noises]
        noise = self.solved(lambda one: [*shorts, Part(one, "both")])
        scores = self.solved(lambda one: [Part(noise, "both"), Part(one, "scoring", 2 * trials)], 20.0)
        parts = [*shorts, Part(noise, "both"), Part(scores, "scoring", 2 * trials)]
        return self.way(
            "linear scaling", "scaling", parts, noise, 1 + trials * sum(fractions), share=RIVAL_SHARE, trials=trials,
            fractions=fractions, spent=spent, last=cost([Part(noise, "both")]),
            **{"short noise": noises, "score noise": scores},
        )  # fmt: skip

    def probes(self, every: int = 5, raised: float = 1.01) -> dict[str, Any]:
        """HyFreeDP, Liu and Bu (2025): step sizes from three private losses, for one per cent more noise.

        The losses of all probes together are one Gaussian mechanism as well: its noise is "loss noise".
        """
        noise = raised * self.alone
        losses = self.solved(lambda one: [Part(noise, "both"), Part(one, "both")], 10.0)
        return self.way("HyFreeDP", "probes", [Part(noise, "both"), Part(losses, "both")], noise, 1 + 1 / every,
                        every=every, **{"loss noise": losses})  # fmt: skip

    def every_way(self) -> list[dict[str, Any]]:
        """Ours, what it is compared with, and what can be reached in hindsight; what takes longest comes last."""
        return [self.ours(), self.one("untuned"), self.one("best in hindsight, not charged", hindsight=True),
                self.probes(), self.scaling(), self.geometric(), self.subset()]  # fmt: skip


def sampled(task: Task, structure: Structure, fraction: float = 0.04) -> list[dict[str, Any]]:
    """Ours and untuned with Poisson batches, for the network."""
    plans, batch = Plans(task), structure.batch or task.records
    trained, short = round(task.records * (1 - SHARE)), round(fraction * structure.steps)

    def full(noise: float) -> Part:
        return Part(noise, "both", rate=batch / task.records, steps=structure.steps)

    def parts(noise: float) -> list[Part]:
        return [Part(noise / math.sqrt(fraction), "training", RUNS, rate=batch / trained, steps=short), full(noise)]

    alone, root = plans.solved(lambda noise: [full(noise)], 5.0), math.sqrt(structure.steps)
    noise = plans.solved(parts, alone)
    scores = plans.solved(lambda one: [full(noise), Part(one, "scoring", RUNS)], 20.0)
    return [
        plans.way(
            "ours", "survey", [*parts(noise), Part(scores, "scoring", RUNS)], noise / root, 1 + RUNS * fraction,
            share=SHARE, count=RUNS, fraction=fraction, price=round(noise / alone - 1, 5), **{"score noise": scores},
        ),
        plans.way("untuned", "one run", [full(alone)], alone / root, 1.0),
    ]  # fmt: skip


def drawn(law: Law, stream: int) -> list[int]:
    """The number of runs of every search, drawn beforehand."""
    most = max(task.searches for task in TASKS.values())
    unit = np.random.default_rng([SEED, stream]).random(most)
    below = np.cumsum([law.pmf(count) for count in range(400)])
    return [int(np.searchsorted(below, one)) for one in unit]


def write(path: Path = FILE) -> None:
    """The pilot, and all tasks."""
    pilot: dict[str, Any] = {
        "noise": Plans(TASKS["fashion"]).alone,
        "held out": 10_000,
        "repetitions": REPETITIONS,
        "structures": {
            name: {**one.to_dict(), "factor": factor(one, FRACTION)} for name, one in STRUCTURES.items()
        },
    }  # fmt: skip
    known: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "seed": SEED, "pilot": pilot, "tasks": {}}
    for name, task in TASKS.items():
        stated: dict[str, Any] = {"task": asdict(task), "ways": Plans(task).every_way()}
        if task.model == "cnn":
            stated["structure"] = {**NETWORK.to_dict(), "factor": factor(NETWORK, 0.04)}
            stated["ways"] = sampled(task, NETWORK)
        elif task.structure is not None:
            stated["structure"] = pilot["structures"][task.structure]
            stated["ways"] = stated["ways"][:3]
        known["tasks"][name] = stated
        for way in stated["ways"]:
            print(name, way["name"], round(way["noise"], 4), way.get("price"), way["compute"], flush=True)
    path.write_text(json.dumps(known, indent=1) + "\n")
