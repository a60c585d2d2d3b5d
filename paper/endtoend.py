"""Real private studies on MNIST, not simulations: many studies at once, in lockstep, through ``dphypo.Study``.

Every study asks for its next run; all the runs asked for are trained in one vectorised program and told. A run is
scored on one half of the test pictures, which count as public, as in the paper; what is released is judged on the
other half.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import torch
from scipy.stats import loguniform, uniform

import dphypo
from dphypo.band import KL, Band, Rule
from dphypo.mechanism import Outcome
from dphypo.runs import Law, NegativeBinomial
from dphypo.samplers import GaussianProcess, Uniform
from paper.data import Images
from paper.event import dp_sgd
from paper.train.gradients import Gradients
from paper.train.landscape import gradients_for
from paper.train.run import Data, Settings, right, train

EPSILON, DELTA = 6.0, 1e-5
SPACE = {"learning_rate": loguniform(1e-4, 10.0), "clip": uniform(0.15, 5.85)}
CELLS = {"learning_rate": 16, "clip": 20}


@dataclass(frozen=True)
class Arm:
    """A way to search, at the total ε of all of them."""

    name: str
    runs: Law
    band: Band
    sampler: GaussianProcess | Uniform
    rule: Rule

    def noise_multiplier(self, records: int, steps: int, batch: int) -> float:
        """The noise with which a whole search costs :data:`EPSILON`."""

        def event(noise: float) -> dp_accounting.DpEvent:
            return dp_sgd(records, noise, batch, steps * batch / records)

        return float(dphypo.calibrate(event, self.runs, self.band, epsilon=EPSILON, delta=DELTA).value)


Made = tuple[Arm, dphypo.Study, float]  # with its noise multiplier


def arms(mean: float = 20.0) -> list[Arm]:
    """Uniform with the literature's and with a concentrated law of T, and our default rule in a narrow band."""
    plain, shape8 = Band(1, 1), NegativeBinomial(8.0, mean=mean)
    return [
        Arm("uniform, geometric T", dphypo.Geometric(mean=mean), plain, Uniform(), KL()),
        Arm("uniform, shape 8", shape8, plain, Uniform(), KL()),
        Arm("ours, (0.85, 1.25), shape 8", shape8, Band(0.85, 1.25), GaussianProcess(), KL()),
    ]


def studies(
    images: Images,
    out: Path,
    device: str,
    repetitions: int,
    seconds: float = float("inf"),
    *,
    steps: int = 2344,
    batch: int = 256,
    mean: float = 20.0,
) -> dict[str, Any]:
    """Run ``repetitions`` studies of every arm and write what they release.

    A study that is not finished when time is up has no release and is only counted: dropping it leaves out long
    searches, so results with unfinished studies are not to be used.
    """
    started = time.time()
    data, held_out = _halves(images, device)
    gradients = gradients_for(data)
    made = [made for arm in arms(mean) for made in _studies(arm, len(data.train), steps, batch, repetitions)]
    while time.time() - started < seconds:
        asked = [(n, study.ask()) for n, (_, study, _) in enumerate(made)]
        trials = [(n, trial) for n, trial in asked if trial is not None]
        if not trials:
            break
        rows = np.array([[t.params["learning_rate"], t.params["clip"], made[n][2]] for n, t in trials])
        # As many models in every round, the last one repeated: a compiled program is compiled for one number of models.
        rows = np.concatenate([rows, np.repeat(rows[-1:], len(made) - len(rows), axis=0)])
        settings = Settings(rows[:, 0], rows[:, 1], rows[:, 2], steps, batch)
        shown, hidden = _trained(data, held_out, settings, len(trials), trials[0][1].seed % 2**31, gradients)
        for (n, trial), score, other in zip(trials, shown, hidden, strict=True):
            made[n][1].tell(trial, Outcome({"held_out": other}, score))
    result = _released(made, time.time() - started)
    out.write_text(json.dumps(result, indent=1) + "\n")
    return result


def _studies(arm: Arm, records: int, steps: int, batch: int, count: int) -> list[Made]:
    noise = arm.noise_multiplier(records, steps, batch)

    @dphypo.mechanism(
        event=dp_sgd(records, noise, batch, steps * batch / records),
        relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    )
    def run(params: dict[str, Any], *, seed: int) -> Outcome:
        raise NotImplementedError("runs of many studies are trained together, and told")

    space = dphypo.Space(SPACE)
    return [
        (
            arm,
            dphypo.Study(space, run, arm.runs, arm.band, sampler, arm.rule, delta=DELTA, journal=None, grid=CELLS),
            noise,
        )
        for sampler in (replace(arm.sampler) for _ in range(count))  # each with a memory of its own
    ]


def _halves(images: Images, device: str) -> tuple[Data, Data]:
    half = len(images.test) // 2
    parts = [slice(0, half), slice(half, None)]
    made = [
        Data.of(Images(images.train, images.train_labels, images.test[part], images.test_labels[part]), device)
        for part in parts
    ]
    return made[0], made[1]


@torch.no_grad()
def _trained(
    data: Data, held_out: Data, settings: Settings, count: int, seed: int, gradients: Gradients
) -> tuple[list[float], list[float]]:
    """Accuracies of the first ``count`` models on both halves."""
    parameters, _ = train(data, settings, seed, gradients=gradients)
    found = [right(part, parameters, gradients)[:count] / len(part.test) for part in (data, held_out)]
    return found[0].tolist(), found[1].tolist()


def _released(made: list[Made], seconds: float) -> dict[str, Any]:
    result: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "seconds": round(seconds, 1)}
    for name in dict.fromkeys(arm.name for arm, _, _ in made):
        held_out, unfinished = [], 0
        mine = [(study, noise) for arm, study, noise in made if arm.name == name]
        for study, _ in mine:
            if study.ask() is not None:
                unfinished += 1
                continue
            held_out.append(study.release().model["held_out"])
        result[name] = {
            "noise multiplier": round(mine[0][1], 4),
            "epsilon": round(mine[0][0].guarantee.epsilon(DELTA), 4),
            "accuracy of the releases": sorted(held_out),
            "mean": round(float(np.mean(held_out)), 5) if held_out else None,
            "half": round(1.96 * float(np.std(held_out, ddof=1)) / len(held_out) ** 0.5, 5)
            if len(held_out) > 1
            else None,
            "unfinished": unfinished,
        }
    return result
