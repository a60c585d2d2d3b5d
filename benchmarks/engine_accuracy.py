"""Accuracies of the engine on MNIST: against Opacus, and what averages, normalised gradients and views are worth."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from multiprocessing import get_context

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.engine_models import CNN, MODELS, Opacus, Show, losses, value
from dphypo.torch.engine import Program, Setting, Tensors, train

SETTINGS = ((0.7, 1.0, 0.5), (1.0, 0.3, 1.0), (2.0, 1.0, 0.25))  # σ, C and the learning rate


def accuracy(show: Show, quick: bool, folder: str = "data/packed") -> None:
    """Mean accuracies of 40 runs of each engine on MNIST at three settings, and 95 % intervals."""
    runs, steps = (2, 20) if quick else (40, 500)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    task = MODELS[CNN]
    records, (shown, labels) = pictures(folder, device)
    program = Program.of(task.build().to(device), losses, task.example(device))
    with get_context("spawn").Pool(2 if quick else 12) as pool:
        waiting = [
            pool.starmap_async(_by_opacus, [(folder, str(device), seed, steps, *given) for seed in range(runs)], 1)
            for given in SETTINGS
        ]
        for given, theirs in zip(SETTINGS, waiting, strict=True):
            values = [value(task, len(records), seed, steps, *given) for seed in range(runs)]
            models = train(program, lambda: task.build().to(device), records, values)
            found = np.array([[share(model, shown, labels) for model in models], theirs.get()])
            means, error = found.mean(1), 1.96 * float(np.sqrt(found.var(1, ddof=1).sum() / runs))
            figures = {"ours": means[0], "opacus": means[1], "difference": means[0] - means[1], "interval": error}
            show(f"accuracy at σ, C, learning rate = {given}", **figures, deviations=found.std(1, ddof=1).tolist())


def free(show: Show, quick: bool, folder: str = "data/packed") -> None:
    """What costs no privacy: mean accuracies of 20 runs at the best of four learning rates, all at σ = C = 1."""
    runs, steps = (1, 10) if quick else (20, 500)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    task = MODELS[CNN]
    records, (shown, labels) = pictures(folder, device)
    ways = {"the last iterate": Setting(), "the mean of the last half": Setting(average="last half")}
    ways |= {"an exponential mean, 0.99": Setting(average=0.99), "normalised": Setting(clipping="normalise")}
    tried = [(name, setting, 1) for name, setting in ways.items()]
    for name, setting, views in [*tried, ("four shifted views", Setting(), 4)]:
        moved = {} if views == 1 else {"views": views, "augment": shifted}
        program = Program.of(task.build().to(device), losses, task.example(device), **moved)  # type: ignore[arg-type]
        rates = [rate for rate in (0.125, 0.25, 0.5, 1.0) for _ in range(runs)]
        values = [value(task, len(records), seed, steps, 1.0, 1.0, rate) for seed, rate in enumerate(rates)]
        models = train(program, lambda: task.build().to(device), records, values, setting)
        found = np.array([share(model, shown, labels) for model in models]).reshape(-1, runs)
        best = found[found.mean(1).argmax()]
        error = float(1.96 * best.std(ddof=1) / np.sqrt(runs)) if runs > 1 else 0.0
        show(f"free: {name}", best=float(best.mean()), interval=error, at_each_rate=found.mean(1).tolist())


def shifted(inputs: torch.Tensor, uniforms: Callable[[int], torch.Tensor]) -> torch.Tensor:
    """Every picture, moved by up to two pixels each way."""
    down, right = (uniforms(2) * 5).long().unbind(1)
    places, rows = torch.arange(28, device=inputs.device), torch.arange(len(inputs), device=inputs.device)
    high, wide = (down[:, None] + places)[:, :, None], (right[:, None] + places)[:, None, :]
    return functional.pad(inputs, (2, 2, 2, 2))[rows[:, None, None], 0, high, wide][:, None]


def pictures(folder: str, device: torch.device) -> tuple[Tensors, tuple[torch.Tensor, torch.Tensor]]:
    """MNIST: the training records, and the test pictures with their labels."""
    from paper.data.sets import load

    loaded = load("mnist", folder)
    inputs, targets, shown, labels = (
        torch.as_tensor(np.asarray(part), device=device)
        for part in (loaded.train, loaded.train_labels, loaded.test, loaded.test_labels)
    )
    inputs, shown = (part.reshape(-1, 1, 28, 28).float() / 255 for part in (inputs, shown))
    return Tensors(inputs, targets.long()), (shown, labels.long())


def _by_opacus(folder: str, device: str, seed: int, steps: int, sigma: float, limit: float, rate: float) -> float:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    torch.manual_seed(seed)
    records, (shown, labels) = pictures(folder, torch.device(device))
    opacus = Opacus(MODELS[CNN], records, sigma=sigma, limit=limit, rate=rate)
    for _ in range(steps):
        opacus.step()
    return share(opacus.model, shown, labels)


@torch.no_grad()
def share(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> float:
    outputs: torch.Tensor = model.eval()(inputs.to(next(model.parameters()).device))
    return float((outputs.argmax(1).to(labels.device) == labels).double().mean())
