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

from paper.anchors.linear import Linear
from paper.anchors.ways import Bench, Way
from paper.train.descent import Average, Descent, Memories

FIRST_RATE = 1e-4
FIRST_BOUND = 2.302585  # the loss of ten classes at weights of zero
SMOOTH = 0.9


@torch.no_grad()
def probes(bench: Bench, way: Way, searches: int) -> dict[str, Any]:
    """One run a search, on all records in every step."""
    trainer = bench.trainer
    assert isinstance(trainer, Linear)
    runs = replace(bench.runs(np.full(searches, FIRST_RATE), way["noise"]), memories=Memories(0.9, 0.999))
    generator, used = trainer.generator(replace(runs, seed=bench.next_seed())), trainer.records(runs)
    device, records = used.device, bench.task.records
    noise = way["loss noise"] * math.sqrt(3 * math.ceil(runs.steps / way["every"]))
    clip, spread = trainer.column(runs.clip), trainer.column(runs.clip * runs.noise)
    weights = torch.zeros((trainer.features.shape[1], searches, trainer.classes), device=device)
    rate, bound = (torch.full((searches,), one, device=device) for one in (FIRST_RATE, FIRST_BOUND))
    path, descent, average = [], Descent(runs.memories), Average(runs.average)

    def told(at: torch.Tensor) -> torch.Tensor:
        normal = torch.randn(searches, generator=generator, device=device)
        return torch.as_tensor((trainer.losses(at, used, bound) + noise * bound * normal) / records)

    for step in range(runs.steps):
        total = trainer.clipped_sum(weights, used, clip)
        total += spread * torch.randn(total.shape, generator=generator, device=device)
        (direction,) = descent.directions([total / records])
        if step % way["every"] == 0:
            move = rate.view(1, -1, 1) * direction
            here, ahead, behind = told(weights), told(weights - move), told(weights + move)
            slope, bend = (behind - ahead) / 2, ahead + behind - 2 * here  # in units of η and η²
            aim = rate * (slope / bend.clamp_min(1e-30)).clamp(0.5, 2.0)
            rate = torch.where((slope > 0) & (bend > 0), SMOOTH * rate + (1 - SMOOTH) * aim, rate)
            bound = here.clamp(0.05, 10.0)
            path.append(float(rate.median()))
        weights.sub_(runs.factor(step) * rate.view(1, -1, 1) * direction)
        average.add([weights])
    bench.examples += searches * runs.examples * (1 + 1 / way["every"])  # a loss is a third of a gradient
    released = trainer.correct(average.values[0], test=True) / bench.tests
    return {"released": released, "picked": rate.double().cpu().numpy(), "path": path[::4]}
