"""What is really trained: tasks, ways to tune, seeds and noise, all fixed before any of it was run.

``python -m paper survey-plans`` writes ``survey-plans.json`` beside the landscapes; the machine that trains reads it
and needs no accountant. Every way to tune spends ε = 4.25 at δ = 1e-5 in all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
from dp_accounting import GaussianDpEvent

from dphypo import account
from dphypo.accounting import Composition, calibrate, solve_noise
from dphypo.accounting.calibrate import equal_noise, run_alone
from dphypo.accounting.composition import account_published
from dphypo.laws import Law, NegativeBinomial, Poisson, from_dict
from dphypo.mechanisms import SampledGaussian
from paper.data import points
from paper.data.points import Grid
from paper.simulate import worlds
from paper.simulate.adaptive import drawn
from paper.train.settings import Setting

FILE = worlds.FOLDER / "survey-plans.json"
EPSILON, DELTA = 4.25, 1e-5
SEED = 90_000  # of T in uniform searches
RECORDS = {"mnist": 60_000, "fashion": 60_000, "cifar10": 50_000, "grey": 50_000}
SCORED = 5_000  # test pictures that a run is scored on
PAPER = (Setting(256, 10),)
TUNED = tuple(Setting(batch, epochs) for epochs in (5, 10) for batch in (256, 512, 1024, 2048))
LONGER = tuple(Setting(batch, epochs) for epochs in (10, 15) for batch in (256, 512, 1024, 2048))
# Batch size and steps make the space larger; every third learning rate of the paper's and ten clipping norms will do.
WIDE = Grid(points.CIFAR.first[1::3], points.CIFAR_COARSE.second)
GRIDS = {"mnist": points.MNIST, "fashion": points.MNIST, "cifar10": points.CIFAR, "grey": points.MNIST}


@dataclass(frozen=True)
class Arm:
    """A way to tune.

    Args:
        kind: "survey", "uniform" (a secret number of full runs, the best released), "fixed" (one run at ``pair``),
            or "best" (every cell trained, then many runs at the best: what can be reached).
        noise: of a full run, at each setting.
        short_noise, short_batch, short_steps: of a run of the survey, at each setting.
        rate_factor: what the learning rate of a run of the survey is multiplied by, at each setting.
        score_noise: deviation of the noise on each score.
    """

    name: str
    kind: str
    noise: list[float]
    count: int = 0
    fraction: float = 0.0
    short_noise: list[float] = field(default_factory=list)
    short_batch: list[int] = field(default_factory=list)
    short_steps: list[int] = field(default_factory=list)
    rate_factor: list[float] = field(default_factory=list)
    runs: dict[str, Any] = field(default_factory=dict)
    lengths: list[int] = field(default_factory=list)  # T of each uniform search, drawn beforehand
    pair: list[float] = field(default_factory=list)
    score_noise: float = 0.02
    compute: float = 1.0  # in full runs of the paper, the largest possible or, of uniform searches, the mean


@dataclass(frozen=True)
class Experiment:
    """A data set, a space and the ways to tune that are compared.

    Args:
        scales: whether the optimiser sees the grid's values by their places ("places") or by their logarithms ("log").
    """

    data: str
    settings: tuple[Setting, ...]
    rates: list[float]
    clips: list[float]
    seed: int
    arms: list[Arm]
    scales: str = "places"


def kept(name: str) -> str:
    """The file of an experiment.

    >>> kept("mnist, batch and steps")
    'surveys-mnist-batch-and-steps.json'
    """
    return f"surveys-{name.replace(', ', '-').replace(' ', '-')}.json"


def event(batch: int, steps: int, records: int, noise: float) -> dp_accounting.DpEvent:
    """Steps with Poisson batches."""
    return SampledGaussian(rate=batch / records, steps=steps, noise_multiplier=noise).event


def full_event(setting: Setting, records: int, noise: float) -> dp_accounting.DpEvent:
    """A full run of a setting."""
    return event(setting.batch, setting.steps(records), records, noise)


def survey(
    data: str, settings: tuple[Setting, ...], count: int, fraction: float, *, match: bool = True, exponent: float = 0.0,
    name: str = "",
) -> Arm:  # fmt: skip
    """``count`` published runs of a fraction f of the examples, and a full run.

    A short run has the batch B f^a (a is the ``exponent``), the learning rate η f^a, T′ = f^(1-a) T steps and the noise
    σ √(T/T′): what accumulates in the weights, η R σ √T / B, is then that of the full run. Not matched: σ.
    """
    records = RECORDS[data]
    single = equal_noise(
        {one: run_alone(partial(full_event, one, records)) for one in settings}, epsilon=EPSILON, delta=DELTA
    )
    batches = [round(one.batch * fraction**exponent) for one in settings]
    steps = [
        math.ceil(fraction * one.steps(records) * one.batch / batch - 1e-9)
        for one, batch in zip(settings, batches, strict=True)
    ]
    factors = [
        (one.steps(records) / short) ** 0.5 if match else 1.0 for one, short in zip(settings, steps, strict=True)
    ]

    def plan_at(scale: float) -> Composition:
        short = [
            event(batch, count, records, scale * single[one] * factor)
            for one, batch, count, factor in zip(settings, batches, steps, factors, strict=True)
        ]
        full = [full_event(one, records, scale * single[one]) for one in settings]
        return Composition.of(account_published(short, count), account_published(full, 1))

    scale = solve_noise(plan_at, epsilon=EPSILON, delta=DELTA).value
    noises = [scale * single[one] for one in settings]
    largest = max(one.epochs for one in settings) / 10
    return Arm(
        name or f"survey, {count} runs of {fraction:g}", "survey", noises, count, fraction,
        [noise * factor for noise, factor in zip(noises, factors, strict=True)], batches, steps,
        [batch / one.batch for one, batch in zip(settings, batches, strict=True)],
        compute=round(largest * (1 + count * fraction), 3),
    )  # fmt: skip


def alone(data: str) -> float:
    """The noise of one run of the paper's setting."""
    return equal_noise(
        {0: run_alone(lambda noise: full_event(PAPER[0], RECORDS[data], noise))}, epsilon=EPSILON, delta=DELTA
    )[0]


def uniform(data: str, law: Law, name: str) -> Arm:
    """A uniform search of full runs."""
    records = RECORDS[data]
    found = calibrate(lambda noise: full_event(PAPER[0], records, noise), law, epsilon=EPSILON, delta=DELTA)
    assert account(full_event(PAPER[0], records, found.value), law).epsilon(DELTA) <= EPSILON
    lengths = drawn(law, np.random.default_rng(SEED).random(104)).tolist()
    return Arm(name, "uniform", [found.value], runs=law.to_dict(), lengths=lengths, compute=law.mean)


def middle(data: str) -> Arm:
    """One run in the middle of the space: what somebody takes who does not tune."""
    grid = GRIDS[data]
    pair = [float(grid.first[len(grid.first) // 2 - 1]), float(grid.second[len(grid.second) // 2 - 1])]
    return Arm("untuned, middle of the space", "fixed", [alone(data)], pair=pair)


def experiments() -> dict[str, Callable[[], Experiment]]:
    """All of them. The defaults are 20 runs of a tenth; fashion was not looked at before they were fixed.

    The last two were planned after the others had been seen: CIFAR-10 on the coarse grid on which other ways to tune
    were simulated, and MNIST with more steps, since nothing was gained by offering fewer.

    Those with private scores came later: the clipping norm on a logarithmic scale, as the library searches it since,
    and scores with the noise that the library would pay for (:func:`with_private_scores`). "grey" (CIFAR-10's pictures
    in grey, MNIST's network and grid) was not looked at before they were fixed.
    """
    return {
        "mnist": lambda: _experiment(
            "mnist",
            40_000,
            [
                survey("mnist", PAPER, 20, 0.1),
                survey("mnist", PAPER, 20, 0.05),
                survey("mnist", PAPER, 30, 0.033),
                survey("mnist", PAPER, 20, 0.03),
                survey("mnist", PAPER, 20, 0.1, match=False, name="survey, 20 runs of 0.1, noise not matched"),
                middle("mnist"),
                best("mnist", 1),
            ],
        ),
        "fashion": lambda: _experiment(
            "fashion",
            50_000,
            [
                survey("fashion", PAPER, 20, 0.1),
                survey("fashion", PAPER, 20, 0.05),
                middle("fashion"),
                best("fashion", 2),
                uniform("fashion", Poisson(9.0), "uniform, Poisson T, mean 9"),
                uniform("fashion", NegativeBinomial(8.0, mean=9.0), "uniform, shape 8, mean 9"),
            ],
        ),
        "cifar10": lambda: _experiment(
            "cifar10",
            60_000,
            [
                survey("cifar10", PAPER, 20, 0.1),
                survey("cifar10", PAPER, 20, 0.05),
                survey("cifar10", PAPER, 30, 0.033),
                middle("cifar10"),
                uniform("cifar10", Poisson(10.0), "uniform, Poisson T, mean 10"),
            ],
        ),
        "mnist, batch and steps": lambda: _experiment("mnist", 70_000, _tuned("mnist", TUNED, 0.1), TUNED),
        "cifar10, batch and steps": lambda: _experiment("cifar10", 80_000, _tuned("cifar10", TUNED, 0.1), TUNED, WIDE),
        "mnist, batch and more steps": lambda: _experiment("mnist", 71_000, _tuned("mnist", LONGER, 0.05)[:1], LONGER),
        "cifar10, coarse grid": lambda: _experiment(
            "cifar10", 61_000, [survey("cifar10", PAPER, 20, 0.1), best("cifar10", 2)], PAPER, points.CIFAR_COARSE
        ),
        "mnist, private scores": lambda: with_private_scores(
            "mnist", 140_000, [survey("mnist", PAPER, 20, fraction) for fraction in (0.1, 0.05, 0.03)]
        ),
        "cifar10, private scores": lambda: with_private_scores(
            "cifar10", 160_000, [survey("cifar10", PAPER, 20, 0.1), _uniform("cifar10", Poisson(10.0))]
        ),
        "fashion, private scores": lambda: with_private_scores("fashion", 150_000, _held_out("fashion")),
        "grey, private scores": lambda: with_private_scores("grey", 190_000, _held_out("grey")),
        "mnist, batch and steps, private scores": lambda: with_private_scores(
            "mnist", 170_000, _tuned("mnist", TUNED, 0.1)[:1], TUNED
        ),
        "mnist, batch and more steps, private scores": lambda: with_private_scores(
            "mnist", 171_000, _tuned("mnist", LONGER, 0.05)[:1], LONGER
        ),
        "cifar10, batch and steps, private scores": lambda: with_private_scores(
            "cifar10", 180_000, _tuned("cifar10", TUNED, 0.1)[:1], TUNED, WIDE
        ),
    }


def best(data: str, repetitions: int) -> Arm:
    """What can be reached in the paper's setting."""
    return Arm("best cell", "best", [alone(data)], count=repetitions)


def _held_out(data: str) -> list[Arm]:
    """What a task is judged by that nothing was chosen on; every search may take three times the survey's compute."""
    shape = NegativeBinomial(8.0, mean=9.0)
    return [
        survey(data, PAPER, 20, 0.1), _uniform(data, Poisson(9.0)), _uniform(data, shape), best(data, 2), middle(data)
    ]  # fmt: skip


def _uniform(data: str, law: Law) -> Arm:
    kind = "Poisson T" if isinstance(law, Poisson) else "shape 8"
    return uniform(data, law, f"uniform, {kind}, mean {law.mean:g}")


def with_private_scores(
    data: str, seed: int, arms: list[Arm], settings: tuple[Setting, ...] = PAPER, grid: Grid | None = None
) -> Experiment:
    """With logarithmic scales, and noise on the scores as ``PrivateAccuracy(noise_multiplier="calibrate")`` has it.

    The pictures that score are other records than those that train, so their side may spend all of ε.
    """
    noisy = [replace(arm, score_noise=score_noise(arm)) for arm in arms]
    return replace(_experiment(data, seed, noisy, settings, grid), scales="log")


def score_noise(arm: Arm) -> float:
    """Deviation of the noise on a share of ``SCORED`` private records that all scores of an arm cost ε with."""
    if arm.kind == "survey":
        noise = solve_noise(
            lambda noise: Composition.of(account_published([GaussianDpEvent(noise)], arm.count)),
            epsilon=EPSILON, delta=DELTA,
        ).value  # fmt: skip
    elif arm.kind == "uniform":
        noise = calibrate(GaussianDpEvent, from_dict(arm.runs), epsilon=EPSILON, delta=DELTA).value
    else:
        noise = 0.0  # one run, which is not scored
    return noise / SCORED


def _tuned(data: str, settings: tuple[Setting, ...], fraction: float) -> list[Arm]:
    """Batch size and steps in the space: the batch of short runs scaled, and not."""
    name = f"survey, 20 runs of {fraction:g}"
    scaled = survey(data, settings, 20, fraction, exponent=0.3, name=f"{name}, batch scaled")
    return [scaled, survey(data, settings, 20, fraction)]


def _experiment(
    data: str, seed: int, arms: list[Arm], settings: tuple[Setting, ...] = PAPER, grid: Grid | None = None
) -> Experiment:
    grid = grid or GRIDS[data]
    return Experiment(data, settings, grid.first.tolist(), grid.second.tolist(), seed, arms)


def write(names: Sequence[str] = (), path: Path = FILE) -> None:
    """Compute the noise of the given experiments, or of all, and write it; the others are kept as they are."""
    known = json.loads(path.read_text()) if names else {}
    for name, make in experiments().items():
        if name in names or not names:
            known[name] = _rounded(asdict(make()))
    path.write_text(json.dumps(known, indent=1) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    return float(np.format_float_positional(value, 8)) if isinstance(value, float) else value
