"""Run the searches of a design and write what they release."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import dphypo
from paper.data import points
from paper.data.sets import Images
from paper.experiments.study.designs import DELTA, Arm, Comparison
from paper.experiments.study.rounds import run_all
from paper.experiments.study.search import Search, searches
from paper.experiments.study.trainer import SCORE_NOISE, Trainer
from paper.simulate import worlds
from paper.train.landscape import provenance

SEED = 20_000
NOTE = (
    "Models trained in one round share their Poisson batches, and draws are seeded, equally in all arms: this measures "
    "utility, with arms paired by repetition. The guarantee of the declared events asks for batches drawn for each run "
    "and secret entropy."
)


def compare(
    design: Comparison,
    images: Images,
    out: Path,
    device: str,
    repetitions: int,
    seconds: float = float("inf"),
    sizes: Sequence[int] = (96, 32),
    *,
    batch: int = 256,
) -> dict[str, Any]:
    """Make ``repetitions`` searches of every arm, as many models at a time as ``sizes`` allow, and write ``out``.

    A search that is not finished when time is up has no release and is only counted: leaving it out leaves out long
    searches, so results with unfinished ones are not to be used.
    """
    started = time.time()
    arms = design.arms(len(images.train), batch)
    made = [searches(arm, repetitions, SEED) for arm in arms]
    print(f"{repetitions} searches of each of {len(arms)} arms after {time.time() - started:.1f} s", flush=True)
    trainer = Trainer(images, device, SEED)
    rounds = run_all([search for several in made for search in several], trainer, sizes, started + seconds)
    rows = {arm.name: _row(arm, several) for arm, several in zip(arms, made, strict=True)}
    result = {
        "epsilon": design.epsilon,
        "delta": DELTA,
        "score noise": SCORE_NOISE,
        "repetitions": repetitions,
        "note": NOTE,
        "arms": rows,
        "best cell": _best_cell(arms, trainer, max(sizes), rounds),
        "rounds": rounds,
        "seconds": round(time.time() - started, 1),
        "provenance": json.loads(provenance(seed=SEED, dphypo=dphypo.__version__)),
    }
    out.write_text(json.dumps(result, indent=1) + "\n")
    return result


def _best_cell(arms: Sequence[Arm], trainer: Trainer, count: int, number: int) -> dict[str, Any]:
    """What can be reached: ``count`` models at the cell of the landscape with the best mean, with the least noise of
    any arm, judged as the releases are."""
    training = min((arm.training for arm in arms), key=lambda one: one.noise_multiplier)
    learning_rate, clip = points.MNIST.pairs[worlds.mnist(training.noise_multiplier).mean.argmax()].tolist()
    params = {"learning_rate": learning_rate, "clip": clip}
    accuracies = np.array(trainer.held_out(params, training, count, number))
    return {
        **params,
        "noise multiplier": round(training.noise_multiplier, 6),
        "models": count,
        "mean": round(float(accuracies.mean()), 5),
        "half": round(1.96 * float(accuracies.std(ddof=1)) / count**0.5, 5),
    }


def _row(arm: Arm, searches: Sequence[Search]) -> dict[str, Any]:
    """Accuracies are in the order of the repetitions, None where a search is unfinished."""
    accuracies = [search.held_out() for search in searches]
    steps = float(np.mean([search.steps for search in searches]))
    known = np.array([accuracy for accuracy in accuracies if accuracy is not None])
    stage = {
        "runs": arm.stage.runs.to_dict(),
        "mean runs": round(arm.stage.runs.mean, 3),
        "band": [arm.stage.search_policy.band.c, arm.stage.search_policy.band.C],
        "steps": arm.training.steps,
        "noise multiplier": round(arm.training.noise_multiplier, 6),
    }
    return {
        "stages": [stage],
        "epsilon": round(searches[0].certificate.epsilon, 4),
        "accuracy of the releases": accuracies,
        "mean": round(float(known.mean()), 5) if len(known) else None,
        "half": round(1.96 * float(known.std(ddof=1)) / len(known) ** 0.5, 5) if len(known) > 1 else None,
        "mean compute in full runs": round(steps / arm.training.steps, 3),
        "unfinished": sum(not search.finished for search in searches),
    }
