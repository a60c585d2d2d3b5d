"""HyFreeDP (Liu and Bu, ICLR 2025): no search; step sizes from private losses along the direction of each step.

Every few steps the losses at w, w − ηm and w + ηm are told with Gaussian noise, each record's loss cut off at the last
loss that was told. A parabola through the three has the slope b and the curvature a. Where both are positive η moves a
tenth of the way to b/a, which is first limited to between η/2 and 2η: that is what the code of the method's non-private
form does (GeN, Bu and Xu 2024), and without it noise drives η to zero, since b/a of pure noise is a third of η. m is
Adam's direction and η begins at 1e-4, as there. Gradients are clipped to one, which nearly all exceed (the paper
normalises them). The paper's own figures fine-tune networks that were trained before on public data; without those
they cannot be made again.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paper.anchors.linear import Linear
from paper.anchors.scatter_cnn import Network
from paper.anchors.trainer import Floats, Runs
from paper.anchors.ways import Bench, Way
from paper.train.descent import Average, Descent, Memories

FIRST_RATE = 1e-4
FIRST_BOUND = 2.302585  # the loss of ten classes at weights of zero
SMOOTH = 0.9


def next_rate(rate: Tensor, here: Tensor, ahead: Tensor, behind: Tensor) -> Tensor:
    """After three losses."""
    slope, bend = (behind - ahead) / 2, ahead + behind - 2 * here  # in units of η and η²
    aim = rate * (slope / bend.clamp_min(1e-30)).clamp(0.5, 2.0)
    return torch.where((slope > 0) & (bend > 0), SMOOTH * rate + (1 - SMOOTH) * aim, rate)


def probes(bench: Bench, way: Way, searches: int) -> dict[str, Any]:
    """One run a search: on all records in every step, or on batches, which the losses have of their own."""
    runs = replace(bench.runs(np.full(searches, FIRST_RATE), way["noise"]), memories=Memories(0.9, 0.999))
    bench.examples += searches * runs.examples * (1 + 1 / way["every"])  # a loss is a third of a gradient
    if isinstance(bench.trainer, Network):
        each = [of_network(bench.trainer, runs.part(slice(one, one + 1), bench.next_seed()), way)
                for one in range(searches)]  # fmt: skip
        right, rates = (np.concatenate(one) for one in zip(*each, strict=True))
        return {"released": right / bench.tests, "picked": rates}
    assert isinstance(bench.trainer, Linear)
    right, rates = of_linear(bench.trainer, replace(runs, seed=bench.next_seed()), way)
    return {"released": right / bench.tests, "picked": rates}


@torch.no_grad()
def of_linear(trainer: Linear, runs: Runs, way: Way) -> tuple[Floats, Floats]:
    """Records of the test that each run gets right, and its last step size."""
    generator, used, searches = trainer.generator(runs), trainer.records(runs), len(runs)
    device, records = used.device, len(used)
    noise = way["loss noise"] * math.sqrt(3 * math.ceil(runs.steps / way["every"]))
    clip, spread = trainer.column(runs.clip), trainer.column(runs.clip * runs.noise)
    weights = torch.zeros((trainer.features.shape[1], searches, trainer.classes), device=device)
    rate, bound = (torch.full((searches,), one, device=device) for one in (FIRST_RATE, FIRST_BOUND))
    descent, average = Descent(runs.memories), Average(runs.average)

    def told(at: Tensor) -> Tensor:
        normal = torch.randn(searches, generator=generator, device=device)
        return torch.as_tensor((trainer.losses(at, used, bound) + noise * bound * normal) / records)

    for step in range(runs.steps):
        total = trainer.clipped_sum(weights, used, clip)
        total += spread * torch.randn(total.shape, generator=generator, device=device)
        (direction,) = descent.directions([total / records])
        if step % way["every"] == 0:
            move = rate.view(1, -1, 1) * direction
            here = told(weights)
            rate = next_rate(rate, here, told(weights - move), told(weights + move))
            bound = here.clamp(0.05, 10.0)
        weights.sub_(runs.factor(step) * rate.view(1, -1, 1) * direction)
        average.add([weights])
    return trainer.correct(average.values[0], test=True), rate.double().cpu().numpy()


def of_network(trainer: Network, runs: Runs, way: Way) -> tuple[Floats, Floats]:
    """The same for one run with Poisson batches; three losses on one batch are one mechanism."""
    generator = torch.Generator(trainer.features.device).manual_seed(runs.seed)
    weights, descent, average = trainer.initial(generator), Descent(runs.memories), Average(runs.average)
    used, noise = torch.ones_like(trainer.scores), math.sqrt(3) * way["loss noise"]
    rate, bound = (torch.full((1,), one, device=used.device) for one in (FIRST_RATE, FIRST_BOUND))
    for step in range(runs.steps):
        drawn, view = trainer.drawn(used, runs.rate, generator)
        sums = trainer.noisy_sum(weights, drawn, view, float(runs.clip[0]), float(runs.noise[0]), generator)
        directions = descent.directions([one / runs.batch for one in sums])
        if step % way["every"] == 0:
            drawn, view = trainer.drawn(used, runs.rate, generator)
            told = []
            for sign in (0.0, -1.0, 1.0):
                at = [one + sign * rate * move for one, move in zip(weights, directions, strict=True)]
                normal = torch.randn(1, generator=generator, device=used.device)
                told.append((trainer.losses(at, drawn, view, bound) + noise * bound * normal) / runs.batch)
            rate, bound = next_rate(rate, *told), told[0].clamp(0.05, 10.0)
        for one, move in zip(weights, directions, strict=True):
            one.sub_(runs.factor(step) * rate * move)
        average.add(weights)
    return trainer.correct(average.values, test=True), rate.double().cpu().numpy()
