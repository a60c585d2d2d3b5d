"""The vectorised program against Opacus: final accuracies at a few points, and samples per second on one device."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import torch

from paper.data.sets import Images
from paper.train.gradients import Gradients
from paper.train.landscape import gradients_for, plain
from paper.train.pooling import image_patches
from paper.train.reference import opacus_training
from paper.train.run import Data, Settings, train

# Learning rate and clipping norm, on the grid of Setting 1, from slow to too fast.
POINTS = ((0.1, 1.2), (10 ** (-1 / 3), 1.2), (1.0, 0.6), (10 ** (-1 / 3), 6.0), (10 ** (-5 / 3), 3.0))
NOISE_MULTIPLIER = 0.71
STEPS = 2344


def opacus_accuracy(images: Images, out: Path, number: int, device: str = "cpu") -> None:
    """Train point ``number % 5`` with Opacus, with seed ``number``, and append the accuracy to ``out`` (JSON lines)."""
    data = Data.of(images, device)
    rate, clip = POINTS[number % len(POINTS)]
    model, seconds = _opacus(data, rate, clip, STEPS, 50_000 + 10 * number)
    with torch.no_grad():
        right = int(sum((model(x).argmax(1) == y).sum() for x, y in _tests(data)))
    line = {"learning_rate": rate, "clip": clip, "noise_multiplier": NOISE_MULTIPLIER, "steps": STEPS}
    with out.open("a") as file:
        file.write(json.dumps({**line, "seed": number, "correct": right, "seconds": round(seconds, 1)}) + "\n")


def _opacus(data: Data, rate: float, clip: float, steps: int, seed: int) -> tuple[torch.nn.Module, float]:
    pictures = data.train[:, :, 3:-3, 3:-3].contiguous()
    return opacus_training(
        data.network, pictures, data.train_labels, learning_rate=rate, clip=clip, noise_multiplier=NOISE_MULTIPLIER,
        sampling_rate=256 / len(pictures), expected_batch=256, steps=steps, seed=seed,
    )  # fmt: skip


def _tests(data: Data) -> zip[tuple[torch.Tensor, torch.Tensor]]:
    return zip(torch.split(data.test[:, :, 3:-3, 3:-3], 500), torch.split(data.test_labels, 500), strict=True)


@torch.no_grad()
def agreement(data: Data, fast: Gradients, models: int = 8, samples: int = 64) -> dict[str, float]:
    """Relative errors of ``fast`` against float64 on the CPU, on real pictures: clipped sums and norms."""
    generator = torch.Generator().manual_seed(0)
    p64 = [v.double() for v in data.network.initial(models, generator)]
    clip = torch.linspace(0.3, 6.0, models)
    index = torch.arange(samples)
    patches = image_patches(data.train[:samples].cpu().double(), data.network.first, data.network.columns)
    labels, present = data.train_labels[:samples].cpu(), (index % 7 > 0).double()
    exact, norms = Gradients(data.network, torch.float64).clipped(
        type(data.network.initial(1, generator))(*p64), patches, labels, present, clip.double()
    )
    device = data.train.device
    got, got_norms = fast.clipped(
        type(exact)(*(v.float().to(device) for v in p64)),
        patches.to(device, fast.dtype), labels.to(device), present.float().to(device), clip.to(device),
    )  # fmt: skip
    errors = {
        name: float((a - b.cpu()).norm() / a.norm()) for name, a, b in zip(exact._fields, exact, got, strict=True)
    }
    return {**errors, "norms": float(((got_norms.cpu() - norms) / norms).abs().max())}


@torch.no_grad()
def throughput(data: Data, models: int = 640, steps: int = 30, fast: Gradients | None = None) -> float:
    """Samples per second of the vectorised program, after a warm-up."""
    fast = fast or gradients_for(data)
    rows = np.linspace(0.1, 1.0, models)
    settings = Settings(rows, rows, 0 * rows + NOISE_MULTIPLIER, steps + 10)
    marks = []

    def progress(step: int) -> None:
        if step in (10, steps + 10):
            if data.train.device.type == "cuda":
                torch.cuda.synchronize()
            marks.append(time.perf_counter())

    train(data, settings, 0, gradients=fast, progress=progress)
    return models * steps * settings.batch / (marks[1] - marks[0])


def opacus_throughput(data: Data, steps: int = 200) -> float:
    """Samples per second of sequential Opacus, after a warm-up."""
    _opacus(data, 0.1, 1.0, 20, 0)
    return steps * 256 / _opacus(data, 0.1, 1.0, steps, 0)[1]


def profile(data: Data, fast: Gradients, models: int = 640) -> str:
    """Where the time of a step goes."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
        throughput(data, models, steps=10, fast=fast)
    return str(recorded.key_averages().table(sort_by="cuda_time_total", row_limit=40, max_name_column_width=90))


def report(images: Images, device: str, profile_to: Path | None = None) -> dict[str, object]:
    """Agreement with float64 and throughput, plain and fused, and Opacus on the same device."""
    data = Data.of(images, device)
    fused = gradients_for(data)
    models, samples = (640, 32) if device == "cuda" else (8, 64)
    result: dict[str, object] = {
        "agreement": agreement(data, fused, models, samples),
        "agreement, plain": agreement(data, plain(data), models, samples),
    }
    result["samples per second"] = throughput(data, models, fast=fused)
    if device == "cuda":
        result["gigabytes reserved"] = torch.cuda.max_memory_reserved() / 1e9
    if profile_to:
        profile_to.write_text(profile(data, fused, models))
    result["samples per second, plain"] = throughput(data, models, 10, plain(data))
    return result
