"""Train a landscape and keep it: a small file with what came out and how."""

from __future__ import annotations

import itertools
import json
import platform
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paper.data import points
from paper.data.sets import Images
from paper.train import federated
from paper.train.fused import fused_pieces
from paper.train.gradients import Gradients, Pieces
from paper.train.jobs import FederatedJob, Job, parts
from paper.train.run import Data, Settings, train

MISSING = 65535  # a training that did not run


def gradients_for(data: Data) -> Gradients:
    """Plain on a CPU; on a GPU compiled, with the matrix units' float32 mode (10-bit factors, float32 sums)."""
    if data.train.device.type != "cuda":
        return Gradients(data.network)
    torch.set_float32_matmul_precision("high")
    return Gradients(data.network, pieces=fused_pieces())


def provenance(**more: Any) -> str:
    """Command, versions and machine, as JSON."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    record = {
        "command": " ".join(["python -m paper", *sys.argv[1:]]),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "device": gpu or "cpu",
    }
    return json.dumps({**record, **more})


@torch.no_grad()
def train_landscape(
    job: Job, images: Images, out: Path, device: str, deadline: float = float("inf"), fused: bool = True
) -> None:
    """Run ``job`` and write ``out`` after every part; stop before a part that would not end by ``deadline``.

    ``correct`` (noise multipliers, evaluations, repetitions, points) counts test pictures classified rightly.
    """
    data = Data.of(images.second_half() if job.second_half else images, device)
    gradients = gradients_for(data) if fused else plain(data)
    shape = (len(job.noise_multipliers), len(job.evaluate_after), job.repetitions, len(job.pairs))
    correct = np.full(shape, MISSING, dtype=np.uint16)
    started, longest, samples = time.perf_counter(), 0.0, 0.0
    for number, (repetition, rows, cells) in enumerate(parts(job)):
        begun = time.perf_counter()
        if time.time() + 1.05 * longest > deadline:
            print(f"stopping before part {number}: not enough time", flush=True)
            break
        settings = Settings(rows[:, 0], rows[:, 1], rows[:, 2], job.steps)
        _, right = train(data, settings, job.seed + number, gradients=gradients, evaluate_after=job.evaluate_after)
        for column, (s, i) in enumerate(cells):
            correct[s, :, repetition, i] = right[:, column]
        longest = time.perf_counter() - begun
        samples += len(rows) * job.steps * settings.batch
        seconds = time.perf_counter() - started
        print(f"{out.stem}: part {number}, {longest:.1f} s, best {right[-1].max() / len(data.test):.4f}", flush=True)
        np.savez_compressed(
            out,
            pairs=job.pairs,
            noise_multipliers=np.array(job.noise_multipliers),
            steps=np.array(job.evaluate_after),
            correct=correct,
            tests=len(data.test),
            provenance=provenance(
                seed=job.seed, seconds=round(seconds, 1), samples_per_second=round(samples / seconds)
            ),
        )


def plain(data: Data) -> Gradients:
    """Uncompiled float32 gradients, the reference on any device."""
    return Gradients(data.network, pieces=Pieces())


def train_federated(
    job: FederatedJob, images: Images, out: Path, device: str, deadline: float = float("inf"), models: int = 100
) -> None:
    """The federated task at every cell of its grid: test ``loss`` and ``accuracy``.

    Both are (noise multipliers, evaluations, repetitions, cells); what was not trained for lack of time is nan.
    """
    pairs = points.FEDERATED.pairs
    shape = (len(job.noise_multipliers), len(job.evaluate_after), job.repetitions, len(pairs))
    loss, accuracy = (np.full(shape, np.nan) for _ in range(2))
    started, longest = time.perf_counter(), 0.0
    parts = itertools.product(range(job.repetitions), range(shape[0]), range(0, len(pairs), models))
    for number, (repetition, s, first) in enumerate(parts):
        begun = time.perf_counter()
        if time.time() + 1.05 * longest > deadline:
            print(f"stopping before part {number}: not enough time", flush=True)
            break
        task = federated.Task(rounds=job.evaluate_after[-1], noise_multiplier=job.noise_multipliers[s])
        cells = slice(first, first + models)
        loss[s, :, repetition, cells], accuracy[s, :, repetition, cells] = federated.train(
            task, images, pairs[cells, 0], pairs[cells, 1], job.seed + number, device, job.evaluate_after
        )
        longest = time.perf_counter() - begun
        print(f"{out.stem}: part {number}, {longest:.1f} s, least loss {np.nanmin(loss[s]):.4f}", flush=True)
        seconds = round(time.perf_counter() - started, 1)
        np.savez_compressed(
            out,
            pairs=pairs,
            noise_multipliers=np.array(job.noise_multipliers),
            rounds=np.array(job.evaluate_after),
            loss=loss.astype(np.float32),
            accuracy=accuracy.astype(np.float32),
            provenance=provenance(seed=job.seed, seconds=seconds, task=asdict(federated.Task())),
        )
