"""HyFreeDP (Liu and Bu, ICLR 2025): no search; step sizes from private losses along the direction of each step.

Every ``every`` steps the losses of the step's own batch at w, w − ηm and w + ηm are told with Gaussian noise, each
record's loss cut off at the last loss that was told. A parabola through the three has the slope b and the curvature a,
and η becomes b/a where both are positive. Gradients are clipped to one, which nearly all of them exceed (the paper
normalises them), and m is the momentum. The paper's own figures fine-tune vision transformers and language models that
were trained before on public data, which are not at hand here: they cannot be made again.
"""

from __future__ import annotations

from typing import Any

import torch

from paper.anchors.linear import Linear
from paper.anchors.tasks import CLIP, MOMENTUM
from paper.anchors.ways import Bench, Way
from paper.train.descent import Average

FIRST_RATE = 1e-4
FIRST_BOUND = 2.302585  # the loss of ten classes at weights of zero


@torch.no_grad()
def probes(bench: Bench, way: Way, searches: int) -> dict[str, Any]:
    """One run a search, on all records."""
    trainer, task = bench.trainer, bench.task
    assert isinstance(trainer, Linear)
    device = trainer.features.device
    bench.seed += 1
    generator = torch.Generator(device).manual_seed(bench.seed)
    weights = torch.zeros((trainer.features.shape[1], searches, trainer.classes), device=device)
    velocity, clip = torch.zeros_like(weights), torch.full((1, searches, 1), CLIP, device=device)
    rate, bound = (torch.full((searches,), one, device=device) for one in (FIRST_RATE, FIRST_BOUND))
    path, average = [], Average(task.average)

    def told(at: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
        normal = torch.randn(searches, generator=generator, device=device)
        noisy: torch.Tensor = trainer.losses(at, drawn, bound) + way["loss noise"] * bound * normal
        return noisy / task.batch

    for step in range(task.steps):
        unit = torch.rand((len(trainer.features), searches), generator=generator, device=device)
        drawn = unit < task.batch / task.records
        total = trainer.clipped_sum(weights, drawn, clip)
        total += way["noise"] * CLIP * torch.randn(total.shape, generator=generator, device=device)
        velocity.mul_(MOMENTUM).add_(total, alpha=1 / task.batch)
        if step % way["every"] == 0:
            move = rate.view(1, -1, 1) * velocity
            here, ahead, behind = told(weights, drawn), told(weights - move, drawn), told(weights + move, drawn)
            slope, bend = (behind - ahead) / (2 * rate), (ahead + behind - 2 * here) / rate**2
            good = (slope > 0) & (bend > 0)
            rate = torch.where(good, slope / bend.clamp_min(1e-30), rate).clamp(1e-7, 1e3)
            bound = here.clamp(0.05, 10.0)
        weights.sub_(rate.view(1, -1, 1) * velocity)
        average.add([weights])
        path.append(float(rate.median()))
    bench.examples += searches * task.steps * task.batch
    released = trainer.correct(average.values[0], test=True) / bench.tests
    return {"released": released, "picked": rate.double().cpu().numpy().round(6).tolist(), "path": path[::10]}
